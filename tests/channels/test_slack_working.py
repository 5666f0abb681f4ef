"""While an agent works: its reaction, thread and files, and failures that are final."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import timedelta

import pytest

from holdfast.agents.base import Reply
from holdfast.agents.echo import echo
from holdfast.agents.turn import Turn
from holdfast.channels.base import Line, response_event
from holdfast.queue.event import NewEvent
from holdfast.queue.outcome import Dead
from holdfast.settings import Settings, Slack
from holdfast.settings.channels import Channels
from holdfast.testing.slack import FakeSlack
from holdfast.testing.slack.workspace import ADA, BOT_USER, DIRECT, GENERAL
from tests.channels.platforms import slack_channel
from tests.steps import finished, quick_harness, running


@pytest.fixture
def engine() -> str:
    return "sqlite"


def at_once() -> Channels:
    return Channels(slack=(Slack(status_after=timedelta(0)),))


async def test_a_message_shows_that_it_is_worked_on_and_then_no_more(
    slack: FakeSlack, settings: Settings
) -> None:
    go_on = asyncio.Event()

    async def answer(turn: Turn) -> str:
        await go_on.wait()
        return "done"

    async with running(quick_harness(answer), settings, channels=at_once()):
        ts = await slack.mention("hello")
        message = slack.workspace.rooms[GENERAL].find(ts)
        assert message is not None
        await slack.until(lambda: message.get("reactions") == ["eyes"])
        go_on.set()
        await slack.replies(ts)
        await slack.until(lambda: message.get("reactions") == [])


async def test_a_quick_answer_shows_no_sign_and_costs_no_call(
    slack: FakeSlack, settings: Settings
) -> None:
    async def answer(turn: Turn) -> str:
        return "done"

    async with running(quick_harness(answer), settings):
        await slack.replies(await slack.mention("hello"))
    assert slack.faults.calls["reactions.add"] + slack.faults.calls["reactions.remove"] == 0


async def test_a_sign_that_slack_refuses_costs_no_answer(
    slack: FakeSlack, settings: Settings
) -> None:
    slack.faults.plan("reactions.add", "error", code="too_many_reactions")

    async def answer(turn: Turn) -> str:
        await slack.until(lambda: slack.faults.calls["reactions.add"])
        return "done"

    async with running(quick_harness(answer), settings, channels=at_once()):
        assert len(await slack.replies(await slack.mention("hello"))) == 1


async def test_failures_are_shown_when_they_are_final_and_once(
    slack: FakeSlack, settings: Settings
) -> None:
    tries = 0

    async def answer(turn: Turn) -> str:
        nonlocal tries
        tries += 1
        assert len(slack.bot_messages(ts)) == 0
        raise RuntimeError("secret detail")

    app = quick_harness(answer)
    ts = await slack.mention("hello")
    async with running(app, settings, retry_first=timedelta(0), retry_most=timedelta(0)):
        [reply] = await slack.replies(ts)
        await finished(app.store, queue="outbox")
    assert tries == 3
    assert "could not answer" in reply["text"]
    assert "secret" not in reply["text"]
    assert reply["thread_ts"] == ts


async def test_two_processes_apologise_once(slack: FakeSlack, settings: Settings) -> None:
    async def answer(turn: Turn) -> Dead:
        return Dead("no")

    first, second = quick_harness(answer), quick_harness(answer)
    async with running(first, settings), running(second, settings):
        ts = await slack.mention("hello")
        await slack.replies(ts)
        assert len(await finished(first.store, queue="outbox")) == 1
    assert len(slack.bot_messages(ts)) == 1


async def test_long_threads_are_read_to_their_newest_messages(
    slack: FakeSlack, settings: Settings
) -> None:
    lines: list[Line] = []

    async def answer(turn: Turn) -> str:
        lines.extend(await turn.thread())
        return "read"

    room = slack.workspace.rooms[GENERAL]
    root = slack.workspace.post(room, ADA, "root")["ts"]
    for number in range(9):
        slack.workspace.post(room, ADA, f"{number} for <@{BOT_USER}> in <#{GENERAL}>", root)
    slack.workspace.post_as_bot(room, "mine &lt;3", root)
    app = quick_harness(answer)
    app.add_channel(slack_channel(settings, page=3, thread_lines=4))
    async with running(app, settings):
        await slack.mention("now", thread_ts=root)
        await slack.until(lambda: len(slack.bot_messages(root)) == 2)
    assert [line.text for line in lines] == [
        *(f"{n} for @holdfast in #general" for n in (6, 7, 8)),
        "mine <3",
    ]
    assert [(line.sender, line.is_own) for line in lines] == [
        *[("ada", False)] * 3,
        ("holdfast", True),
    ]
    assert slack.faults.calls["users.info"] == 2


async def test_a_long_thread_is_not_read_from_its_beginning_again(
    slack: FakeSlack, settings: Settings
) -> None:
    seen: list[tuple[list[str], int]] = []

    async def answer(turn: Turn) -> str:
        slack.faults.calls["conversations.replies"] = 0
        texts = [line.text for line in await turn.thread()]
        seen.append((texts, slack.faults.calls["conversations.replies"]))
        return "read"

    room = slack.workspace.rooms[GENERAL]
    root = slack.workspace.post(room, ADA, "root")["ts"]
    for number in range(20):
        slack.workspace.post(room, ADA, str(number), root)
    app = quick_harness(answer)
    app.add_channel(slack_channel(settings, page=3, thread_lines=3))
    async with running(app, settings):
        for number in range(3):
            await slack.mention(f"now {number}", thread_ts=root)
            await slack.replies(root, count=number + 1)
            if number == 1:
                # Without these, too few are left since where the last read began.
                gone = [one for one in room.messages if "now" in one["text"] or one["text"] == "19"]
                room.messages = [one for one in room.messages if one not in gone]
    assert seen[0] == (["17", "18", "19"], 8)
    assert seen[1] == (["19", "@holdfast now 0", "read"], 2)
    assert seen[2] == (["18", "read", "read"], 9)


async def test_a_thread_that_slack_does_not_tell_now_is_read_later_and_no_attempt_used(
    slack: FakeSlack, settings: Settings
) -> None:
    slack.faults.plan("conversations.replies", "ratelimited", seconds=1)

    async def answer(turn: Turn) -> str:
        return f"{len(await turn.thread())} before, attempt {turn.attempt}"

    root = slack.workspace.post(slack.workspace.rooms[GENERAL], ADA, "root")["ts"]
    app = quick_harness(answer)
    app.add_channel(slack_channel(settings, page=3, thread_lines=4))
    async with running(app, settings):
        await slack.mention("now", thread_ts=root)
        [reply] = await slack.replies(root)
    assert reply["text"] == "1 before, attempt 1"


async def test_direct_messages_are_read_back_newest_kept(
    slack: FakeSlack, settings: Settings
) -> None:
    texts: list[str] = []

    async def answer(turn: Turn) -> str:
        texts.extend(line.text for line in await turn.thread())
        return "read"

    room = slack.workspace.rooms[DIRECT]
    for number in range(3):
        slack.workspace.post(room, ADA, str(number))
    async with running(quick_harness(answer), settings):
        await slack.say_directly("now")
        await slack.until(lambda: len(room.messages) == 5)
    assert texts == ["0", "1", "2"]


async def test_files_go_out_from_below_the_files_root_alone(
    slack: FakeSlack, settings: Settings
) -> None:
    root = settings.home / "files"
    root.mkdir()
    (root / "report.txt").write_text("all is well")
    (settings.home / "secret.txt").write_text("not for you")

    async def answer(turn: Turn) -> Reply:
        return Reply("here", files=(turn.text,))

    app = quick_harness(answer)
    async with running(app, settings):
        ts = await slack.mention("report.txt")
        [text, file] = await slack.replies(ts, count=2)
        assert (text["text"], [one["name"] for one in file["files"]]) == ("here", ["report.txt"])
        assert slack.workspace.uploads[file["files"][0]["id"]].content == b"all is well"
        [first] = await finished(app.store, queue="outbox")
        await app.store.put([response_event(first.event | {"files": ["../secret.txt"]})])
        await slack.until(lambda: len(slack.workspace.rooms[GENERAL].messages) == 4)
        dead_letters = await finished(app.store, 2, queue="outbox")
    assert [letter.error_class for letter in dead_letters] == [None, "file_refused"]
    assert len(slack.workspace.uploads) == 1


async def test_a_file_that_may_have_been_shared_is_looked_up(
    slack: FakeSlack, settings: Settings
) -> None:
    (settings.home / "files").mkdir()
    (settings.home / "files" / "a.txt").write_text("a")
    slack.faults.plan("files.completeUploadExternal", "drop_after")

    async def answer(turn: Turn) -> Reply:
        return Reply("", files=("a.txt",))

    app = quick_harness(answer)
    async with running(app, settings):
        ts = await slack.mention("file")
        await finished(app.store, queue="outbox")
    assert len(slack.bot_messages(ts)) == 1


async def test_files_that_came_along_are_fetched_when_the_agent_asks(
    slack: FakeSlack, settings: Settings
) -> None:
    found: list[tuple[str, bytes]] = []

    async def answer(turn: Turn) -> str:
        found.extend((path.name, path.read_bytes()) for path in await turn.files())
        assert all(settings.home in path.parents for path in await turn.files())
        return "read"

    foreign = {"id": "F9", "name": "x", "url_private_download": "https://evil.example/x"}
    files = [slack.file("../a.txt", b"small"), slack.file("b.txt", b"x" * 11), foreign]
    app = quick_harness(answer)
    app.add_channel(slack_channel(settings, download_bytes=10))
    async with running(app, settings):
        await slack.replies(await slack.mention("look", files=files))
    assert [content for _, content in found] == [b"small"]
    assert "/" not in found[0][0]


async def test_a_file_whose_download_breaks_off_is_left_out(
    slack: FakeSlack, settings: Settings
) -> None:
    slack.faults.plan("download", "drop_before", times=100)

    async def answer(turn: Turn) -> str:
        return f"{len(await turn.files())} files, attempt {turn.attempt}"

    async with running(quick_harness(answer), settings):
        ts = await slack.mention("look", files=[slack.file("a.txt", b"small")])
        [reply] = await slack.replies(ts)
    assert reply["text"] == "0 files, attempt 1"


async def test_files_of_a_refused_sender_are_not_fetched(
    slack: FakeSlack, settings: Settings
) -> None:
    async def answer(turn: Turn) -> str:
        await turn.files()
        return "read"

    closed = Channels(slack=(Slack(deny_users=(ADA,)),))
    async with running(quick_harness(answer), settings, channels=closed):
        await slack.mention("look", files=[slack.file("a.txt", b"small")])
        await slack.until(lambda: slack.sockets.acked)
    assert not (settings.home / "files").exists()


async def test_the_app_token_may_be_given_to_run(
    slack: FakeSlack, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLACK_APP_TOKEN")
    app = quick_harness(echo, settings=settings)
    async with asyncio.TaskGroup() as group:
        await app.run(app_token=slack.app_token, task_group=group)
        assert [reply["text"] for reply in await slack.replies(await slack.mention("hello"))] == [
            "you said hello"
        ]
        app.stop()


async def test_a_message_of_our_own_accord_reaches_a_person(
    slack: FakeSlack, settings: Settings
) -> None:
    app = quick_harness(echo)
    payload = {
        "kind": "response",
        "channel": "slack",
        "sender": "ada",
        "sender_id": ADA,
        "message": "good morning",
    }
    async with running(app, settings):
        await app.store.put([NewEvent(event=payload, queue="outbox", target="slack")])
        await slack.until(lambda: slack.workspace.rooms[DIRECT].messages)
    assert slack.workspace.rooms[DIRECT].messages[0]["text"] == "good morning"


async def test_the_rooms_of_a_limited_number_of_people_are_remembered(
    slack: FakeSlack, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.channels.slack.MOST_PEOPLE", 1, raising=False)
    slack.workspace.users["U0BEN"] = "ben"
    app = quick_harness(echo)
    async with running(app, settings):
        for count, person in enumerate((ADA, ADA, "U0BEN", ADA), 1):
            payload = {"kind": "response", "channel": "slack", "sender_id": person, "message": "x"}
            await app.store.put([response_event(payload)])
            await finished(app.store, count, queue="outbox")
    assert slack.faults.calls["conversations.open"] == 3


def test_a_process_without_slack_does_not_import_it() -> None:
    code = (
        "import sys, holdfast.app; print({'slack_sdk', 'slack_bolt', 'aiohttp'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"

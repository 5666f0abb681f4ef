"""Messages in and answers out, against a real homeserver."""

from __future__ import annotations

import asyncio
import time
import uuid
from functools import partial

import pytest

from holdfast.agents.base import Reply
from holdfast.agents.echo import echo
from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.channels.matrix.homeserver import open_homeserver
from holdfast.channels.matrix.html import LONGEST_PART
from holdfast.channels.matrix.incoming import content_of, thread_of
from holdfast.channels.matrix.media import download_files
from holdfast.queue.event import OUTBOX
from holdfast.queue.store import Filter
from holdfast.settings import Settings
from holdfast.settings.channels.matrix import Matrix
from holdfast.store.chain import find_message
from holdfast.testing.matrix import LARGEST_UPLOAD, Synapse
from holdfast.testing.matrix.person import Person
from holdfast.testing.matrix.proxy import SEND, FaultyProxy
from tests.channels.matrix.conftest import MakePerson
from tests.steps import both_engines, finished, quick_harness, running, until

sqlite_only = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
"""For tests of the platform, which do not depend on the store."""


@both_engines
async def test_a_message_that_came_with_the_invitation_is_answered(
    settings: Settings, bot: str, ada: Person
) -> None:
    room = await ada.create_room(bot, is_direct=True)
    await ada.say(room, "hello")
    async with running(quick_harness(echo), settings) as app:
        assert await ada.answers(room, bot, 1) == ["you said hello"]
        await ada.say(room, "again")
        assert await ada.answers(room, bot, 2) == ["you said hello", "you said again"]
        [first, _] = await finished(app.store, 2, queue="inbox")
    assert first.event["sender"] == "Ada"
    assert first.event["sender_id"] == ada.user
    assert first.event["conversation"] == f"matrix:{room}"
    assert first.message_id == f"matrix_{bot}_{room}_{first.event['event_id']}"


@sqlite_only
async def test_a_rate_limit_lets_all_conversations_of_the_account_wait(
    settings: Settings, synapse: Synapse, bot: str, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms = [await ada.create_room(bot, is_direct=True) for _ in range(2)]
    async with FaultyProxy(synapse.url).open() as proxy:
        monkeypatch.setenv("MATRIX_HOMESERVER", proxy.url)
        proxy.faults.plan(SEND, "ratelimited", seconds=2)
        async with running(quick_harness(echo), settings) as app:
            await ada.say(rooms[0], "one")
            await until(lambda: proxy.faults.calls[SEND])
            refused_at = time.monotonic()
            await ada.say(rooms[1], "two")
            await until(lambda: proxy.faults.calls[SEND] > 1)
            waited = time.monotonic() - refused_at
            ended = await finished(app.store, 2, queue=OUTBOX)
    assert waited > 1.5
    assert [one.attempts for one in ended] == [1, 1]


@sqlite_only
async def test_a_room_of_three_is_answered_when_it_mentions_the_bot(
    settings: Settings, bot: str, ada: Person, person: MakePerson
) -> None:
    grace = await person("grace")
    async with running(quick_harness(echo), settings):
        room = await ada.create_room(bot, grace.user)
        await grace.join(room)
        await ada.say(room, "not for the bot")
        await ada.send(room, {"msgtype": "m.notice", "body": f"{bot} says a bot"})
        await ada.say(room, "listed", mention=bot)
        await grace.say(room, f"{bot}: by id")
        await grace.say(room, "robot, by name")
        await ada.say(room, "robots are not the bot")
        await ada.say(room, "Robot: last", mention=bot)
        texts = await ada.answers(room, bot, 4)
    assert texts == [f"you said {text}" for text in ("listed", "by id", "by name", "last")]


@sqlite_only
async def test_a_thread_is_a_conversation_of_its_own_and_answered_there(
    settings: Settings, bot: str, ada: Person
) -> None:
    async with running(quick_harness(echo), settings) as app:
        room = await ada.create_room(bot, is_direct=True)
        root = await ada.say(room, "outside")
        await ada.say(room, "inside", thread=root)
        assert await ada.answers(room, bot, 1, thread=root) == ["you said inside"]
        await ada.answers(room, bot, 2)
        both = await ada.messages(room, bot)
        rows = await finished(app.store, 2, queue="inbox")
    # Two conversations are answered at the same time, so their order is open.
    assert {thread_of(one) for one in both} == {None, root}
    conversations = {row.event["conversation"] for row in rows}
    assert conversations == {f"matrix:{room}", f"matrix:{room}:{root}"}


@sqlite_only
async def test_edits_and_redactions_count_until_the_claim(
    settings: Settings, bot: str, ada: Person, person: MakePerson
) -> None:
    mallory = await person("mallory")
    room = await ada.create_room(bot, is_direct=True)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(turn: Turn) -> str:
        begun.set()
        await go_on.wait()
        return turn.text

    async with running(quick_harness(slow), settings) as app:
        first = await ada.say(room, "first")
        await begun.wait()
        texts = ("second", "third", "fourth")
        second, third, fourth = [await ada.say(room, text) for text in texts]
        await until(partial(_is_known, app, f"matrix_{bot}_{room}_{fourth}"))
        await ada.edit(room, first, "too late")
        await ada.edit(room, second, "second, edited")
        await ada.redact(room, third)
        await ada.homeserver.post("rooms", room, "invite", content={"user_id": mallory.user})
        await mallory.join(room)
        await mallory.edit(room, fourth, "not hers")
        last = await ada.say(room, "fifth", mention=bot)
        await until(partial(_is_known, app, f"matrix_{bot}_{room}_{last}"))
        go_on.set()
        answers = await ada.answers(room, bot, 4)
    assert answers == ["first", "second, edited", "fourth", "fifth"]


async def _is_known(app: AgentHarness, message_id: str) -> bool:
    return await find_message(app.store, message_id) is not None


@sqlite_only
async def test_files_come_in_and_go_out_within_the_sizes(
    settings: Settings, bot: str, ada: Person
) -> None:
    settings.files.mkdir(parents=True)
    (settings.files / "big.bin").write_bytes(b"x" * (LARGEST_UPLOAD + 1))
    contents: list[str] = []

    async def copy(turn: Turn) -> Reply:
        if turn.text == "big":
            return Reply("", files=("big.bin",))
        paths = await turn.files()
        contents.extend(path.read_text() for path in paths)
        return Reply("here", files=tuple(str(path) for path in paths))

    async with running(quick_harness(copy), settings) as app:
        room = await ada.create_room(bot, is_direct=True)
        address = await ada.homeserver.upload(b"the content", "text/plain", "a.txt")
        await ada.send(room, {"msgtype": "m.file", "body": "a.txt", "url": address})
        assert await ada.answers(room, bot, 2) == ["here", "0-a.txt"]
        [_, file] = await ada.messages(room, bot)
        async with ada.homeserver.download(content_of(file)["url"]) as answer:
            assert await answer.read() == b"the content"
        await ada.say(room, "big")
        [letter] = await until(lambda: app.store.dead(Filter(queue=OUTBOX)))
    assert contents == ["the content"]
    assert letter.error_class == "file_too_large"


@sqlite_only
async def test_a_file_that_is_too_large_or_elsewhere_is_left_out(
    settings: Settings, ada: Person
) -> None:
    address = await ada.homeserver.upload(b"12345", "text/plain", "a.txt")
    lost = address[:-3]

    async def fetched(url: str, largest: int, size: int | None = None) -> list[str]:
        file = {"url": url, "name": "../a.txt", "size": size}
        payload = {"kind": "message", "channel": "matrix", "sender_id": ada.user, "files": [file]}
        paths = await download_files(ada.homeserver, settings.files, payload, largest)
        return [path.read_text() for path in paths]

    assert await fetched(address, 5) == ["12345"]
    assert await fetched(address, 4) == []
    assert await fetched(address, 5, size=6) == []
    assert await fetched(lost, 5) == []
    assert await fetched("https://example.org/a.txt", 5) == []
    assert await fetched("mxc://localhost/../../v3/account", 5) == []


@sqlite_only
async def test_a_file_whose_download_breaks_off_is_left_out(
    settings: Settings, ada: Person, synapse: Synapse
) -> None:
    address = await ada.homeserver.upload(b"12345", "text/plain", "a.txt")
    files = [{"url": address, "name": "a.txt"}]
    payload = {"kind": "message", "channel": "matrix", "sender_id": ada.user, "files": files}
    async with (
        FaultyProxy(synapse.url).open() as proxy,
        open_homeserver(proxy.url, "token") as homeserver,
    ):
        proxy.is_away = True
        assert await download_files(homeserver, settings.files, payload, 100) == []


@sqlite_only
async def test_a_long_answer_comes_in_parts_with_its_markup(
    settings: Settings, bot: str, ada: Person
) -> None:
    paragraphs = ["x" * (LONGEST_PART - 100), "**bold** <b>raw</b>", "y" * (LONGEST_PART - 100)]

    async def long(turn: Turn) -> str:
        return "\n\n".join(paragraphs)

    async with running(quick_harness(long), settings):
        room = await ada.create_room(bot, is_direct=True)
        await ada.say(room, "go")
        texts = await ada.answers(room, bot, 2)
        messages = await ada.messages(room, bot)
    assert "\n\n".join(texts) == "\n\n".join(paragraphs)
    html = [content_of(one).get("formatted_body") for one in messages]
    assert any("<strong>bold</strong> &lt;b&gt;raw" in str(one) for one in html)


@sqlite_only
async def test_a_room_that_the_bot_was_removed_from_is_a_dead_letter_with_the_code(
    settings: Settings, bot: str, ada: Person
) -> None:
    async def removed(turn: Turn) -> str:
        kick = {"user_id": bot}
        await ada.homeserver.post("rooms", turn.event["room"], "kick", content=kick)
        return "too late"

    async with running(quick_harness(removed), settings) as app:
        room = await ada.create_room(bot)
        await ada.say(room, "hello")
        [letter] = await until(lambda: app.store.dead(Filter(queue=OUTBOX)))
    assert letter.error_class == "M_FORBIDDEN"
    assert str(letter.last_error).startswith("M_FORBIDDEN ")


@sqlite_only
async def test_an_encrypted_message_is_answered_once_by_what_to_do(
    settings: Settings, bot: str, ada: Person
) -> None:
    async with running(quick_harness(echo), settings):
        room = await ada.create_room(bot, is_direct=True)
        secret = {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "x"}
        for _ in range(2):
            await ada.send(room, secret, "m.room.encrypted")
        await ada.say(room, "hello")
        [notice, answer] = await ada.answers(room, bot, 2)
    assert "without encryption" in notice
    assert answer == "you said hello"


@sqlite_only
async def test_an_agent_can_read_what_was_said_before(
    settings: Settings, bot: str, ada: Person
) -> None:
    async def recall(turn: Turn) -> str:
        lines = await turn.thread()
        return " / ".join(f"{'bot' if line.is_own else 'person'}: {line.text}" for line in lines)

    async with running(quick_harness(recall), settings):
        room = await ada.create_room(bot, is_direct=True)
        root = await ada.say(room, "one")
        [first] = await ada.answers(room, bot, 1)
        await ada.say(room, "two")
        [_, second] = await ada.answers(room, bot, 2)
        await ada.say(room, "in the thread", thread=root)
        [_, _, third] = await ada.answers(room, bot, 3)
    assert first == "(no answer)"
    assert second == f"person: one / bot: {first}"
    assert third == "person: one"


@sqlite_only
async def test_each_account_answers_the_messages_that_it_received(
    settings: Settings, bot: str, ada: Person, synapse: Synapse, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, token = synapse.register(f"other-{uuid.uuid4().hex[:8]}")
    monkeypatch.setenv("OTHER_TOKEN", token)
    tables = (Matrix(), Matrix(token_variable="OTHER_TOKEN"))
    channels = settings.channels.model_copy(update={"matrix": tables})
    async with running(quick_harness(echo), settings, channels=channels):
        room = await ada.create_room(bot, other)
        await until(partial(_has_joined, ada, room, bot))
        await until(partial(_has_joined, ada, room, other))
        await ada.say(room, "first", mention=bot)
        await ada.say(room, "second", mention=other)
        assert await ada.answers(room, bot, 1) == ["you said first"]
        assert await ada.answers(room, other, 1) == ["you said second"]


async def _has_joined(person: Person, room: str, user: str) -> bool:
    return bool((await person.homeserver.member(room, user))["membership"] == "join")

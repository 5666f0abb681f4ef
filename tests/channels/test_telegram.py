"""Telegram through the real client library: messages in, answers out."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.agents.base import Reply
from holdfast.agents.echo import echo
from holdfast.agents.turn import Turn
from holdfast.channels.buttons import question
from holdfast.queue.audit import AuditFilter
from holdfast.settings import Settings
from holdfast.testing.telegram import ADA, GROUP, USERNAME, FakeTelegram
from holdfast.testing.telegram.chats import BOB, BOT, OTHER_BOT
from tests.channels.platforms import undelivered
from tests.steps import both_engines, finished, quick_harness, running

on_sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
FACE = "\N{GRINNING FACE}"


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    (tmp_path / "files").mkdir()
    return Settings(home=tmp_path, database=database_url, pairing="open")


@both_engines
async def test_a_private_message_is_answered_in_its_chat(
    telegram: FakeTelegram, settings: Settings
) -> None:
    async with running(quick_harness(echo), settings) as app:
        message = await telegram.say("hello")
        assert await telegram.answers(1) == ["you said hello"]
        [ended] = await finished(app.store, queue="inbox")
        await telegram.until(lambda: telegram.confirmed)
    assert ended.message_id == f"telegram_{BOT}_{ADA}_{message}"
    assert ended.event["conversation"] == f"telegram:{ADA}"
    assert (ended.event["sender"], ended.event["sender_id"]) == ("Ada", str(ADA))


@on_sqlite
async def test_an_update_that_cannot_be_read_holds_up_nothing(
    telegram: FakeTelegram, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(quick_harness(echo), settings):
        await telegram.deliver({"message": {"message_id": "x", "chat": []}})
        await telegram.deliver({"a kind of the future": {"id": 1}})
        await telegram.say("hello")
        assert await telegram.answers(1) == ["you said hello"]
    assert "cannot be read; skipped" in caplog.text


@on_sqlite
async def test_in_a_group_the_bot_answers_when_it_is_mentioned_or_replied_to(
    telegram: FakeTelegram, settings: Settings
) -> None:
    async with running(quick_harness(echo), settings):
        await telegram.say("nobody asked", chat=GROUP)
        mention = await telegram.mention("first", user=ADA)
        assert await telegram.answers(1, GROUP) == ["you said first"]
        [answer] = telegram.bot_messages(GROUP)
        assert answer["replies_to"] == mention
        await telegram.say("second", chat=GROUP, reply_to_message=answer)
        await telegram.answers(2, GROUP)
        text = f"{FACE} go @{USERNAME.upper()}, third"
        entity = {"type": "mention", "offset": 6, "length": len(USERNAME) + 1}
        await telegram.say(text, chat=GROUP, entities=[entity])
        command = {"type": "bot_command", "offset": 0, "length": len(f"/ask@{USERNAME}")}
        await telegram.answers(3, GROUP)
        await telegram.say(f"/ask@{USERNAME} fourth", chat=GROUP, entities=[command])
        assert (await telegram.answers(4, GROUP))[1:] == [
            "you said second",
            f"you said {FACE} go third",
            "you said /ask fourth",
        ]


@on_sqlite
async def test_a_topic_is_a_conversation_of_its_own(
    telegram: FakeTelegram, settings: Settings
) -> None:
    async with running(quick_harness(echo), settings) as app:
        await telegram.mention("in a topic", message_thread_id=9)
        await telegram.answers(1, GROUP)
        # Outside of topics, a reply has a thread id, too.
        await telegram.mention("outside", message_thread_id=5, is_topic_message=False)
        await telegram.answers(2, GROUP)
        ended = await finished(app.store, 2, queue="inbox")
    assert [one.event["conversation"] for one in ended] == [
        f"telegram:{GROUP}:9",
        f"telegram:{GROUP}",
    ]
    threads = [answer.get("message_thread_id") for answer in telegram.bot_messages(GROUP)]
    assert threads == [9, None]


@on_sqlite
async def test_a_long_answer_is_cut_by_utf_16_units(
    telegram: FakeTelegram, settings: Settings
) -> None:
    async def answer(turn: Turn) -> str:
        return FACE * 3000

    async with running(quick_harness(answer), settings):
        await telegram.say("go on")
        texts = await telegram.answers(2)
    assert "".join(texts) == FACE * 3000


@on_sqlite
async def test_markdown_is_shown_and_plain_if_telegram_cannot_parse_it(
    telegram: FakeTelegram, settings: Settings
) -> None:
    async def answer(turn: Turn) -> str:
        return "**bold** & `a < b`"

    async with running(quick_harness(answer), settings):
        await telegram.say("one")
        await telegram.answers(1)
        telegram.faults.plan(
            "sendMessage", "error", code="400 Bad Request: can't parse entities: x"
        )
        await telegram.say("two")
        assert await telegram.answers(2) == ["bold & a < b", "**bold** & `a < b`"]


@on_sqlite
async def test_files_come_in_and_too_large_ones_are_left_out(
    telegram: FakeTelegram, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    seen: dict[str, bytes] = {}

    async def answer(turn: Turn) -> str:
        found = await turn.files()
        seen.update({path.name: path.read_bytes() for path in found})
        return f"{turn.text}: {len(found)}"

    async with running(quick_harness(answer), settings):
        await telegram.send_file("photo", b"picture", caption="look")
        await telegram.answers(1)
        await telegram.send_file("document", b"text", name="../a b.txt")
        await telegram.answers(2)
        await telegram.send_file("voice", b"sound")
        await telegram.answers(3)
        await telegram.send_file("document", b"x" * (20 * 1024 * 1024 + 1), name="large.bin")
        assert await telegram.answers(4) == ["look: 1", ": 1", ": 1", ": 0"]
    assert sorted(seen.values()) == [b"picture", b"sound", b"text"]
    endings = {name.rpartition(".")[2] for name in seen}
    assert endings == {"jpg", "txt", "ogg"}
    assert "has more than 20 MiB" in caplog.text
    assert telegram.token not in caplog.text


@on_sqlite
async def test_files_go_out_and_a_too_large_one_is_a_dead_letter(
    telegram: FakeTelegram, settings: Settings
) -> None:
    (settings.home / "files" / "a.txt").write_text("a")
    with (settings.home / "files" / "large.bin").open("wb") as large:
        large.truncate(50 * 1024 * 1024 + 1)

    async def answer(turn: Turn) -> Reply:
        return Reply("here", files=[turn.text])

    async with running(quick_harness(answer), settings) as app:
        await telegram.say("a.txt")
        await telegram.answers(2)
        await telegram.say("large.bin")
        await finished(app.store, 2, queue="outbox")
        assert await undelivered(app) == [("dead", "file_too_large")]
    [sent] = [one["document"] for one in telegram.bot_messages() if "document" in one]
    assert sent["file_name"] == "a.txt"
    assert telegram.chats.uploads[sent["file_id"]].content == b"a"


@both_engines
async def test_a_button_sends_the_signal_that_its_turn_waits_for(
    telegram: FakeTelegram, settings: Settings
) -> None:
    async def answer(turn: Turn) -> str:
        async def ask() -> None:
            choices = {"Yes": True, "No": False}
            await app.store.put([question(turn.primary, "Deploy?", "approval", choices)])

        await turn.step("ask", ask)
        return f"approved: {await turn.signal('approval')}"

    app = quick_harness(answer)
    async with running(app, settings):
        await telegram.say("deploy")
        assert await telegram.answers(1) == ["Deploy?"]
        [asked] = telegram.bot_messages()
        # Buttons of other chats, and data that no response offered, do nothing.
        elsewhere = asked | {"chat": telegram.chats.chat(BOB)}
        await telegram.press(elsewhere, 1, user=BOB)
        for data in ("hf:1:0", "hf:999999:0", "hf:x", "approval"):
            await telegram.press_data(asked, data)
        await telegram.until(lambda: len(telegram.chats.callback_answers) == 5)
        assert set(telegram.chats.callback_answers) == {"This question is closed."}
        await telegram.press(asked, 0)
        assert await telegram.answers(2) == ["Deploy?", "approved: True"]
        await telegram.until(lambda: "reply_markup" not in asked)
        assert telegram.chats.callback_answers[5] is None
        [entry] = await app.store.audit_log(AuditFilter(action="signalled"))
        person = await app.store.pseudonym(f"default:USER:telegram:id:{ADA}")
        assert entry.actor == f"telegram:{person}"


@on_sqlite
async def test_the_question_of_a_wait_is_shown_with_buttons(
    telegram: FakeTelegram, settings: Settings
) -> None:
    async def answer(turn: Turn) -> str:
        is_approved = await turn.signal("ok", prompt="Deploy?", options={"Yes": True, "No": False})
        return f"approved: {is_approved}"

    async with running(quick_harness(answer), settings):
        await telegram.say("deploy")
        assert await telegram.answers(1) == ["Deploy?"]
        await telegram.press(telegram.bot_messages()[0], 1)
        assert await telegram.answers(2) == ["Deploy?", "approved: False"]


@on_sqlite
async def test_a_person_who_blocked_the_bot_is_a_dead_letter_with_telegrams_code(
    telegram: FakeTelegram, settings: Settings
) -> None:
    telegram.chats.blocked.add(ADA)
    async with running(quick_harness(echo), settings) as app:
        await telegram.say("hello")
        [ended] = await finished(app.store, queue="outbox")
        assert await undelivered(app) == [("dead", "403")]
    assert (ended.last_error or "").startswith("403 Forbidden: bot was blocked by the user")


@on_sqlite
async def test_a_group_that_became_a_supergroup_is_answered_there(
    telegram: FakeTelegram, settings: Settings
) -> None:
    async with running(quick_harness(echo), settings):
        telegram.chats.moved[GROUP] = -1002
        await telegram.mention("hello")
        assert await telegram.answers(1, -1002) == ["you said hello"]


@on_sqlite
async def test_a_file_follows_a_group_that_became_a_supergroup(
    telegram: FakeTelegram, settings: Settings
) -> None:
    (settings.home / "files" / "a.txt").write_text("a")

    async def answer(turn: Turn) -> Reply:
        return Reply("", files=("a.txt",))

    async with running(quick_harness(answer), settings) as app:
        telegram.chats.moved[GROUP] = -1002
        await telegram.mention("hello")
        [ended] = await finished(app.store, queue="outbox")
    assert ended.outcome == "completed"
    [message] = telegram.chats.messages[-1002]
    assert message["document"]["file_name"] == "a.txt"


@on_sqlite
async def test_messages_of_bots_and_of_strangers_are_not_stored(
    telegram: FakeTelegram, settings: Settings
) -> None:
    closed = settings.model_copy(update={"pairing": "closed"})
    async with running(quick_harness(echo), closed) as app:
        await telegram.send_file("photo", b"picture", user=BOB)
        await telegram.mention("hello", user=OTHER_BOT)
        await telegram.deliver({"message": telegram.chats.post(GROUP, ADA, new_chat_title="new")})
        await telegram.until(lambda: len(telegram.confirmed) == 3)
        assert await app.store.counts() == []
    assert telegram.faults.calls["getFile"] == 0

"""The e-mail channel against real servers: Dovecot and Postfix."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import replace
from datetime import timedelta
from email.utils import parseaddr
from pathlib import Path
from typing import Any

import pytest
from imapclient import IMAPClient  # type: ignore[import-untyped]

from holdfast.agents.base import Reply
from holdfast.agents.echo import echo
from holdfast.agents.turn import Turn
from holdfast.channels.email import factory
from holdfast.channels.email.access import Limits, access_of
from holdfast.channels.watermark import Watermarks
from holdfast.settings import Settings
from holdfast.settings.channels import Channels
from holdfast.settings.channels.email import Email
from holdfast.store import open_store
from holdfast.testing.mail import VALIDITY, Inbox, MailServer
from tests.channels.crashes import process, without_grace
from tests.channels.doomed import AFTER_POST
from tests.channels.mail_fixtures import QUICK, Mail, server, text
from tests.channels.platforms import undelivered
from tests.steps import both_engines, finished, quick_harness, running, until

__all__ = ["server"]

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="Dovecot and Postfix have to be started by root"
)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    return getattr(request, "param", "sqlite")


@pytest.fixture
def mail(server: MailServer, monkeypatch: pytest.MonkeyPatch) -> Mail:
    found = Mail(server)
    found.set_environment(monkeypatch)
    return found


def limit(monkeypatch: pytest.MonkeyPatch, limits: Limits) -> None:
    """Run all mailboxes within these limits."""
    monkeypatch.setattr(
        factory, "access_of", lambda *given: replace(access_of(*given), limits=limits)
    )


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, database=database_url, pairing="open")


async def test_a_thread_is_one_conversation_and_is_answered_in_it(
    settings: Settings, mail: Mail
) -> None:
    conversations: list[str] = []

    async def answer(turn: Turn) -> str:
        conversations.append(turn.conversation)
        return f"you said {turn.text}"

    app = quick_harness(answer)
    async with running(app, settings):
        first = await mail.write("hello")
        [reply] = await mail.answers()
        ours = str(reply["Message-ID"]).strip()
        # Some programs name only the message that they answer.
        await mail.write("more\n\nOn Monday, bot wrote:\n> you said hello", In_Reply_To=ours)
        await mail.answers(2)
        await mail.write("and more", References=f"{first} {ours}", In_Reply_To=ours)
        replies = await mail.answers(3)
        await mail.write("something else")
        await mail.answers(4)
    assert reply["Subject"] == "Re: a question"
    assert reply["In-Reply-To"] == first
    assert reply["Auto-Submitted"] == "auto-replied"
    assert [text(one) for one in replies] == [
        "you said hello",
        "you said more",
        "you said and more",
    ]
    assert replies[2]["References"].split()[:2] == [first, ours]
    assert len(set(conversations[:3])) == 1
    assert conversations[3] != conversations[0]
    [sent] = [
        one
        for one in await asyncio.to_thread(mail.server.read, mail.bot, "Sent")
        if one["In-Reply-To"] == first
    ]
    assert sent["Message-ID"] == reply["Message-ID"]


@pytest.mark.parametrize(("prefix", "name"), [("my_", "short"), ("", "long" * 60)])
async def test_an_answer_names_its_message_whatever_the_address_and_the_id(
    settings: Settings, mail: Mail, monkeypatch: pytest.MonkeyPatch, prefix: str, name: str
) -> None:
    mail.bot = f"{prefix}{mail.bot}"
    mail.set_environment(monkeypatch)
    async with running(quick_harness(echo), settings):
        first = await mail.write("hello", Message_ID=f"<{name}.{mail.ada}@example.test>")
        [reply] = await mail.answers()
    assert reply["Subject"] == "Re: a question"
    assert reply["In-Reply-To"].strip() == reply["References"].strip() == first


async def test_a_message_that_cannot_be_parsed_holds_up_no_other(
    settings: Settings, mail: Mail, caplog: pytest.LogCaptureFixture
) -> None:
    broken = mail.letter("hello", Subject="broken")
    broken.add_attachment("file")
    # Parts without a boundary, at which the standard library fails.
    next(broken.iter_parts()).replace_header("Content-Type", "multipart/related")
    async with running(quick_harness(echo), settings):
        await mail.send(broken)
        await mail.write("next")
        replies = await mail.answers(2)
    # Of the first one, the headers are readable.
    assert [text(one) for one in replies] == ["you said broken", "you said next"]
    assert str(broken["Message-ID"]) in caplog.text


async def test_automatic_mail_is_ignored_and_a_message_counts_once(
    settings: Settings, mail: Mail
) -> None:
    app = quick_harness(echo)
    async with running(app, settings):
        await mail.write("I am away", Auto_Submitted="auto-replied")
        await mail.write("news", Precedence="bulk")
        await mail.write("a list", List_Id="<list.example.test>")
        await mail.send(mail.server.letter(mail.bot, mail.bot, "from myself"))
        await mail.send(mail.server.letter("mailer-daemon", mail.bot, "undeliverable"))
        letter = mail.letter("hello")
        await mail.send(letter)
        await mail.send(letter)
        await mail.write("last")
        replies = await mail.answers(2)
        stored = await finished(app.store, count=2, queue="inbox")
    assert sorted(text(one) for one in replies) == ["you said hello", "you said last"]
    assert all(str(event.message_id).startswith("email_bot") for event in stored)


async def test_mail_that_came_while_no_process_ran_is_answered_at_the_next_start(
    settings: Settings, mail: Mail
) -> None:
    await mail.write("before the first start")
    await mail.received(mail.bot, 1)
    async with running(quick_harness(echo), settings):
        pass
    for number in range(3):
        await mail.write(str(number))
    await mail.received(mail.bot, 4)
    app = quick_harness(echo)
    async with running(app, settings):
        replies = await mail.answers(3)
        gap = await Watermarks(app.store, "email").last_gap()
    assert sorted(text(one) for one in replies) == [f"you said {number}" for number in range(3)]
    assert gap is not None
    assert gap.messages == 3


@pytest.mark.parametrize("skips", [True, False])
async def test_what_a_person_has_answered_meanwhile_is_left_out_where_the_settings_say_so(
    settings: Settings, mail: Mail, skips: bool
) -> None:
    channels = Channels(email=(Email(skip_answered=skips),))
    async with running(quick_harness(echo), settings, channels=channels):
        pass
    replied = await mail.write("replied to")
    await mail.write("marked")
    await mail.write("open")
    eve = mail.server.letter(f"eve{mail.ada}", mail.bot, "I know", References=replied)
    await mail.send(eve)
    away = mail.server.letter(f"eve{mail.ada}", mail.bot, "away", Auto_Submitted="auto-replied")
    await mail.send(away)
    await mail.received(mail.bot, 5)
    await asyncio.to_thread(mail.server.mark_answered, mail.bot, "marked")
    async with running(quick_harness(echo), settings, channels=channels):
        replies = await mail.answers(1 if skips else 3)
        # The reply itself is a message to the bot like any other.
        await mail.received(f"eve{mail.ada}", 1)
    wanted = {"open"} if skips else {"replied to", "marked", "open"}
    assert {text(one) for one in replies} == {f"you said {one}" for one in wanted}


async def test_a_folder_that_was_replaced_is_read_again_and_known_messages_count_once(
    settings: Settings, mail: Mail
) -> None:
    async with running(quick_harness(echo), settings):
        await mail.write("known")
        await mail.answers()
    await mail.write("missed")
    await mail.received(mail.bot, 2)
    await asyncio.to_thread(mail.server.change_validity, mail.bot)
    app = quick_harness(echo)

    async def has_moved() -> bool:
        position = await Watermarks(app.store, "email").read(mail.folder)
        return position == f"{VALIDITY}:3"

    async with running(app, settings):
        await mail.answers(2)
        # Positions of the new folder count from now on.
        await mail.write("new")
        replies = await mail.answers(3)
        stored = await finished(app.store, count=3, queue="inbox")
        await until(has_moved)
    assert [text(one) for one in replies] == [f"you said {t}" for t in ("known", "missed", "new")]
    assert len({event.message_id for event in stored}) == 3


async def test_each_of_several_mailboxes_answers_from_its_own_address(
    settings: Settings, mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = f"second-{mail.bot}"
    monkeypatch.setenv("SECOND_IMAP_URL", mail.server.imap_url(second))
    monkeypatch.setenv("SECOND_ADDRESS", mail.server.address(second))
    tables = (
        Email(),
        Email(imap_url_variable="SECOND_IMAP_URL", address_variable="SECOND_ADDRESS"),
    )
    app = quick_harness(echo)
    async with running(app, settings, channels=Channels(email=tables)):
        letter = mail.letter("both")
        await mail.send(letter)
        # The same message to both is two messages, one for each mailbox.
        letter.replace_header("To", mail.server.address(second))
        await mail.send(letter)
        replies = await mail.answers(2)
        lines = await app.channels["email"].check()
    senders = {parseaddr(str(reply["From"]))[1] for reply in replies}
    assert senders == {mail.server.address(mail.bot), mail.server.address(second)}
    assert [line.name for line in lines][::3] == [
        f"E-mail in ({mail.server.address(name)})" for name in (mail.bot, second)
    ]
    for name in (mail.bot, second):
        [kept] = await asyncio.to_thread(mail.server.read, name, "Sent")
        assert parseaddr(str(kept["From"]))[1] == mail.server.address(name)


async def test_a_mailbox_that_is_refused_stops_no_other(
    settings: Settings, mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = f"second-{mail.bot}"
    monkeypatch.setenv("SECOND_IMAP_URL", mail.server.imap_url(second, "wrong"))
    monkeypatch.setenv("SECOND_ADDRESS", mail.server.address(second))
    tables = (
        Email(),
        Email(imap_url_variable="SECOND_IMAP_URL", address_variable="SECOND_ADDRESS"),
    )
    app = quick_harness(echo)
    async with running(app, settings, channels=Channels(email=tables)):
        [problem] = await until(lambda: app.channels["email"].problems)
        await mail.write("hello")
        assert [text(one) for one in await mail.answers()] == ["you said hello"]
    assert problem.startswith("SECOND_IMAP_URL: the server refuses the login")


async def test_a_server_that_was_restarted_is_found_again(
    settings: Settings, mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, QUICK)
    async with running(quick_harness(echo), settings):
        await asyncio.to_thread(mail.server.stop_imap)
        await asyncio.to_thread(mail.server.start_imap)
        await mail.write("hello")
        assert [text(one) for one in await mail.answers()] == ["you said hello"]


async def test_a_refused_login_is_a_problem_that_ends_nothing(
    settings: Settings, mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMAIL_IMAP_URL", mail.server.imap_url(mail.bot, "wrong"))
    app = quick_harness(echo)
    async with running(app, settings):
        [problem] = await until(lambda: app.channels["email"].problems)
        states = [line.state for line in await app.channels["email"].check()]
    assert problem.startswith("EMAIL_IMAP_URL: the server refuses the login")
    assert "wrong" not in problem
    assert states == ["fail", "ok", "warn"]


async def test_a_refused_recipient_is_a_dead_letter_with_the_code_of_the_server(
    settings: Settings, mail: Mail
) -> None:
    app = quick_harness(echo)
    async with running(app, settings):
        await mail.send(mail.server.letter("gone", mail.bot, "hello"))
        [ended] = await finished(app.store, queue="outbox")
        assert await undelivered(app) == [("dead", "554")]
    assert (ended.last_error or "").startswith("554 ")


async def test_files_come_in_and_go_out(settings: Settings, mail: Mail) -> None:
    (settings.home / "files").mkdir()
    (settings.home / "files" / "out.txt").write_text("out")
    contents: list[bytes] = []

    async def answer(turn: Turn) -> Reply:
        contents.extend(path.read_bytes() for path in await turn.files())
        return Reply("here", files=("out.txt",))

    letter = mail.letter("files")
    letter.add_attachment(b"in", maintype="text", subtype="plain", filename="../in.txt")
    async with running(quick_harness(answer), settings):
        await mail.send(letter)
        [reply] = await mail.answers()
    assert contents == [b"in"]
    assert text(reply) == "here"
    [file] = reply.iter_attachments()
    assert (file.get_filename(), file.get_content()) == ("out.txt", "out")


async def test_a_stranger_gets_a_code_once_and_is_not_answered(
    settings: Settings, mail: Mail
) -> None:
    app = quick_harness(echo)
    async with running(app, settings, pairing="code"):
        await mail.write("let me in")
        [notice] = await mail.answers()
        await mail.write("please")
        await finished(app.store, queue="outbox")
        assert await app.store.counts() == []
    assert "holdfast pairing approve" in text(notice)


async def test_a_server_that_asks_to_wait_gets_the_answer_later_and_no_attempt_is_used(
    settings: Settings, mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = replace(QUICK, busy_delay=timedelta(milliseconds=100))
    limit(monkeypatch, soon)
    app = quick_harness(echo)
    async with running(app, settings):
        with mail.server.deferring(mail.ada):
            await mail.write("hello")
            await until(lambda: mail.server.deferrals(mail.ada) > 1)
            assert await undelivered(app) == []
        [reply] = await mail.answers()
        [ended] = await finished(app.store, queue="outbox")
    assert text(reply) == "you said hello"
    assert (ended.outcome, ended.attempts) == ("completed", 1)


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [({"gap_messages": 2}, ["1", "2"]), ({"gap_age": timedelta(0)}, [])],
)
async def test_a_gap_brings_no_more_than_its_limits_of_number_and_age(
    settings: Settings,
    mail: Mail,
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, Any],
    wanted: list[str],
) -> None:
    async with running(quick_harness(echo), settings):
        pass
    for number in range(3):
        await mail.write(str(number))
        await mail.received(mail.bot, number + 1)
    limit(monkeypatch, replace(QUICK, **limits))
    app = quick_harness(echo)
    async with running(app, settings):
        gap = await until(lambda: Watermarks(app.store, "email").last_gap())
        if wanted:
            await mail.answers(len(wanted))
    found = await asyncio.to_thread(mail.server.read, mail.ada)
    # Each mail is a conversation of its own, so their answers come in any order.
    assert sorted(text(one) for one in found) == [f"you said {number}" for number in wanted]
    assert gap.messages == len(wanted)


@both_engines
async def test_a_process_that_dies_after_sending_leaves_exactly_one_message(
    database_url: str, tmp_path: Path, mail: Mail
) -> None:
    without_grace(database_url)
    async with process("email", database_url, tmp_path, AFTER_POST) as doomed:
        await mail.write("echo hello")
        assert await doomed.death() == -signal.SIGKILL
    async with process("email", database_url, tmp_path), open_store(database_url) as store:
        await finished(store, queue="outbox")
    assert [text(one) for one in await mail.answers()] == ["hello"]


async def test_a_message_that_comes_while_idle_begins_is_answered_soon(
    settings: Settings, mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter, idle = mail.letter("hello"), IMAPClient.idle

    def idle_late(client: IMAPClient) -> None:
        """Begin to wait after a message has come of which the channel does not know."""
        monkeypatch.setattr(IMAPClient, "idle", idle)
        mail.server.send(letter)
        while not Inbox(mail.server, mail.bot).read():
            time.sleep(0.01)
        idle(client)

    monkeypatch.setattr(IMAPClient, "idle", idle_late)
    async with running(quick_harness(echo), settings):
        # Dovecot itself looks again after 30 seconds only.
        assert [text(one) for one in await mail.answers()] == ["you said hello"]

"""ChannelContract: the tests that every channel must pass, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from holdfast.agents.base import Reply
from holdfast.agents.echo import echo
from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.channels.base import Channel, Put
from holdfast.channels.split import FENCE
from holdfast.errors import StoreUnavailable
from holdfast.queue.event import INBOX, OUTBOX, Event, NewEvent
from holdfast.queue.store import Filter
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.pairing import open_pairings
from holdfast.testing.channels.platform import Platform
from holdfast.testing.harness import finished, quick_harness, running, until

STOPS_WITHIN = 10.0
"""Seconds in which a process with idle channels ends."""

EARLY_SECONDS = 0.2


Test = TypeVar("Test", bound=Callable[..., object])


def platform_only(test: Test) -> Test:
    """Note that a test is about the platform alone, so that one store shows as much as another."""
    test.is_platform_only = True  # type: ignore[attr-defined]
    return test


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
class ChannelContract:
    """Derive from this class, and define the fixture `platform`."""

    @pytest.fixture
    def settings(self, platform: Platform, database_url: str, tmp_path: Path) -> Settings:
        """Settings on a fresh database; the platform has set its variables before."""
        return Settings(home=tmp_path, database=database_url)

    # In

    async def test_a_message_is_acknowledged_only_after_it_is_stored(
        self, platform: Platform, settings: Settings
    ) -> None:
        _require(platform, "can_acknowledge")
        app, stored, may_store = quick_harness(echo), asyncio.Event(), asyncio.Event()
        receive = app.receive

        async def hold(new: NewEvent) -> int | None:
            stored.set()
            await may_store.wait()
            return await receive(new)

        async with _running(app, platform, settings, receive=hold):
            message = await platform.say("hello")
            await stored.wait()
            # A channel that acknowledges too early does so within this time.
            await asyncio.sleep(EARLY_SECONDS)
            assert not await platform.is_acknowledged(message)
            may_store.set()
            assert await platform.visible(1) == ["you said hello"]
            await until(lambda: platform.is_acknowledged(message))

    async def test_a_message_that_could_not_be_stored_comes_again(
        self, platform: Platform, settings: Settings
    ) -> None:
        _require(platform, "can_acknowledge")
        app, failures = quick_harness(echo), 0
        receive = app.receive

        async def fail_once(new: NewEvent) -> int | None:
            nonlocal failures
            failures += 1
            if failures == 1:
                raise StoreUnavailable("the database cannot be reached: it is down on purpose")
            return await receive(new)

        async with _running(app, platform, settings, receive=fail_once):
            await platform.say("hello")
            assert await platform.visible(1) == ["you said hello"]
        assert failures > 1

    async def test_a_message_that_comes_again_is_the_same_message(
        self, platform: Platform, settings: Settings
    ) -> None:
        _require(platform, "can_redeliver")
        async with _running(quick_harness(echo), platform, settings):
            first = await platform.say("one")
            await platform.visible(1)
            await platform.say_again(first)
            await platform.say("two")
            assert await platform.visible(2) == ["you said one", "you said two"]

    async def test_messages_are_answered_in_order(
        self, platform: Platform, settings: Settings
    ) -> None:
        async with _running(quick_harness(echo), platform, settings):
            for number in range(5):
                await platform.say(str(number))
            assert await platform.visible(5) == [f"you said {number}" for number in range(5)]

    @platform_only
    async def test_the_turn_knows_channel_conversation_and_sender(
        self, platform: Platform, settings: Settings
    ) -> None:
        turns: list[tuple[str, str, str | None, str]] = []

        async def answer(turn: Turn) -> str:
            turns.append((turn.channel, turn.conversation, turn.message_id, turn.text))
            return "yes"

        async with _running(quick_harness(answer), platform, settings):
            for text in ("one", "two"):
                await platform.say(text)
            await platform.visible(2)
        assert [text for *_, text in turns] == ["one", "two"]
        assert {channel for channel, *_ in turns} == {platform.name}
        [conversation] = {conversation for _, conversation, _, _ in turns}
        assert conversation.startswith(f"{platform.name}:")
        assert len({message_id for _, _, message_id, _ in turns}) == 2

    async def test_an_edit_counts_until_the_message_is_claimed(
        self, platform: Platform, settings: Settings
    ) -> None:
        _require(platform, "can_edit")
        texts, working, may_end, answer = _slow_agent()
        app = quick_harness(answer)
        async with _running(app, platform, settings):
            await platform.say("first")
            await working.wait()
            second = await platform.say("helo")
            await until(lambda: _has_waiting(app, "helo"))
            await platform.edit(second, "hello")
            await until(lambda: _has_waiting(app, "hello"))
            may_end.set()
            await platform.visible(2)
        assert texts == ["first", "hello"]

    async def test_a_message_that_was_deleted_in_time_is_not_answered(
        self, platform: Platform, settings: Settings
    ) -> None:
        _require(platform, "can_delete")
        texts, working, may_end, answer = _slow_agent()
        app = quick_harness(answer)
        async with _running(app, platform, settings):
            await platform.say("first")
            await working.wait()
            second = await platform.say("nonsense")
            await until(lambda: _has_waiting(app, "nonsense"))
            await platform.delete(second)
            await until(lambda: _has_no_waiting(app, "nonsense"))
            may_end.set()
            await platform.visible(1)
            await platform.say("last")
            await platform.visible(2)
        assert texts == ["first", "last"]

    @platform_only
    async def test_files_of_a_message_reach_the_agent(
        self, platform: Platform, settings: Settings
    ) -> None:
        _require(platform, "can_receive_files")

        async def answer(turn: Turn) -> str:
            return " ".join(path.read_text() for path in await turn.files())

        async with _running(quick_harness(answer), platform, settings):
            await platform.send_file("look", "note.txt", b"contents")
            assert await platform.visible(1) == ["contents"]

    @platform_only
    async def test_a_file_that_is_too_large_is_left_out_and_the_message_is_answered(
        self, platform: Platform, settings: Settings
    ) -> None:
        _require(platform, "can_receive_files")
        if platform.largest_file is None:
            pytest.skip("the platform does not say which files are too large")

        async def answer(turn: Turn) -> str:
            return f"{len(await turn.files())} files"

        async with _running(quick_harness(answer), platform, settings):
            await platform.send_file("look", "huge.txt", b"x" * (platform.largest_file + 1))
            assert await platform.visible(1) == ["0 files"]

    # Other people

    async def test_a_stranger_gets_a_code_once_and_is_answered_after_the_approval(
        self, platform: Platform, settings: Settings
    ) -> None:
        _require(platform, "has_strangers")
        app = quick_harness(echo)
        async with _running(app, platform, settings):
            for text in ("one", "two"):
                await platform.say_as_stranger(text)
            await until(platform.answers_to_stranger)
            # The answer to a known person comes after everything before it was worked.
            await platform.say("hello")
            await platform.visible(1)
            [notice] = await platform.answers_to_stranger()
            [request] = await open_pairings(app.store).requests()
            assert request.channel == platform.name
            assert request.code is not None
            assert request.code in notice
            await open_pairings(app.store).approve(request.code)
            # Platforms count time in seconds, and only later messages are answered.
            await asyncio.sleep(1.1)
            await platform.say_as_stranger("three")
            await until(lambda: _has_answers_to_stranger(platform, 2))
            assert (await platform.answers_to_stranger())[1:] == ["you said three"]
        texts = {event.text for event in await _messages(settings)}
        assert texts == {"hello", "three"}

    @platform_only
    async def test_in_a_group_only_mentions_are_answered(
        self, platform: Platform, settings: Settings
    ) -> None:
        _require(platform, "has_groups")
        await self._is_ignored(platform, settings, platform.say_unaddressed)

    @platform_only
    async def test_other_bots_are_ignored(self, platform: Platform, settings: Settings) -> None:
        _require(platform, "has_bots")
        await self._is_ignored(platform, settings, platform.say_as_bot)

    async def _is_ignored(self, platform: Platform, settings: Settings, say: Any) -> None:
        app = quick_harness(echo)
        async with _running(app, platform, settings):
            await say("psst")
            await platform.say("hello")
            assert await platform.visible(1) == ["you said hello"]
        assert [event.text for event in await _messages(settings)] == ["hello"]

    # Out

    @platform_only
    async def test_a_long_answer_is_split_at_the_limit_and_code_blocks_stay_whole(
        self, platform: Platform, settings: Settings
    ) -> None:
        lines = [f"{number:05} {'x' * 50}" for number in range(platform.limit // 20)]
        text = "\n".join([f"{FENCE}python", *lines, FENCE])

        async def answer(turn: Turn) -> str:
            return text

        async with _running(quick_harness(answer), platform, settings):
            await platform.say("go on")
            await until(lambda: _contains(platform, lines[-1]))
            parts = await platform.answers()
        seen = [line for part in parts for line in part.splitlines() if line.endswith("x")]
        assert [line.strip() for line in seen] == lines
        if platform.is_pushed:
            assert len(parts) > 1
            assert max(map(len, parts)) <= platform.limit
            assert all(part.count(FENCE) in (0, 2) for part in parts)

    @platform_only
    async def test_files_go_with_the_answer(self, platform: Platform, settings: Settings) -> None:
        _require(platform, "can_send_files")
        settings.files.mkdir()
        (settings.files / "a.txt").write_text("contents")

        async def answer(turn: Turn) -> Reply:
            return Reply("here", files=("a.txt",))

        async with _running(quick_harness(answer), platform, settings):
            await platform.say("file")
            assert (await platform.visible(1))[0] == "here"
            files = await until(platform.files)
        assert files == {"a.txt": b"contents"}

    @platform_only
    async def test_a_person_sees_that_an_agent_works(
        self, platform: Platform, settings: Settings
    ) -> None:
        _require(platform, "can_show_typing")

        async def answer(turn: Turn) -> str:
            await until(platform.was_typing)
            return "done"

        async with _running(quick_harness(answer), platform, settings):
            await platform.say("work")
            assert await platform.visible(1) == ["done"]

    @platform_only
    async def test_an_answer_grows_in_one_message(
        self, platform: Platform, settings: Settings
    ) -> None:
        _require(platform, "can_show_growth")

        async def answer(turn: Turn) -> None:
            await turn.write("Once upon a time ")
            await until(platform.answers)
            await turn.write("there was a queue.")

        app = quick_harness(answer)
        async with _running(app, platform, settings):
            await platform.say("tell me")
            await finished(app.store, queue=OUTBOX)
            assert await platform.answers() == ["Once upon a time there was a queue."]

    @platform_only
    async def test_a_rate_limit_is_obeyed_and_uses_no_attempt(
        self, platform: Platform, settings: Settings
    ) -> None:
        _require(platform, "can_limit")
        app = quick_harness(echo)
        async with _running(app, platform, settings):
            await platform.limit_next(1)
            asked_at = time.monotonic()
            await platform.say("hello")
            assert await platform.visible(1) == ["you said hello"]
            assert time.monotonic() - asked_at >= 1
            [ended] = await finished(app.store, queue=OUTBOX)
        assert ended.attempts == 1

    @platform_only
    async def test_a_permanent_refusal_is_a_dead_letter_with_the_code_of_the_platform(
        self, platform: Platform, settings: Settings
    ) -> None:
        _require(platform, "can_refuse")
        app = quick_harness(echo)
        async with _running(app, platform, settings):
            code = await platform.refuse_next()
            await platform.say("hello")
            await finished(app.store, queue=OUTBOX)
            [letter] = await app.store.dead(Filter(queue=OUTBOX))
            assert (letter.outcome, letter.error_class) == ("dead", code)
            assert str(letter.last_error).split()[0] == code
            await platform.say("again")
            assert await platform.visible(1) == ["you said again"]

    @platform_only
    async def test_a_send_of_unknown_end_is_looked_up_and_not_repeated(
        self, platform: Platform, settings: Settings
    ) -> None:
        _require(platform, "can_look_up")
        app = quick_harness(echo)
        async with _running(app, platform, settings):
            await platform.lose_next_answer()
            await platform.say("hello")
            await finished(app.store, queue=OUTBOX)
            await platform.say("again")
            assert await platform.visible(2) == ["you said hello", "you said again"]

    # The connection

    @platform_only
    async def test_a_broken_connection_is_opened_again(
        self, platform: Platform, settings: Settings
    ) -> None:
        _require(platform, "can_disconnect")
        async with _running(quick_harness(echo), platform, settings):
            await platform.say("one")
            await platform.visible(1)
            await platform.disconnect()
            await platform.say("two")
            assert await platform.visible(2) == ["you said one", "you said two"]

    @platform_only
    async def test_a_platform_out_of_reach_is_named_until_it_is_back(
        self, platform: Platform, settings: Settings
    ) -> None:
        _require(platform, "can_go_away")
        app = quick_harness(echo)
        async with _running(app, platform, settings):
            await platform.say("one")
            await platform.visible(1)
            channel = app.channels[platform.name]
            assert list(channel.problems) == []
            await platform.go_away()
            await until(lambda: list(channel.problems))
            await platform.come_back()
            await until(lambda: not channel.problems)
            await platform.say("two")
            assert await platform.visible(2) == ["you said one", "you said two"]

    @platform_only
    async def test_refused_credentials_are_named_and_other_channels_go_on(
        self, platform: Platform, settings: Settings, caplog: pytest.LogCaptureFixture
    ) -> None:
        _require(platform, "can_revoke")
        await platform.revoke_token()
        app = quick_harness(echo)
        app.add_channel(_Silent())
        async with _running(app, platform, settings):
            channel = app.channels[platform.name]
            [problem, *_] = await until(lambda: list(channel.problems))
            await until(lambda: problem in caplog.text)
            await app.put("hello", sender_id="ada")
            [response] = await until(lambda: app.responses("api"))
            assert response.event["message"] == "you said hello"
            assert "fail" in [line.state for line in await channel.check()]

    async def test_a_stop_loses_nothing_and_ends_soon(
        self, platform: Platform, settings: Settings
    ) -> None:
        working = asyncio.Event()

        async def answer(turn: Turn) -> str:
            working.set()
            await asyncio.sleep(0.05)
            return f"you said {turn.text}"

        async with _running(quick_harness(answer), platform, settings):
            for number in range(3):
                await platform.say(str(number))
            await working.wait()
            stopped_at = time.monotonic()
        assert time.monotonic() - stopped_at < STOPS_WITHIN
        async with _running(quick_harness(answer), platform, settings):
            assert await platform.visible(3) == [f"you said {number}" for number in range(3)]


class _Silent(Channel):
    """Another channel of the same process."""

    name = "silent"

    async def run(self, put: Put) -> None:
        return

    async def send(self, response: Event) -> None:
        return


@asynccontextmanager
async def _running(
    app: AgentHarness, platform: Platform, settings: Settings, receive: Put | None = None
) -> AsyncIterator[None]:
    """Run an app with the channel; `receive` replaces the way in which it stores messages."""
    if receive is not None:
        app.receive = receive  # type: ignore[method-assign, assignment]
    app.settings = settings
    platform.prepare(app)
    async with running(app, settings):
        yield


def _require(platform: Platform, flag: str) -> None:
    if not getattr(platform, flag):
        pytest.skip(f"{platform.name}: {flag} is False")


SlowAgent = Callable[[Turn], Awaitable[str]]


def _slow_agent() -> tuple[list[str], asyncio.Event, asyncio.Event, SlowAgent]:
    """Return an agent whose first turn waits: its texts, its start, and what lets it end."""
    texts: list[str] = []
    working, may_end = asyncio.Event(), asyncio.Event()

    async def answer(turn: Turn) -> str:
        texts.append(turn.text)
        working.set()
        await may_end.wait()
        return f"you said {turn.text}"

    return texts, working, may_end, answer


async def _has_waiting(app: AgentHarness, text: str) -> bool:
    # Messages that name no agent wait for the default one under no name.
    return any(event.text == text for event in await app.store.waiting(INBOX, ""))


async def _has_no_waiting(app: AgentHarness, text: str) -> bool:
    return not await _has_waiting(app, text)


async def _contains(platform: Platform, text: str) -> bool:
    return any(text in answer for answer in await platform.answers())


async def _has_answers_to_stranger(platform: Platform, count: int) -> bool:
    return len(await platform.answers_to_stranger()) >= count


async def _messages(settings: Settings) -> list[Event]:
    """Return all messages that were ever stored."""
    async with open_store(settings.database) as store:
        return await store.recent(INBOX, limit=100)

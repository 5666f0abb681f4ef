"""ChannelContract: the tests that every channel must pass, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from holdfast.agents.base import Reply
from holdfast.agents.echo import echo
from holdfast.agents.turn import Turn
from holdfast.channels.split import FENCE
from holdfast.errors import StoreUnavailable
from holdfast.queue.event import OUTBOX, NewEvent
from holdfast.queue.store import Filter
from holdfast.settings import Settings
from holdfast.store.pairing import open_pairings
from holdfast.testing.channels.platform import Platform
from holdfast.testing.channels.steps import (
    Silent,
    contains,
    has_answers_to_stranger,
    has_no_waiting,
    has_waiting,
    readyz,
    require,
    running_on,
    shorten_waits,
    slow_agent,
    stored_messages,
    write_huge_file,
)
from holdfast.testing.harness import finished, quick_harness, until

STOPS_WITHIN = 10.0
"""Seconds in which a process with idle channels ends."""

EARLY_SECONDS = 0.2

Test = TypeVar("Test", bound=Callable[..., object])


def platform_only(test: Test) -> Test:
    """Mark a test that concerns only the platform, so that one store is enough for it."""
    test.is_platform_only = True  # type: ignore[attr-defined]
    return test


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
class ChannelContract:
    """Derive from this class, and define the fixture `platform`."""

    @pytest.fixture
    def settings(self, platform: Platform, database_url: str, tmp_path: Path) -> Settings:
        """Settings on a fresh database; the platform has set its variables before."""
        return Settings(home=tmp_path, database=database_url)

    async def test_a_message_is_acknowledged_only_after_it_is_stored(
        self, platform: Platform, settings: Settings
    ) -> None:
        require(platform, "can_acknowledge")
        app, stored, may_store = quick_harness(echo), asyncio.Event(), asyncio.Event()
        receive = app.receive

        async def hold(new: NewEvent) -> int | None:
            stored.set()
            await may_store.wait()
            return await receive(new)

        async with running_on(app, platform, settings, receive=hold):
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
        require(platform, "can_acknowledge")
        app, failures = quick_harness(echo), 0
        receive = app.receive

        async def fail_once(new: NewEvent) -> int | None:
            nonlocal failures
            failures += 1
            if failures == 1:
                raise StoreUnavailable("the database cannot be reached: it is down on purpose")
            return await receive(new)

        async with running_on(app, platform, settings, receive=fail_once):
            await platform.say("hello")
            assert await platform.visible(1) == ["you said hello"]
        assert failures > 1

    async def test_a_message_that_comes_again_is_the_same_message(
        self, platform: Platform, settings: Settings
    ) -> None:
        require(platform, "can_redeliver")
        async with running_on(quick_harness(echo), platform, settings):
            first = await platform.say("one")
            await platform.visible(1)
            await platform.say_again(first)
            await platform.say("two")
            assert await platform.visible(2) == ["you said one", "you said two"]

    async def test_messages_are_answered_in_order(
        self, platform: Platform, settings: Settings
    ) -> None:
        async with running_on(quick_harness(echo), platform, settings):
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

        async with running_on(quick_harness(answer), platform, settings):
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
        require(platform, "can_edit")
        texts, working, may_end, answer = slow_agent()
        app = quick_harness(answer)
        async with running_on(app, platform, settings):
            await platform.say("first")
            await working.wait()
            second = await platform.say("helo")
            await until(lambda: has_waiting(app, "helo"))
            await platform.edit(second, "hello")
            await until(lambda: has_waiting(app, "hello"))
            may_end.set()
            await platform.visible(2)
        assert texts == ["first", "hello"]

    async def test_a_message_that_was_deleted_in_time_is_not_answered(
        self, platform: Platform, settings: Settings
    ) -> None:
        require(platform, "can_delete")
        texts, working, may_end, answer = slow_agent()
        app = quick_harness(answer)
        async with running_on(app, platform, settings):
            await platform.say("first")
            await working.wait()
            second = await platform.say("nonsense")
            await until(lambda: has_waiting(app, "nonsense"))
            await platform.delete(second)
            await until(lambda: has_no_waiting(app, "nonsense"))
            may_end.set()
            await platform.visible(1)
            await platform.say("last")
            await platform.visible(2)
        assert texts == ["first", "last"]

    @platform_only
    async def test_files_of_a_message_reach_the_agent(
        self, platform: Platform, settings: Settings
    ) -> None:
        require(platform, "can_receive_files")

        async def answer(turn: Turn) -> str:
            return " ".join(path.read_text() for path in await turn.files())

        async with running_on(quick_harness(answer), platform, settings):
            await platform.send_file("look", "note.txt", b"contents")
            assert await platform.visible(1) == ["contents"]

    @platform_only
    async def test_a_file_that_is_too_large_is_left_out_and_the_message_is_answered(
        self, platform: Platform, settings: Settings
    ) -> None:
        require(platform, "largest_file")
        content = b"x" * ((platform.largest_file or 0) + 1)

        async def answer(turn: Turn) -> str:
            return f"{len(await turn.files())} files"

        async with running_on(quick_harness(answer), platform, settings):
            await platform.send_file("look", "huge.txt", content)
            assert await platform.visible(1) == ["0 files"]

    async def test_a_stranger_gets_a_code_once_and_is_answered_after_the_approval(
        self, platform: Platform, settings: Settings
    ) -> None:
        require(platform, "has_strangers")
        app = quick_harness(echo)
        async with running_on(app, platform, settings):
            for text in ("one", "two"):
                await platform.say_as_stranger(text)
            await until(platform.answers_to_stranger)
            # Once a known person is answered, everything before has been handled.
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
            await until(lambda: has_answers_to_stranger(platform, 2))
            assert (await platform.answers_to_stranger())[1:] == ["you said three"]
        texts = {event.text for event in await stored_messages(settings)}
        assert texts == {"hello", "three"}

    @platform_only
    async def test_in_a_group_only_mentions_are_answered(
        self, platform: Platform, settings: Settings
    ) -> None:
        require(platform, "has_groups")
        await self._is_ignored(platform, settings, platform.say_unaddressed)

    @platform_only
    async def test_other_bots_are_ignored(self, platform: Platform, settings: Settings) -> None:
        require(platform, "has_bots")
        await self._is_ignored(platform, settings, platform.say_as_bot)

    async def _is_ignored(self, platform: Platform, settings: Settings, say: Any) -> None:
        app = quick_harness(echo)
        async with running_on(app, platform, settings):
            await say("psst")
            await platform.say("hello")
            assert await platform.visible(1) == ["you said hello"]
        assert [event.text for event in await stored_messages(settings)] == ["hello"]

    @platform_only
    async def test_a_long_answer_is_split_at_the_limit_and_code_blocks_stay_whole(
        self, platform: Platform, settings: Settings
    ) -> None:
        lines = [f"{number:05} {'x' * 50}" for number in range(platform.limit // 20)]
        text = "\n".join([f"{FENCE}python", *lines, FENCE])

        async def answer(turn: Turn) -> str:
            return text

        async with running_on(quick_harness(answer), platform, settings):
            await platform.say("go on")
            await until(lambda: contains(platform, lines[-1]))
            parts = await platform.answers()
        seen = [line for part in parts for line in part.splitlines() if line.endswith("x")]
        assert [line.strip() for line in seen] == lines
        if platform.is_pushed:
            assert len(parts) > 1
            assert max(map(len, parts)) <= platform.limit
            assert all(part.count(FENCE) in (0, 2) for part in parts)

    @platform_only
    async def test_files_go_with_the_answer(self, platform: Platform, settings: Settings) -> None:
        require(platform, "can_send_files")
        settings.files.mkdir()
        (settings.files / "a.txt").write_text("contents")

        async def answer(turn: Turn) -> Reply:
            return Reply("here", files=("a.txt",))

        async with running_on(quick_harness(answer), platform, settings):
            await platform.say("file")
            assert (await platform.visible(1))[0] == "here"
            files = await until(platform.files)
        assert files == {"a.txt": b"contents"}

    @platform_only
    async def test_a_file_that_is_too_large_to_send_is_a_dead_letter_and_the_next_answer_goes_out(
        self, platform: Platform, settings: Settings
    ) -> None:
        require(platform, "largest_upload")
        write_huge_file(settings, "huge.bin", (platform.largest_upload or 0) + 1)

        async def answer(turn: Turn) -> str | Reply:
            return Reply("", files=("huge.bin",)) if turn.text == "file" else "yes"

        app = quick_harness(answer)
        async with running_on(app, platform, settings):
            await platform.say("file")
            [letter] = await until(lambda: app.store.dead(Filter(queue=OUTBOX)))
            assert letter.error_class == "file_too_large"
            assert await platform.files() == {}
            await platform.say("again")
            assert await platform.visible(1) == ["yes"]

    @platform_only
    async def test_a_person_sees_that_an_agent_works(
        self, platform: Platform, settings: Settings
    ) -> None:
        require(platform, "can_show_typing")

        async def answer(turn: Turn) -> str:
            await until(platform.was_typing)
            return "done"

        async with running_on(quick_harness(answer), platform, settings):
            await platform.say("work")
            assert await platform.visible(1) == ["done"]

    @platform_only
    async def test_an_answer_grows_in_one_message(
        self, platform: Platform, settings: Settings
    ) -> None:
        require(platform, "can_show_growth")

        async def answer(turn: Turn) -> None:
            await turn.write("Once upon a time ")
            await until(platform.answers)
            await turn.write("there was a queue.")

        app = quick_harness(answer)
        async with running_on(app, platform, settings):
            await platform.say("tell me")
            await finished(app.store, queue=OUTBOX)
            assert await platform.answers() == ["Once upon a time there was a queue."]

    @platform_only
    async def test_a_rate_limit_is_obeyed_and_uses_no_attempt(
        self, platform: Platform, settings: Settings
    ) -> None:
        require(platform, "can_limit")
        app = quick_harness(echo)
        async with running_on(app, platform, settings):
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
        require(platform, "can_refuse")
        app = quick_harness(echo)
        async with running_on(app, platform, settings):
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
        require(platform, "can_look_up")
        app = quick_harness(echo)
        async with running_on(app, platform, settings):
            await platform.lose_next_answer()
            await platform.say("hello")
            await finished(app.store, queue=OUTBOX)
            await platform.say("again")
            assert await platform.visible(2) == ["you said hello", "you said again"]

    @platform_only
    async def test_a_broken_connection_is_opened_again(
        self, platform: Platform, settings: Settings
    ) -> None:
        require(platform, "can_disconnect")
        async with running_on(quick_harness(echo), platform, settings):
            await platform.say("one")
            await platform.visible(1)
            await platform.disconnect()
            await platform.say("two")
            assert await platform.visible(2) == ["you said one", "you said two"]

    @platform_only
    async def test_a_platform_out_of_reach_is_named_until_it_is_back(
        self, platform: Platform, settings: Settings
    ) -> None:
        require(platform, "can_go_away")
        app = quick_harness(echo)
        async with running_on(app, platform, settings):
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
    async def test_each_failed_try_to_reach_the_platform_makes_the_next_one_wait_longer(
        self, platform: Platform, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        require(platform, "can_go_away")
        failures = shorten_waits(monkeypatch)
        async with running_on(quick_harness(echo), platform, settings):
            for outage in (1, 2):
                await platform.say("hello")
                await platform.visible(outage)
                failures.clear()
                await platform.go_away()
                await until(lambda: {1, 2, 3} <= {*failures})
                await platform.come_back()

    @platform_only
    async def test_refused_credentials_are_named_and_other_channels_go_on(
        self, platform: Platform, settings: Settings, caplog: pytest.LogCaptureFixture
    ) -> None:
        require(platform, "can_revoke")
        await platform.revoke_token()
        app = quick_harness(echo)
        app.add_channel(Silent())
        async with running_on(app, platform, settings):
            channel = app.channels[platform.name]
            [problem, *_] = await until(lambda: list(channel.problems))
            await until(lambda: problem in caplog.text)
            status, answer = await readyz(app)
            assert (status, answer["status"]) == (200, "ready")
            assert problem in answer[platform.name]
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

        async with running_on(quick_harness(answer), platform, settings):
            for number in range(3):
                await platform.say(str(number))
            await working.wait()
            stopped_at = time.monotonic()
        assert time.monotonic() - stopped_at < STOPS_WITHIN
        async with running_on(quick_harness(answer), platform, settings):
            assert await platform.visible(3) == [f"you said {number}" for number in range(3)]

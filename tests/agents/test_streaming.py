"""The text of an answer is kept while it grows, and a reader never sees parts of two attempts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import AgentHarness, LeaseLost, Reply, StepError, Turn
from holdfast.agents.base import Answer
from holdfast.agents.stream import FLUSH_EVERY
from holdfast.api import feed
from holdfast.chat import ChatStore
from holdfast.queue.journal import JournalEntry, Write
from holdfast.queue.outcome import Dead, Done, Retry
from holdfast.testing.clock import Clock
from holdfast.testing.trial import Trial, trial
from tests.agents.trials import Effects, journal_of, outcomes, texts, trial_on
from tests.steps import until

AGAIN = Retry("again", timedelta(0))


async def written(trial: Trial) -> tuple[int, str]:
    """Return the generation and the text that the journal keeps."""
    journal = await journal_of(trial)
    assert journal.length == len(journal.text)
    return journal.generation, journal.text


async def test_what_is_written_is_the_response(store: ChatStore, clock: Clock) -> None:
    async def answer(turn: Turn) -> Answer:
        await turn.write("one, ")
        await turn.write("")
        await turn.write("two")
        return None

    async with trial_on(store, clock, AgentHarness(answer)) as trial:
        assert await trial.ask("hi") == "one, two"
        assert await written(trial) == (1, "one, two")
        [user, reply] = (await store.agent_messages("agent"))[::-1]
        assert (user.content, reply.content) == ("hi", "one, two")


async def test_a_returned_text_is_added_behind_what_was_written(
    store: ChatStore, clock: Clock
) -> None:
    async def answer(turn: Turn) -> Answer:
        await turn.write("one, ")
        return "two" if turn.text == "text" else Reply("three", metadata={"n": 3})

    async with trial_on(store, clock, AgentHarness(answer)) as trial:
        assert await trial.ask("text") == "one, two"
        assert await written(trial) == (1, "one, two")
        assert await trial.ask("reply") == "one, three"
        assert await written(trial) == (1, "one, three")
        assert (await trial.responses())[-1].event["metadata"] == {"n": 3}


async def test_files_of_a_reply_go_with_the_text_that_was_written(
    store: ChatStore, clock: Clock, tmp_path: Path
) -> None:
    (tmp_path / "plan.txt").write_text("the plan")

    async def answer(turn: Turn) -> Answer:
        await turn.write("Here is ")
        return Reply("the plan.", files=("plan.txt",))

    async with trial_on(store, clock, AgentHarness(answer), tmp_path) as trial:
        assert await trial.ask("plan") == "Here is the plan."
        assert await written(trial) == (1, "Here is the plan.")
        [response] = await trial.responses()
        assert [Path(file).name for file in response.event["files"]] == ["plan.txt"]


async def test_an_agent_may_be_an_async_generator(store: ChatStore, clock: Clock) -> None:
    app = AgentHarness()
    ended: list[str] = []

    @app.agent("words")
    async def words(turn: Turn) -> AsyncGenerator[Answer, None]:
        try:
            for word in turn.text.split():
                yield f"{word}."
            if turn.text.startswith("file"):
                yield Reply("bye", metadata={"last": True})
                ended.append("never")
        finally:
            ended.append("closed")

    async with trial_on(store, clock, app) as trial:
        assert await trial.ask("one two") == "one.two."
        assert await trial.ask("file") == "file.bye"
        assert (await trial.responses())[-1].event["metadata"] == {"last": True}
    assert ended == ["closed", "closed"]


async def test_a_generator_that_yields_no_text_is_retried_with_a_clear_error() -> None:
    async def numbers(turn: Turn) -> AsyncGenerator[Any, None]:
        yield "a"
        yield 7

    async with trial(AgentHarness(numbers)) as tried:
        await tried.say("hi")
        [failed] = await outcomes(tried)
    assert isinstance(failed, Retry)
    assert failed.error == "agent 'agent' answered int instead of a text"


@pytest.mark.parametrize("text", [7, None, b"bytes"])
async def test_only_texts_can_be_written(text: Any) -> None:
    async def answer(turn: Turn) -> Answer:
        with pytest.raises(StepError, match=r"turn\.write takes a text, not"):
            await turn.write(text)
        return "fine"

    async with trial(AgentHarness(answer)) as tried:
        assert await tried.ask("hi") == "fine"


async def test_text_of_an_attempt_without_steps_is_replaced(store: ChatStore, clock: Clock) -> None:
    async def answer(turn: Turn) -> Answer:
        await turn.write(f"attempt {turn.attempt}")
        return AGAIN if turn.attempt < 3 else None

    async with trial_on(store, clock, AgentHarness(answer)) as trial:
        await trial.say("hi")
        [turn] = await store.claim("inbox", [""], limit=1, lease=timedelta(minutes=1))
        retry = await trial.app.worker(store, trial.files).handle(turn)
        # Text from before a failure is kept as the partial answer.
        assert (await store.journal(turn.primary.id)).text == "attempt 1"
        await store.settle([(turn, retry)])
        await trial.work()
        assert await texts(trial) == ["attempt 3"]
        assert await written(trial) == (3, "attempt 3")


async def test_text_behind_a_recorded_step_goes_on(store: ChatStore, clock: Clock) -> None:
    effects = Effects()

    async def answer(turn: Turn) -> Answer:
        await turn.write("Looking. ")
        found = await turn.step("look", effects.note, 7)
        await turn.write(f"Found {found}. ")
        if turn.attempt == 1:
            raise ConnectionError("gone")
        await turn.write("Done.")
        return None

    async with trial_on(store, clock, AgentHarness(answer)) as trial:
        await trial.say("hi")
        await trial.work()
        assert await written(trial) == (1, "Looking. Found 7. ")
        clock.tick(hours=1)
        await trial.work()
        assert await texts(trial) == ["Looking. Found 7. Done."]
        assert await written(trial) == (1, "Looking. Found 7. Done.")
    assert effects == [7]


@pytest.mark.parametrize(
    ("second", "generation"),
    [
        ("same, and more", 1),
        ("same", 1),
        ("sam", 2),
        ("other", 2),
        ("same, but other", 2),
        ("", 2),
    ],
)
async def test_a_later_attempt_goes_on_or_replaces_but_never_both(
    second: str, generation: int
) -> None:
    async def answer(turn: Turn) -> Answer:
        await turn.step("look", int)
        if turn.attempt == 1:
            await turn.write("same")
            if second.startswith("same, but"):
                await turn.write(", and")
            return AGAIN
        for letter in second:
            await turn.write(letter)
        return None

    async with trial(AgentHarness(answer)) as tried:
        await tried.say("hi")
        await tried.work()
        assert await texts(tried) == ([second] if second else [])
        assert await written(tried) == (generation, second)


async def test_a_text_that_differs_replaces_the_whole_before_the_turn_ends(
    store: ChatStore, clock: Clock
) -> None:
    effects, seen = Effects(), list[str]()

    async def answer(turn: Turn) -> Answer:
        await turn.step("look", effects.note, 1)
        await _write_now(turn, f"attempt {turn.attempt} says hello")
        seen.append((await store.journal(turn.primary.id)).text)
        return AGAIN if turn.attempt == 1 else None

    async with trial_on(store, clock, AgentHarness(answer)) as trial:
        await trial.ask("hi")
    assert seen == ["attempt 1 says hello", "attempt 2 says hello"]


async def test_text_before_a_wait_goes_on_behind_it(store: ChatStore, clock: Clock) -> None:
    async def answer(turn: Turn) -> Answer:
        await turn.write("Good night. ")
        await turn.sleep("8h")
        await turn.write("Good morning.")
        return None

    async with trial_on(store, clock, AgentHarness(answer)) as trial:
        await trial.say("hi")
        await trial.work()
        assert await written(trial) == (1, "Good night. ")
        clock.tick(hours=8)
        await trial.work()
        assert await texts(trial) == ["Good night. Good morning."]
        assert await written(trial) == (1, "Good night. Good morning.")


async def test_an_unstreamed_answer_replaces_the_text_of_an_earlier_attempt(
    store: ChatStore, clock: Clock
) -> None:
    async def answer(turn: Turn) -> Answer:
        if turn.attempt == 1:
            await turn.write("half an ans")
            return AGAIN
        return "whole answer"

    async with trial_on(store, clock, AgentHarness(answer)) as trial:
        assert await trial.ask("hi") == "whole answer"
        assert await written(trial) == (2, "whole answer")


@pytest.mark.parametrize(
    ("changed", "generation"), [("said. And more", 1), ("SAID", 2), ("said", 1), (None, 2)]
)
async def test_what_hooks_change_is_the_rest_or_a_whole_new_text(
    changed: str | None, generation: int
) -> None:
    async def answer(turn: Turn) -> Answer:
        await _write_now(turn, "said")
        return None

    app = AgentHarness(answer)

    @app.outgoing
    def change(turn: Turn, reply: Reply) -> Any:
        return Done() if changed is None else changed

    async with trial(app) as tried:
        await tried.say("hi")
        await tried.work()
        assert await texts(tried) == ([] if changed is None else [changed])
        assert await written(tried) == (generation, changed or "")


async def test_tags_are_not_shown_and_the_final_text_is_the_response(
    store: ChatStore, clock: Clock
) -> None:
    seen: list[str] = []

    async def lead(turn: Turn) -> Answer:
        for piece in ("I ask. [", "@mate: look", " it up] Wait", " a moment."):
            await _write_now(turn, piece)
            seen.append((await store.journal(turn.primary.id)).text)
        return None

    app = AgentHarness(default="lead")
    app.add("lead", lead)
    app.add("mate", lambda turn: "found")
    app.team("t", agents=["lead", "mate"], leader="lead")
    async with trial_on(store, clock, app) as trial:
        assert await trial.ask("hi") == "I ask. Wait a moment.\n\nfound"
        journal = await journal_of(trial, trial.worked[0][0].primary.id)
    assert seen == ["I ask."] * 4
    assert (journal.generation, journal.text) == (1, "I ask. Wait a moment.")


async def test_flushes_are_coalesced(store: ChatStore, clock: Clock) -> None:
    async def answer(turn: Turn) -> Answer:
        for _ in range(1000):
            await turn.write("word ")
            await asyncio.sleep(0)
        return None

    async with trial_on(store, clock, AgentHarness(answer)) as trial:
        counted = Counting(store)
        await trial.say("hi")
        [turn] = await store.claim("inbox", [""], limit=1, lease=timedelta(minutes=1))
        began = time.monotonic()
        await trial.app.worker(counted, trial.files).handle(turn)
        took = time.monotonic() - began
        assert (await store.journal(turn.primary.id)).text == "word " * 1000
    assert "".join(write.text for write in counted.writes) == "word " * 1000
    assert len(counted.writes) <= took / FLUSH_EVERY.total_seconds() + 2


def test_no_reader_gets_more_than_four_deltas_in_a_second() -> None:
    # Of five deltas, a reader may get the first one late by POLL and the last one at once.
    assert timedelta(seconds=1) <= 4 * FLUSH_EVERY - feed.POLL


class Counting:
    """A store that counts the writes of texts."""

    def __init__(self, store: ChatStore) -> None:
        self._store = store
        self.writes: list[Write] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def record(self, entry: JournalEntry) -> None:
        await self._store.record(entry)
        if entry.write is not None:
            self.writes.append(entry.write)


async def _write_now(turn: Turn, text: str) -> None:
    assert turn.journal is not None
    await turn.write(text)
    await turn.journal.stream.flush()


async def test_a_zombie_cannot_write(store: ChatStore, clock: Clock) -> None:
    async def answer(turn: Turn) -> Answer:
        # Do not write in the background: its lock would make the claim below skip the event.
        await _write_now(turn, f"from {turn.attempt}")
        if turn.attempt == 1:
            clock.tick(minutes=11)
            await tried.work()
            with pytest.raises(LeaseLost):
                await _write_now(turn, "more")
            return Dead("lost")
        return None

    async with trial_on(store, clock, AgentHarness(answer)) as tried:
        await tried.say("hi")
        await tried.work()
        assert await texts(tried) == ["from 2"]
        assert (await written(tried))[1] == "from 2"


async def test_any_text_can_be_written(store: ChatStore, clock: Clock) -> None:
    odd = "nul \x00, half a pair \ud800, 🦀, é, "

    async def answer(turn: Turn) -> Answer:
        await turn.step("look", int)
        for _ in range(3):
            await _write_now(turn, odd)
        return AGAIN if turn.attempt == 1 else None

    async with trial_on(store, clock, AgentHarness(answer)) as trial:
        reply = await trial.ask("hi")
        assert await written(trial) == (1, reply)
    assert reply == "nul \ufffd, half a pair \ufffd, 🦀, é, " * 3


async def test_progress_is_recorded_while_the_agent_works(store: ChatStore, clock: Clock) -> None:
    async def answer(turn: Turn) -> Answer:
        # Callable from any thread.
        await asyncio.to_thread(turn.progress, "reading 3 of 7 files")
        turn.progress()
        return str(await until(lambda: _progress(store)))

    async with trial_on(store, clock, AgentHarness(answer)) as trial:
        assert await trial.ask("hi") == "reading 3 of 7 files"


async def _progress(store: ChatStore) -> str | None:
    return (await store.journal(1)).progress

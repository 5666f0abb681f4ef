"""Steps run once per message: later attempts get what was recorded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from datetime import timedelta

import pytest

from holdfast import AgentHarness, LeaseLost, StepError, Turn
from holdfast.agents.base import Answer
from holdfast.agents.steps import note_usage
from holdfast.agents.turn import current_turn
from holdfast.chat import ChatStore
from holdfast.queue.journal import Step
from holdfast.queue.outcome import Dead, Done, Retry
from holdfast.queue.store import Filter
from holdfast.testing.clock import Clock
from holdfast.testing.trial import trial
from tests.agents.trials import Effects, journal_of, outcomes, texts, trial_on
from tests.steps import until

AGAIN = Retry("again", timedelta(0))


async def test_a_later_attempt_gets_the_recorded_result(store: ChatStore, clock: Clock) -> None:
    effects = Effects()

    async def answer(turn: Turn) -> Answer:
        number = await turn.step("count", effects.note, 7)
        return AGAIN if turn.attempt == 1 else f"counted {number}"

    async with trial_on(store, clock, AgentHarness(answer)) as trial:
        assert await trial.ask("hi") == "counted 7"
        [(key, step)] = (await journal_of(trial)).steps.items()
    assert effects == [7]
    assert (key, step.state, step.attempt, step.result) == ("count", "done", 1, "7")


async def test_a_turn_without_steps_touches_no_journal(store: ChatStore, clock: Clock) -> None:
    async with trial_on(store, clock, AgentHarness(lambda turn: "hello")) as trial:
        assert await trial.ask("hi") == "hello"
        journal = await journal_of(trial)
    assert (journal.steps, journal.generation, journal.text) == ({}, 0, "")


async def test_a_step_that_raised_runs_again_in_the_next_attempt(
    store: ChatStore, clock: Clock
) -> None:
    async def fetch() -> str:
        runs.append("run")
        if len(runs) == 1:
            raise ValueError("out of order")
        return "fetched"

    async def answer(turn: Turn) -> Answer:
        try:
            return await turn.step("fetch", fetch)
        except ValueError:
            return AGAIN

    runs: list[str] = []
    async with trial_on(store, clock, AgentHarness(answer)) as trial:
        await trial.say("hi")
        turns = await store.claim("inbox", [""], limit=1, lease=timedelta(minutes=1))
        outcome = await trial.app.worker(store, trial.files).handle(turns[0])
        [step] = (await store.journal(turns[0].primary.id)).steps.values()
        assert (step.state, step.error) == ("failed", "ValueError: out of order")
        await store.settle([(turns[0], outcome)])
        await trial.work()
        assert await texts(trial) == ["fetched"]
        [step] = (await journal_of(trial)).steps.values()
    assert runs == ["run", "run"]
    assert (step.state, step.attempt, step.error) == ("done", 2, None)


async def test_uses_of_a_name_are_numbered_in_the_order_of_calls(
    store: ChatStore, clock: Clock
) -> None:
    effects = Effects()

    async def answer(turn: Turn) -> Answer:
        first, second = turn.step("add", effects.note, 1), turn.step("add", effects.note, 2)
        # Awaited in the other order.
        return f"{await second} {await first}"

    async with trial_on(store, clock, AgentHarness(answer)) as trial:
        assert await trial.ask("hi") == "2 1"
        steps = (await journal_of(trial)).steps
    assert {key: step.result for key, step in steps.items()} == {"add": "1", "add#2": "2"}


async def test_steps_run_at_once_and_each_is_recorded(store: ChatStore, clock: Clock) -> None:
    effects = Effects()
    arrived = asyncio.Barrier(5)

    async def meet(number: int) -> int:
        if first:
            await arrived.wait()
        return await effects.note(number)

    async def answer(turn: Turn) -> Answer:
        numbers = await asyncio.gather(*(turn.step("meet", meet, n) for n in range(5)))
        first.clear()
        return AGAIN if turn.attempt == 1 else str(numbers)

    first = ["attempt"]
    async with trial_on(store, clock, AgentHarness(answer)) as trial:
        assert await trial.ask("hi") == "[0, 1, 2, 3, 4]"
        keys = sorted((await journal_of(trial)).steps)
    assert keys == ["meet", "meet#2", "meet#3", "meet#4", "meet#5"]
    assert sorted(map(str, effects)) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
async def test_a_step_that_exits_fails_its_turn_and_not_the_process(
    store: ChatStore, clock: Clock, error: BaseException
) -> None:
    async def leave() -> None:
        raise error

    async def answer(turn: Turn) -> Answer:
        await asyncio.gather(turn.step("leave", leave), turn.step("wait", asyncio.sleep, 0))
        return "not reached"

    app = AgentHarness()
    app.add("agent", answer, max_attempts=1)
    async with trial_on(store, clock, app) as trial:
        await trial.say("hi")
        await trial.work()
        [letter] = await store.dead(Filter())
    assert str(letter.last_error).startswith(
        f"StepError: step 'leave' raised {type(error).__name__}"
    )


async def test_a_plain_function_runs_in_a_thread(store: ChatStore, clock: Clock) -> None:
    def where() -> str:
        return threading.current_thread().name

    async def answer(turn: Turn) -> Answer:
        return await turn.step("where", where)

    async with trial_on(store, clock, AgentHarness(answer)) as trial:
        assert await trial.ask("hi") == "holdfast-agent"


async def test_a_step_after_the_end_of_the_turn_is_refused() -> None:
    kept: list[Turn] = []

    async def answer(turn: Turn) -> Answer:
        kept.append(turn)
        return "bye"

    async with trial(AgentHarness(answer)) as tried:
        await tried.ask("hi")
        with pytest.raises(StepError, match="step 'late' came after the end of its turn"):
            await kept[0].step("late", int)
        with pytest.raises(StepError, match=r"turn.write came after the end of its turn"):
            await kept[0].write("late")


async def test_a_step_that_ends_after_its_turn_is_not_recorded() -> None:
    go_on = asyncio.Event()
    errors: list[Exception] = []

    async def slow() -> int:
        await go_on.wait()
        return 1

    async def stray(turn: Turn) -> None:
        try:
            await turn.step("stray", slow)
        except StepError as error:
            errors.append(error)

    async def answer(turn: Turn) -> Answer:
        tasks.append(asyncio.create_task(stray(turn)))
        await asyncio.sleep(0)
        return "bye"

    tasks: list[asyncio.Task[None]] = []
    async with trial(AgentHarness(answer)) as tried:
        await tried.ask("hi")
        go_on.set()
        await tasks[0]
    assert "the end of step 'stray' came after the end of its turn" in str(errors[0])


async def test_a_lost_turn_is_told_so_before_its_function_is_called() -> None:
    effects = Effects()

    async def answer(turn: Turn) -> Answer:
        turn.leased.until = 0.0
        try:
            await turn.step("late", effects.note, 1)
        except LeaseLost as error:
            return Dead(str(error))
        return None

    async with trial(AgentHarness(answer)) as tried:
        await tried.say("hi")
        assert await outcomes(tried) == [Dead("the lease on event 1 has run out; drop the work")]
    assert effects == []


async def test_a_zombie_records_nothing(store: ChatStore, clock: Clock) -> None:
    effects = Effects()
    turns: list[Turn] = []

    async def answer(turn: Turn) -> Answer:
        turns.append(turn)
        if turn.attempt == 1:
            # Another worker claims the message while this one is stopped.
            clock.tick(minutes=11)
            await tried.work()
            with pytest.raises(LeaseLost):
                await turn.step("charge", effects.note, 1, effect="once")
            with pytest.raises(LeaseLost):
                await turn.step("count", effects.note, 2)
            return "zombie"
        return str(await turn.step("count", effects.note, 3))

    async with trial_on(store, clock, AgentHarness(answer)) as tried:
        await tried.say("hi")
        await tried.work()
        assert await texts(tried) == ["3"]
        steps = (await journal_of(tried, turns[0].primary.id)).steps
    # The zombie's once-effect was never begun; its repeatable one ran, and nobody noticed.
    assert effects == [3, 2]
    assert [step.result for step in steps.values()] == ["3"]


async def test_steps_that_no_longer_occur_are_ignored_with_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    effects = Effects()

    async def answer(turn: Turn) -> Answer:
        if turn.attempt == 1:
            await turn.step("old", effects.note, 1)
            await turn.step("older", effects.note, 2)
            return AGAIN
        return str(await turn.step("new", effects.note, 3))

    async with trial(AgentHarness(answer)) as tried:
        assert await tried.ask("hi") == "3"
    lines = [line.getMessage() for line in caplog.records if "no longer occur" in line.getMessage()]
    assert len(lines) == 1
    assert "['old', 'older']" in lines[0]


async def test_a_result_that_does_not_fit_a_changed_type_is_worked_out_again() -> None:
    async def old() -> str:
        return "seven"

    async def new() -> int:
        return 7

    async def answer(turn: Turn) -> Answer:
        value: object = await turn.step("number", old if turn.attempt == 1 else new)
        return AGAIN if turn.attempt == 1 else repr(value)

    async with trial(AgentHarness(answer)) as tried:
        assert await tried.ask("hi") == "7"


async def test_results_of_a_collected_turn_are_not_used_for_one_message_alone(
    store: ChatStore, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    effects = Effects()

    async def answer(turn: Turn) -> Answer:
        seen = len(turn.events)
        await turn.step("note", effects.note, seen)
        await turn.step("again", effects.note, seen)
        await turn.step("pay", effects.note, 100, effect="once")
        return AGAIN if seen > 1 else str(seen)

    app = AgentHarness()
    app.add("all", answer, turns="collect")
    async with trial_on(store, clock, app) as trial:
        await trial.say("one")
        await trial.say("two")
        turns = await store.claim(
            "inbox", ["all", ""], limit=1, lease=timedelta(minutes=1), collect_limit=10
        )
        assert len(turns[0].events) == 2
        outcome = await trial.app.worker(store, trial.files).handle(turns[0])
        await store.settle([(turns[0], outcome)])
        await trial.work()
    # The once-step of the first message is never repeated; the second message has its own.
    assert effects == [2, 2, 100, 1, 1, 1, 1, 100]
    lines = [line for line in caplog.records if "another number of messages" in line.getMessage()]
    assert len(lines) == 1


async def test_a_room_batch_records_its_steps_once_for_all_of_its_lines(
    store: ChatStore, clock: Clock
) -> None:
    effects = Effects()

    async def answer(turn: Turn) -> Answer:
        seen = len(turn.events)
        await turn.step("note", effects.note, seen)
        return AGAIN if seen > 1 and turn.attempt == 1 and "fail" in turn.text else None

    app = AgentHarness()
    app.add("painter", answer)
    app.team("art", agents=["painter"], leader="painter")
    async with trial_on(store, clock, app) as trial:
        for text in ("one", "two"):
            await trial.post("art", text)
        [(turn, _)] = await trial.work()
        assert effects == [2]
        assert (await store.journal(turn.primary.id)).steps["note"].events == 2
        for text in ("fail", "fail again"):
            await trial.post("art", text)
        await trial.work()
    # After a failure the lines are worked one by one, and none reuses the step of both.
    assert effects == [2, 2, 1, 1]


async def test_a_long_step_is_shown_as_started(store: ChatStore, clock: Clock) -> None:
    go_on = asyncio.Event()

    async def slow() -> int:
        await go_on.wait()
        return 1

    async def answer(turn: Turn) -> Answer:
        await turn.step("slow", slow)
        return "done"

    async with trial_on(store, clock, AgentHarness(answer)) as trial:
        await trial.say("hi")
        working = asyncio.create_task(trial.work())
        steps = await until(lambda: _steps(store))
        assert steps["slow"].state == "started"
        go_on.set()
        await working
        assert (await journal_of(trial)).steps["slow"].state == "done"


async def _steps(store: ChatStore) -> Mapping[str, Step]:
    return (await store.journal(1)).steps


async def test_tokens_and_cost_are_recorded_with_a_step(store: ChatStore, clock: Clock) -> None:
    def ask() -> str:
        note_usage(tokens=120, cost=0.25)
        return "said"

    async def answer(turn: Turn) -> Answer:
        return await turn.step("ask", ask)

    async with trial_on(store, clock, AgentHarness(answer)) as trial:
        await trial.ask("hi")
        step = (await journal_of(trial)).steps["ask"]
    assert (step.tokens, step.cost) == (120, 0.25)


async def test_a_thread_that_outlasts_a_cancellation_is_recorded(store: ChatStore) -> None:
    begun, go_on = threading.Event(), threading.Event()
    effects: list[int] = []

    def slow() -> int:
        begun.set()
        go_on.wait(20)
        effects.append(1)
        return 1

    async def answer(turn: Turn) -> Answer:
        await turn.step("slow", slow)
        effects.append(2)
        return "done"

    app = AgentHarness(answer)
    async with trial_on(store, Clock(), app) as trial:
        await trial.say("hi")
        [turn] = await store.claim("inbox", [""], limit=1, lease=timedelta(minutes=1))
        task = asyncio.create_task(app.worker(store, trial.files).handle(turn))
        await asyncio.to_thread(begun.wait, 20)
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        steps = (await store.journal(turn.primary.id)).steps
    # The step is recorded, but the code after it no longer runs.
    assert steps["slow"].state == "done"
    assert effects == [1]


async def test_a_decorated_function_is_a_step_inside_of_a_turn() -> None:
    app = AgentHarness()
    runs: list[int] = []

    @app.step
    async def double(number: int) -> int:
        """Double a number."""
        runs.append(number)
        return number * 2

    @app.agent("a")
    async def answer(turn: Turn) -> Answer:
        assert current_turn() is turn
        doubled = [await double(1), await double(2)]
        return AGAIN if turn.attempt == 1 else str(doubled)

    assert await double(4) == 8
    async with trial(app) as tried:
        assert await tried.ask("hi") == "[2, 4]"
        assert list((await journal_of(tried)).steps) == ["double", "double#2"]
    assert runs == [4, 1, 2]
    assert (double.__name__, double.__doc__) == ("double", "Double a number.")
    assert current_turn() is None


async def test_a_decorated_function_inside_of_a_step_is_refused() -> None:
    app = AgentHarness()

    @app.step
    async def inner() -> int:
        return 1

    @app.agent("a")
    async def answer(turn: Turn) -> Answer:
        try:
            await turn.step("outer", inner)
        except StepError as error:
            return str(error)
        return None

    async with trial(app) as tried:
        # The step itself is the function: it is recorded once, under the name of the step.
        assert "inside of step 'outer'" in await tried.ask("hi")


async def test_an_incoming_hook_can_run_steps() -> None:
    effects = Effects()
    app = AgentHarness(lambda turn: "ok" if turn.attempt == 2 else AGAIN)

    @app.incoming
    async def look(turn: Turn) -> None:
        await turn.step("look", effects.note, 1)

    async with trial(app) as tried:
        assert await tried.ask("hi") == "ok"
    assert effects == [1]


async def test_a_replayed_message_starts_with_an_empty_journal(
    store: ChatStore, clock: Clock
) -> None:
    effects = Effects()

    async def answer(turn: Turn) -> Answer:
        return str(await turn.step("count", effects.note, 1))

    async with trial_on(store, clock, AgentHarness(answer)) as trial:
        await trial.ask("hi")
        assert await store.replay([trial.worked[0][0].primary.id])
        [done] = await outcomes(trial)
    assert isinstance(done, Done)
    assert effects == [1, 1]


async def test_a_retried_dead_letter_keeps_its_journal(store: ChatStore, clock: Clock) -> None:
    effects = Effects()

    async def answer(turn: Turn) -> Answer:
        await turn.step("count", effects.note, 1)
        return Dead("no") if len(turn.leased.primary.claimed) == 1 else "yes"

    async with trial_on(store, clock, AgentHarness(answer)) as trial:
        await trial.say("hi")
        await trial.work()
        assert await store.retry(Filter())
        await trial.work()
        assert await texts(trial) == ["yes"]
    assert effects == [1]

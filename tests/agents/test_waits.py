"""A turn that waits gives its slot back and goes on later, with its recorded steps."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import AgentHarness, StepError, Turn
from holdfast.agents.base import Answer
from holdfast.chat import ChatStore
from holdfast.errors import HoldfastError, Unknown
from holdfast.queue.outcome import Done, Retry, Snooze
from holdfast.testing.clock import START, Clock
from holdfast.testing.trial import Trial, trial
from tests.agents.trials import Effects, journal_of, outcomes, texts, trial_on

DAY = timedelta(days=1)


async def test_a_sleep_lasts_over_attempts_and_uses_none(store: ChatStore, clock: Clock) -> None:
    effects = Effects()

    async def answer(turn: Turn) -> Answer:
        await turn.step("before", effects.note, 1)
        await turn.sleep(DAY)
        await turn.step("after", effects.note, 2)
        return f"attempt {turn.attempt}"

    async with trial_on(store, clock, AgentHarness(answer)) as trial:
        await trial.say("hi")
        assert await outcomes(trial) == [Snooze(DAY)]
        clock.tick(hours=23)
        assert await outcomes(trial) == []
        clock.tick(hours=1)
        [done] = await outcomes(trial)
        assert isinstance(done, Done)
        assert await texts(trial) == ["attempt 1"]
        sleep = (await journal_of(trial)).steps["sleep"]
    assert effects == [1, 2]
    assert (sleep.kind, sleep.state, sleep.due_at) == ("sleep", "done", START + DAY)


async def test_a_turn_that_came_back_too_early_sleeps_on(store: ChatStore, clock: Clock) -> None:
    async def answer(turn: Turn) -> Answer:
        if turn.attempt == 2:
            await turn.sleep(DAY)
            return "rested"
        await turn.sleep(DAY)
        return None

    async with trial_on(store, clock, AgentHarness(answer)) as trial:
        await trial.say("hi")
        # The worker dies while its turn is about to sleep; another one takes over.
        [turn] = await store.claim("inbox", [""], limit=1, lease=timedelta(minutes=1))
        worker = trial.app.worker(store, trial.files)
        assert await worker.handle(turn) == Snooze(DAY)
        clock.tick(hours=1)
        assert await outcomes(trial) == [Snooze(timedelta(hours=23))]
        clock.tick(hours=23)
        await trial.work()
        assert await texts(trial) == ["rested"]


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (90, 90),
        (1.5, 1.5),
        ("5 min", 300),
        (timedelta(hours=1), 3600),
        (START + timedelta(minutes=1), 60),
    ],
)
async def test_a_sleep_is_a_duration_or_a_moment(given: Any, seconds: float) -> None:
    async def answer(turn: Turn) -> Answer:
        await turn.sleep(given)
        return None

    async with trial(AgentHarness(answer)) as tried:
        await tried.say("hi")
        assert await outcomes(tried) == [Snooze(seconds)]


async def test_a_moment_that_has_passed_returns_at_once() -> None:
    async def answer(turn: Turn) -> Answer:
        await turn.sleep(START - DAY)
        await turn.sleep(0)
        return "here"

    async with trial(AgentHarness(answer)) as tried:
        assert await tried.ask("hi") == "here"


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (timedelta(seconds=-1), "turn.sleep cannot wait -1 day, 23:59:59: it is negative"),
        (-5, "turn.sleep cannot wait -5: a duration is"),
        ("soon", "turn.sleep cannot wait soon: a duration is"),
        (timedelta.max, "turn.sleep cannot wait"),
        (datetime(2030, 1, 1), "turn.sleep needs a datetime with a time zone"),  # noqa: DTZ001
    ],
)
async def test_a_bad_sleep_is_a_clear_error_and_nothing_is_lost(given: Any, error: str) -> None:
    async def answer(turn: Turn) -> Answer:
        try:
            await turn.sleep(given)
        except StepError as refused:
            return str(refused)
        return None

    async with trial(AgentHarness(answer)) as tried:
        assert (await tried.ask("hi")).startswith(error)
        assert not [step for step in (await journal_of(tried)).steps.values() if step.due_at]


async def test_a_trial_moves_its_clock_to_the_end_of_a_sleep() -> None:
    async def answer(turn: Turn) -> Answer:
        await turn.sleep(DAY)
        await turn.sleep("2h")
        return "good morning"

    async with trial(AgentHarness(answer)) as tried:
        assert await tried.ask("good night") == "good morning"
        assert tried.clock.now == START + DAY + timedelta(hours=2)


async def test_code_that_catches_everything_cannot_keep_a_turn_from_waiting() -> None:
    async def answer(turn: Turn) -> Answer:
        try:
            await turn.sleep(DAY)
        except BaseException:  # noqa: BLE001 - agents do such things
            return "never"
        return "later"

    async with trial(AgentHarness(answer)) as tried:
        assert await tried.ask("hi") == "later"


async def test_time_limits_and_task_groups_let_a_wait_pass() -> None:
    async def answer(turn: Turn) -> Answer:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(turn.sleep(DAY))
            sleeping = group.create_task(turn.sleep(2 * DAY))
        await sleeping
        return "both"

    app = AgentHarness()
    app.add("a", answer, timeout=timedelta(minutes=1), idle=timedelta(minutes=1))
    async with trial(app) as tried:
        assert await tried.ask("hi") == "both"
        assert tried.clock.now == START + 2 * DAY
        assert list((await journal_of(tried)).steps) == ["sleep", "sleep#2"]
        assert [outcome for _, outcome in tried.worked[:2]] == [Snooze(DAY), Snooze(DAY)]


async def test_steps_that_run_at_the_same_time_end_before_the_turn_waits() -> None:
    effects = Effects()
    sleeping = asyncio.Event()

    async def slow() -> int:
        await sleeping.wait()
        return await effects.note(1)

    async def sleep(turn: Turn) -> None:
        asyncio.get_running_loop().call_later(0.05, sleeping.set)
        await turn.sleep(DAY)

    async def answer(turn: Turn) -> Answer:
        await asyncio.gather(turn.step("pay", slow, effect="once"), sleep(turn))
        return "paid"

    async with trial(AgentHarness(answer)) as tried:
        assert await tried.ask("hi") == "paid"
    assert effects == [1]


async def test_a_signal_resumes_the_turn_that_waits_for_it(store: ChatStore, clock: Clock) -> None:
    async def answer(turn: Turn) -> Answer:
        paid = await turn.signal("paid", timeout=DAY)
        return f"paid {paid['amount']} in attempt {turn.attempt}"

    app = AgentHarness(answer)
    async with trial_on(store, clock, app) as trial:
        message_id = await trial.say("hi")
        assert await outcomes(trial) == [Snooze(DAY)]
        await app.signal(message_id, "refused", None)
        assert await outcomes(trial) == []
        await app.signal(message_id, "paid", {"amount": 12})
        await trial.work()
        assert await texts(trial) == ["paid 12 in attempt 1"]
        with pytest.raises(HoldfastError, match="has ended and takes no signal"):
            await app.signal(message_id, "paid", {"amount": 13})
        with pytest.raises(Unknown, match="there is no message 'other'"):
            await app.signal("other", "paid")


async def test_signals_of_one_name_are_taken_in_order_also_those_that_came_before(
    store: ChatStore, clock: Clock
) -> None:
    async def answer(turn: Turn) -> Answer:
        seen = [await turn.signal("next"), await turn.signal("next")]
        if turn.attempt == 1:
            return Retry("again", timedelta(0))
        return f"{seen} {await turn.signal('next')}"

    app = AgentHarness(answer)
    async with trial_on(store, clock, app) as trial:
        message_id = await trial.say("hi")
        for value in (1, [2], None):
            await app.signal(message_id, "next", value)
        await trial.work()
        assert await texts(trial) == ["[1, [2]] None"]
        assert list((await journal_of(trial)).steps) == [
            "signal next",
            "signal next#2",
            "signal next#3",
        ]


async def test_a_signal_that_comes_while_the_turn_is_about_to_wait_is_not_missed(
    store: ChatStore, clock: Clock
) -> None:
    async def answer(turn: Turn) -> Answer:
        return f"got {await turn.signal('paid')}"

    app = AgentHarness(answer)
    async with trial_on(store, clock, app) as trial:
        message_id = await trial.say("hi")
        [turn] = await store.claim("inbox", [""], limit=1, lease=timedelta(minutes=1))
        outcome = await app.worker(store, trial.files).handle(turn)
        # It looked for the signal, and has not been settled yet.
        await app.signal(message_id, "paid", 1)
        await store.settle([(turn, outcome)])
        assert await outcomes(trial) == []
        # The sweep of another process, after a crash in between.
        assert await store.resume_signalled() == 1
        await trial.work()
        assert await texts(trial) == ["got 1"]


async def test_a_signal_times_out_in_this_attempt_and_in_every_later_one(
    store: ChatStore, clock: Clock
) -> None:
    async def answer(turn: Turn) -> Answer:
        try:
            await turn.signal("paid", timeout="1h")
        except TimeoutError as error:
            return Retry("again", timedelta(0)) if turn.attempt == 1 else str(error)
        return "too late"

    app = AgentHarness(answer)
    async with trial_on(store, clock, app) as trial:
        message_id = await trial.say("hi")
        assert await outcomes(trial) == [Snooze("1h")]
        clock.tick(hours=1)
        [turn] = await store.claim("inbox", [""], limit=1, lease=timedelta(minutes=1))
        retry = await app.worker(store, trial.files).handle(turn)
        assert retry == Retry("again", timedelta(0))
        await app.signal(message_id, "paid", 1)
        await store.settle([(turn, retry)])
        await trial.work()
        assert await texts(trial) == ["no signal 'paid' came in time"]


async def test_a_signal_that_came_in_time_counts_though_the_turn_looks_late(
    store: ChatStore, clock: Clock
) -> None:
    async def answer(turn: Turn) -> Answer:
        return f"got {await turn.signal('paid', timeout='1h')}"

    app = AgentHarness(answer)
    async with trial_on(store, clock, app) as trial:
        message_id = await trial.say("hi")
        await trial.work()
        await app.signal(message_id, "paid", 1)
        clock.tick(hours=5)
        await trial.work()
        assert await texts(trial) == ["got 1"]


@pytest.mark.parametrize("name", ["", "n" * 200, "n#2", "a\0b"])
async def test_a_bad_signal_name_is_a_clear_error(name: str) -> None:
    async def answer(turn: Turn) -> Answer:
        with pytest.raises(StepError):
            await turn.signal(name)
        return "fine"

    async with trial(AgentHarness(answer)) as tried:
        assert await tried.ask("hi") == "fine"


async def test_a_wait_for_ever_is_looked_at_again_after_years() -> None:
    async def answer(turn: Turn) -> Answer:
        await turn.signal("never")
        return None

    async with trial(AgentHarness(answer)) as tried:
        await tried.say("hi")
        [snooze] = await outcomes(tried)
        tried.clock.set(datetime(2036, 1, 1, tzinfo=UTC))
        assert await outcomes(tried) == [snooze]


async def test_a_wait_outside_of_a_running_turn_is_refused() -> None:
    kept: list[Turn] = []

    async def answer(turn: Turn) -> Answer:
        kept.append(turn)
        return "bye"

    async with trial(AgentHarness(answer)) as tried:
        await tried.ask("hi")
        with pytest.raises(StepError, match="came after the end of its turn"):
            await kept[0].sleep(1)
        with pytest.raises(StepError, match="works in a running turn only"):
            await Turn(kept[0].leased, "agent").sleep(1)


async def work_collected(trial: Trial) -> list[tuple[int, str]]:
    """Work one collected turn, if any is ready. Returns its size and the type of its outcome."""
    store, handle = trial.store, trial.app.worker(trial.store, trial.files).handle
    turns = await store.claim(
        "inbox", ["all", ""], limit=1, lease=timedelta(minutes=1), collect_limit=10
    )
    outcomes = [await handle(turn) for turn in turns]
    await store.settle(list(zip(turns, outcomes, strict=True)))
    return [
        (len(turn.events), type(outcome).__name__)
        for turn, outcome in zip(turns, outcomes, strict=True)
    ]


async def test_a_collected_turn_sleeps_and_goes_on_with_its_messages(
    store: ChatStore, clock: Clock
) -> None:
    effects = Effects()

    async def answer(turn: Turn) -> Answer:
        await turn.step("before", effects.note, len(turn.events))
        await turn.sleep(DAY)
        return f"{len(turn.events)} messages"

    app = AgentHarness()
    app.add("all", answer, turns="collect")
    async with trial_on(store, clock, app) as trial:
        await trial.say("one")
        await trial.say("two")
        assert await work_collected(trial) == [(2, "Snooze")]
        clock.tick(hours=12)
        await trial.say("three")
        assert await work_collected(trial) == []
        clock.tick(hours=12)
        assert await work_collected(trial) == [(2, "Done")]
        assert await work_collected(trial) == [(1, "Snooze")]
        assert await texts(trial) == ["2 messages"]
    assert effects == [2, 1]


@pytest.mark.parametrize("which", [0, 1])
async def test_a_signal_to_any_message_of_a_collected_turn_resumes_it(
    store: ChatStore, clock: Clock, which: int
) -> None:
    async def answer(turn: Turn) -> Answer:
        return f"{len(turn.events)} messages got {await turn.signal('paid')}"

    app = AgentHarness()
    app.add("all", answer, turns="collect")
    async with trial_on(store, clock, app) as trial:
        ids = [await trial.say("one"), await trial.say("two")]
        assert await work_collected(trial) == [(2, "Snooze")]
        await trial.say("three")
        await app.signal(ids[which], "paid", 7)
        assert await work_collected(trial) == [(2, "Done")]
        assert await texts(trial) == ["2 messages got 7"]

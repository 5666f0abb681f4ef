"""Once-steps never run twice: a probe or a person says whether an unrecorded one happened."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import AgentHarness, NotDone, StepError, Turn, tool
from holdfast.agents.base import Answer
from holdfast.agents.call import Call, StepOptions, arguments_of
from holdfast.agents.codec import UNTYPED
from holdfast.chat import ChatStore
from holdfast.queue.journal import Assume
from holdfast.queue.outcome import Dead, Retry
from holdfast.queue.store import Filter
from holdfast.testing.clock import Clock
from holdfast.testing.trial import trial
from tests.agents.trials import Effects, journal_of, outcomes, texts, trial_on

AGAIN = Retry("again", timedelta(0))


async def test_a_tool_is_a_step_of_its_own_and_keeps_its_effect() -> None:
    effects = Effects()

    @tool(effect="once")
    def charge(amount: int) -> str:
        effects.append(amount)
        return f"charged {amount}"

    async def answer(turn: Turn) -> Answer:
        receipt = await charge(5)
        # A step may call the tool if it has the same effect; a plain step would lose the effect.
        again = await turn.step("charge again", charge, 6)
        with pytest.raises(StepError, match="inside of step 'hidden'"):
            await turn.step("hidden", lambda: charge(7))
        return AGAIN if turn.attempt == 1 else f"{receipt}, {again}"

    async with trial(AgentHarness(answer)) as tried:
        assert await tried.ask("hi") == "charged 5, charged 6"
        steps = (await journal_of(tried)).steps
    assert effects == [5, 6]
    assert {key: step.kind for key, step in steps.items() if step.state == "done"} == {
        "charge": "once",
        "charge again": "once",
    }
    assert await charge(8) == "charged 8"


async def test_a_once_step_whose_record_is_missing_ends_as_a_dead_letter_that_names_the_call(
    store: ChatStore, clock: Clock
) -> None:
    effects = Effects()

    async def charge(amount: int, token: str) -> str:
        await effects.note(amount)
        raise ConnectionError("no answer")

    async def answer(turn: Turn) -> Answer:
        try:
            await turn.step("charge card", charge, 500, token="tok", effect="once")
        except Exception:  # noqa: BLE001 - agents do such things
            return AGAIN if turn.attempt == 1 else "all is well"
        return None

    async with trial_on(store, clock, AgentHarness(answer)) as trial:
        await trial.say("hi")
        await trial.work()
        [letter] = await store.dead(Filter())
        step = (await journal_of(trial)).steps["charge card"]
        assert await texts(trial) == []
    assert effects == [500]
    assert (step.kind, step.state, step.error) == (
        "once",
        "unknown",
        "ConnectionError: no answer",
    )
    assert letter.error_class == "EffectUnknown"
    error = letter.last_error or ""
    assert "step 'charge card'" in error
    assert "charge with arguments [500," in error
    assert f"holdfast dead retry {letter.id} --assume done" in error


async def test_the_start_of_a_once_step_is_committed_before_its_call(
    store: ChatStore, clock: Clock
) -> None:
    seen: list[Any] = []

    async def charge(amount: int) -> str:
        [step] = (await store.journal(1)).steps.values()
        seen.append((step.state, step.kind, step.arguments, len(step.digest or "")))
        return "charged"

    async def answer(turn: Turn) -> Answer:
        return await turn.step("charge", charge, 5, effect="once")

    async with trial_on(store, clock, AgentHarness(answer)) as trial:
        assert await trial.ask("hi") == "charged"
    assert seen == [("started", "once", "[5]", 64)]


@pytest.mark.parametrize("happened", [True, False])
async def test_a_probe_decides_about_a_once_step(happened: bool) -> None:
    effects = Effects()

    async def charge(amount: int) -> str:
        await effects.note(amount)
        if len(effects) == 1:
            raise ConnectionError("no answer")
        return "charged now"

    async def was_charged(amount: int) -> str:
        assert amount == 5
        if not happened:
            raise NotDone("no such charge")
        return "charged before"

    async def answer(turn: Turn) -> Answer:
        return await turn.step("charge", charge, 5, effect="once", probe=was_charged)

    async with trial(AgentHarness(answer)) as tried:
        await tried.say("hi")
        await tried.work()
        tried.clock.tick(hours=1)
        await tried.work()
        assert await texts(tried) == ["charged before" if happened else "charged now"]
    assert effects == ([5] if happened else [5, 5])


async def test_a_probe_that_fails_is_asked_again_and_nothing_runs() -> None:
    effects = Effects()
    probes: list[int] = []

    async def charge() -> str:
        await effects.note(1)
        raise ConnectionError("no answer")

    def probe() -> str:
        probes.append(1)
        if len(probes) == 1:
            raise TimeoutError("the bank is closed")
        return "charged"

    async def answer(turn: Turn) -> Answer:
        try:
            return await turn.step("charge", charge, effect="once", probe=probe)
        except (ConnectionError, TimeoutError):
            return AGAIN

    async with trial(AgentHarness(answer)) as tried:
        assert await tried.ask("hi") == "charged"
    assert (effects, len(probes)) == ([1], 2)


async def test_a_probe_is_not_asked_about_other_arguments() -> None:
    async def charge(amount: int) -> str:
        raise ConnectionError("no answer")

    async def probe(amount: int) -> str:
        raise AssertionError("asked about another call")

    async def answer(turn: Turn) -> Answer:
        try:
            return await turn.step("charge", charge, turn.attempt, effect="once", probe=probe)
        except ConnectionError:
            return AGAIN

    async with trial(AgentHarness(answer)) as tried:
        await tried.say("hi")
        dead = (await outcomes(tried))[-1]
    assert isinstance(dead, Dead)
    assert dead.error_class == "EffectUnknown"
    assert "with arguments [1] of attempt 1 may have happened." in dead.reason
    assert "This attempt would call it with other arguments" in dead.reason


async def test_a_recorded_result_is_found_by_the_arguments_of_its_call(
    store: ChatStore, clock: Clock
) -> None:
    effects = Effects()

    async def answer(turn: Turn) -> Answer:
        order = [1, 2] if turn.attempt == 1 else [2, 1, 3]
        paid = [await turn.step("pay", effects.note, n, effect="once") for n in order]
        return AGAIN if turn.attempt == 1 else str(paid)

    async with trial_on(store, clock, AgentHarness(answer)) as trial:
        assert await trial.ask("hi") == "[2, 1, 3]"
        steps = (await journal_of(trial)).steps
    assert effects == [1, 2, 3]
    assert {key: step.result for key, step in steps.items()} == {
        "pay": "1",
        "pay#2": "2",
        "pay#3": "3",
    }


async def test_the_second_of_two_parallel_calls_may_be_recorded_alone() -> None:
    effects = Effects()

    async def answer(turn: Turn) -> Answer:
        first = turn.step("pay", effects.note, 1, effect="once")
        second = await turn.step("pay", effects.note, 2, effect="once")
        if turn.attempt == 1:
            first.close()
            return AGAIN
        return f"{await first} {second}"

    async with trial(AgentHarness(answer)) as tried:
        assert await tried.ask("hi") == "1 2"
    assert effects == [2, 1]


def paying(effects: Effects, *amounts: int) -> AgentHarness:
    """Return an app that pays another amount in each attempt, and fails after the first."""

    async def pay(amount: int) -> int:
        return await effects.note(amount)

    async def answer(turn: Turn) -> Answer:
        amount = amounts[len(turn.leased.primary.claimed) - 1]
        paid = await turn.step("pay", pay, amount, effect="once")
        return AGAIN if amount == amounts[0] else f"paid {paid}"

    return AgentHarness(answer)


async def test_a_call_with_other_arguments_than_the_recorded_one_is_left_to_a_person(
    store: ChatStore, clock: Clock
) -> None:
    effects = Effects()
    async with trial_on(store, clock, paying(effects, 5, 7)) as trial:
        await trial.say("hi")
        await trial.work()
        [letter] = await store.dead(Filter())
    assert effects == [5]
    assert letter.error_class == "EffectUnknown"
    error = letter.last_error or ""
    assert "paying.<locals>.pay with arguments [5] of attempt 1 has happened." in error
    assert "This attempt would call it with other arguments: [7]." in error


@pytest.mark.parametrize("amount", [7, 8])
@pytest.mark.parametrize(("assume", "text"), [("done", "paid None"), ("not-done", "paid {}")])
async def test_a_person_decides_about_a_call_with_other_arguments(
    store: ChatStore, clock: Clock, assume: Assume, text: str, amount: int
) -> None:
    effects = Effects()
    async with trial_on(store, clock, paying(effects, 5, 7, amount)) as trial:
        await trial.say("hi")
        await trial.work()
        assert await store.retry(Filter(), assume=assume)
        await trial.work()
        assert await texts(trial) == [text.format(amount)]
    assert effects == ([5] if assume == "done" else [5, amount])


def test_the_digest_of_a_set_does_not_depend_on_its_order() -> None:
    call = Call(
        name="pay",
        number=1,
        key="pay",
        function=print,
        args=[set("edcba")],
        kwargs={},
        options=StepOptions("once"),
        codec=UNTYPED,
    )
    assert arguments_of(call)[0] == '[["a","b","c","d","e"]]'

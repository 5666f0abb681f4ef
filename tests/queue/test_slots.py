"""Every agent has its own slots, and a scarce total is shared fairly."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from holdfast.agents.base import Answer
from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.queue.slots import MOST_AHEAD, Round, Slots
from holdfast.settings import Settings
from tests.queue.test_consumer import Gate
from tests.steps import NEVER, both_engines, finished, running, until

BATCH = 1000
QUICK, SLOW = 0.0001, 2.0


def app_of(**agents: Gate) -> AgentHarness:
    app = AgentHarness()
    for id_, gate in agents.items():

        async def answer(turn: Turn, gate: Gate = gate) -> Answer:
            await gate(turn)
            return turn.text

        app.add(id_, answer)
    return app


@pytest.mark.parametrize("num_workers", [0, -1])
async def test_fewer_workers_than_one_are_refused_at_once(
    settings: Settings, num_workers: int
) -> None:
    app = app_of(coder=Gate())
    app.settings = settings
    with pytest.raises(ValueError, match=f"must be at least 1, not {num_workers}"):
        await app.run(num_workers=num_workers)


@both_engines
async def test_an_agent_with_a_backlog_keeps_no_other_agent_waiting(settings: Settings) -> None:
    """Put six messages for a busy writer, then one for the coder, which answers at once."""
    writing, coding = Gate(), Gate()
    coding.open.set()
    async with running(app_of(coder=coding, writer=writing), settings, poll=NEVER) as app:
        for number in range(6):
            await app.put("@writer a long one", sender=f"person {number}")
        await until(lambda: len(writing.inside) == 5)
        await app.put("@coder a short one", sender="person 7")
        [answered] = await finished(app.store, 1, queue="inbox")
        assert answered.target == "coder"
        assert len(writing.inside) == 5
        writing.open.set()
        await finished(app.store, 7, queue="inbox")
    assert writing.most == 5


@both_engines
async def test_every_agent_gets_a_slot_while_the_total_is_scarce(settings: Settings) -> None:
    gates = {id_: Gate() for id_ in ("a", "b", "c")}
    async with running(app_of(**gates), settings, workers=4, workers_total=6, poll=NEVER) as app:
        for agent in ("a", "b"):
            for number in range(10):
                await app.put("a long one", agent=agent, sender=str(number))
        # One slot is kept for c, which has nothing to do yet.
        await until(lambda: len(gates["a"].inside) + len(gates["b"].inside) == 5)
        await app.put("now", agent="c")
        await until(lambda: gates["c"].inside)
        for gate in gates.values():
            gate.open.set()
        await finished(app.store, 21, queue="inbox")
    assert max(gate.most for gate in gates.values()) <= 4


@both_engines
async def test_the_default_agent_has_one_set_of_slots_for_both_its_targets(
    settings: Settings,
) -> None:
    coding, writing = Gate(), Gate()
    async with running(
        app_of(coder=coding, writer=writing), settings, workers=3, poll=NEVER
    ) as app:
        for number in range(10):
            await app.put("a long one", agent="coder" if number % 2 else None, sender=str(number))
        await until(lambda: len(coding.inside) == 3)
        await app.put("@writer hello")
        await until(lambda: writing.inside)
        writing.open.set()
        coding.open.set()
        await finished(app.store, 11, queue="inbox")
    assert coding.most == 3


@both_engines
async def test_no_conversation_of_an_agent_starves_another(settings: Settings) -> None:
    """One person writes twenty messages, another person one. That one is answered second."""
    order: list[str] = []

    async def answer(turn: Turn) -> Answer:
        order.append(turn.sender)
        return None

    async with running(AgentHarness(answer), settings, workers=1, poll=NEVER) as app:
        async with app.store.transaction() as together:
            for _ in range(20):
                await app.put("again", sender="busy", connection=together)
            await app.put("once", sender="patient", connection=together)
        app.consumers[0].wake.set()
        await finished(app.store, 21, queue="inbox")
    assert order.index("patient") <= 1


@both_engines
async def test_a_full_agent_signals_other_processes_about_work_it_cannot_claim(
    settings: Settings,
) -> None:
    """Its other agent has slots left, so the process as a whole is not full."""
    mine, theirs, idle = Gate(), Gate(), Gate()
    theirs.open.set()
    async with (
        running(app_of(coder=mine, writer=idle), settings, workers=1, poll=NEVER) as one,
        running(app_of(coder=theirs, writer=idle), settings, workers=1, poll=NEVER),
    ):
        mine.open.set()
        for _ in range(30):
            await one.put("one conversation", agent="coder", sender="a")
            await one.put("another", agent="coder", sender="b")
        await finished(one.store, 60, queue="inbox")


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_the_pool_fits_all_turns_at_once(settings: Settings) -> None:
    """Every turn holds a transaction until all of them do."""
    app, inside = AgentHarness(), Counter[str]()
    everybody = asyncio.Event()

    async def answer(turn: Turn) -> Answer:
        async with app.store.transaction() as transaction:
            await app.put("noted", channel="notes", connection=transaction, agent="keeper")
            inside[turn.agent] += 1
            if sum(inside.values()) == 15:
                everybody.set()
            await everybody.wait()
        return None

    for id_ in ("a", "b", "c"):
        app.add(id_, answer)
    app.add("keeper", lambda turn: None)
    async with running(app, settings, poll=NEVER):
        for id_ in ("a", "b", "c"):
            for number in range(5):
                await app.put("hold", agent=id_, sender=str(number))
        await asyncio.wait_for(everybody.wait(), 30)
        await finished(app.store, 30, queue="inbox")


def names(count: int) -> list[str]:
    return [f"agent {number}" for number in range(count)]


def limits_of_claim(slots: Slots, which: Round) -> dict[str, int | None]:
    request = slots.request({name: [name] for name in slots._working}, which, BATCH)
    return (
        {}
        if request is None
        else dict(zip(request.targets, request.at_most or [request.limit], strict=True))
    )


def test_a_single_agent_claims_all_its_slots_without_further_limits() -> None:
    slots = Slots(["one"], each=5, total=100)
    assert slots.total == 5
    request = slots.request({"one": ["one", ""]}, Round.ALL, BATCH)
    assert request is not None
    assert (request.targets, request.limit, request.at_most) == (["one", ""], 5, None)


def test_slots_are_scarce_only_if_agents_want_more_than_the_total() -> None:
    assert Slots(names(20), each=5, total=100).rounds() == (Round.ALL,)
    assert Slots(names(21), each=5, total=100).rounds() == (Round.IDLE, Round.REST)


def test_while_slots_are_scarce_one_is_kept_for_each_idle_agent() -> None:
    slots = Slots(names(4), each=4, total=6)
    slots.take("agent 0")
    assert limits_of_claim(slots, Round.IDLE) == {"agent 1": 1, "agent 2": 1, "agent 3": 1}
    rest = slots.request({name: [name] for name in names(4)}, Round.REST, BATCH)
    assert rest is not None
    assert rest.limit == 2


def test_with_more_agents_than_slots_those_that_run_least_go_first() -> None:
    slots = Slots(names(5), each=3, total=3)
    slots.take("agent 0")
    slots.take("agent 0")
    request = slots.request({name: [name] for name in names(5)}, Round.REST, BATCH)
    assert request is not None
    assert (request.limit, request.targets[-1]) == (1, "agent 0")


def test_turns_that_wait_to_be_settled_take_no_slot_but_are_limited() -> None:
    slots = Slots(["one"], each=2, total=2)
    for _ in range(4):
        slots.take("one")
        assert slots.begin("one")
        slots.finish("one", SLOW)
    assert (slots.free("one"), slots.all_free, slots.is_short) == (0, 0, True)
    slots.leave("one", is_running=True, is_finished=True)
    assert slots.free("one") == 1


def work(slots: Slots, name: str, turns: int, seconds: float) -> None:
    for _ in range(turns):
        slots.take(name)
        assert slots.begin(name)
        slots.finish(name, seconds)
        slots.leave(name, is_running=True, is_finished=True)


def test_turns_are_claimed_ahead_once_many_have_ended_quickly() -> None:
    slots = Slots(["one"], each=5, total=5)
    work(slots, "one", 10, QUICK)
    assert slots.free("one") == 5
    work(slots, "one", 90, QUICK)
    assert slots.free("one") == slots.all_free == 5 + MOST_AHEAD


def test_a_claim_ahead_is_no_slot_to_run_in() -> None:
    slots = Slots(["one"], each=5, total=5)
    work(slots, "one", 100, QUICK)
    for _ in range(6):
        slots.take("one")
    assert [slots.begin("one") for _ in range(6)] == [True] * 5 + [False]


@pytest.mark.parametrize("seconds", [SLOW, 0.5])
def test_slow_turns_are_not_claimed_ahead(seconds: float) -> None:
    slots = Slots(["one"], each=5, total=5)
    work(slots, "one", 100, seconds)
    assert slots.free("one") == 5


def test_one_slow_turn_ends_claiming_ahead() -> None:
    slots = Slots(["one"], each=5, total=5)
    work(slots, "one", 100, QUICK)
    work(slots, "one", 1, 10.0)
    assert slots.free("one") == 5


def test_nothing_is_claimed_ahead_while_agents_share_a_scarce_total() -> None:
    slots = Slots(names(2), each=5, total=6)
    work(slots, "agent 0", 100, QUICK)
    assert slots.free("agent 0") == 5
    assert slots.all_free == 6

"""Records race with everything that ends a turn: exactly what was acknowledged is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

import pytest

from holdfast.errors import LeaseLost
from holdfast.queue.journal import JournalEntry, Step, Write
from holdfast.queue.outcome import Done, Retry, Settled
from holdfast.queue.store import Process, Store
from holdfast.queue.turn import LeasedTurn
from holdfast.store import open_store
from holdfast.store.postgres import connections
from holdfast.store.watch import Watch
from holdfast.testing.clock import Clock
from holdfast.testing.fixtures import StoreFactory
from tests.conformance.steps import LEASE, claim, claim_one, put, put_lane

TURNS = 8
BEFORE = 5
"""Records of each turn before it is taken away."""


class Recorder:
    """Records steps of a turn until it is lost or told to stop."""

    def __init__(self, store: Store, turn: LeasedTurn) -> None:
        self.store = store
        self.turn = turn
        self.acknowledged: list[str] = []
        self.has_begun = asyncio.Event()
        self.stopped = False

    async def run(self) -> None:
        text = ""
        with suppress(LeaseLost):
            while not self.stopped:
                key, write = f"step {len(self.acknowledged)}", Write(1, len(text), "more ")
                step = Step(key=key, state="done", attempt=1, result="1")
                await self.store.record(JournalEntry(turn=self.turn, steps=[step], write=write))
                self.acknowledged.append(key)
                text += write.text
                if len(self.acknowledged) == BEFORE:
                    self.has_begun.set()

    async def check(self) -> None:
        journal = await self.store.journal(self.turn.primary.id)
        assert [*journal.steps] == self.acknowledged
        assert journal.text == "more " * len(self.acknowledged)


async def race(recorders: list[Recorder], during: Callable[[], Awaitable[None]]) -> None:
    """Run the recorders and do something meanwhile. Each recorder ends when it loses its turn."""
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for recorder in recorders:
            group.create_task(recorder.run())
        for recorder in recorders:
            await recorder.has_begun.wait()
        await during()
    for recorder in recorders:
        await recorder.check()


@pytest.fixture(autouse=True)
def _deadlocks_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store runs the victim of a deadlock again; here it must not come to that."""
    monkeypatch.setattr(connections, "TRIES", 1)


async def recorders_of(store: Store, holder: str = "worker") -> list[Recorder]:
    for number in range(TURNS):
        await put_lane(store, 2, lane=str(number))
    return [
        Recorder(store, turn)
        for turn in await claim(store, limit=TURNS, collect_limit=2, holder=holder)
    ]


async def test_a_record_races_with_the_settle_of_its_turn(
    store: Store, another_store: StoreFactory
) -> None:
    recorders, other = await recorders_of(store), await another_store()

    async def settle() -> None:
        ends = [(recorder.turn, Done()) for recorder in recorders]
        assert await other.settle(ends) == [Settled(turn) for turn, _ in ends]

    await race(recorders, settle)


async def test_a_record_races_with_a_retry_of_its_turn(
    store: Store, another_store: StoreFactory
) -> None:
    recorders, other = await recorders_of(store), await another_store()

    async def retry() -> None:
        for recorder in reversed(recorders):
            await other.settle([(recorder.turn, Retry("no", delay=timedelta(hours=1)))])

    await race(recorders, retry)


@pytest.mark.parametrize("member", [0, 1])
async def test_a_record_races_with_the_cancel_of_an_event(
    store: Store, another_store: StoreFactory, member: int
) -> None:
    recorders, other = await recorders_of(store), await another_store()

    async def cancel() -> None:
        async with asyncio.TaskGroup() as group:
            for recorder in reversed(recorders):
                group.create_task(other.cancel(recorder.turn.ids[member], "stop"))

    await race(recorders, cancel)


async def test_a_record_races_with_the_claim_of_another(
    store: Store, another_store: StoreFactory, clock: Clock
) -> None:
    recorders, other = await recorders_of(store), await another_store()

    async def take_over() -> None:
        clock.tick(minutes=11)
        by_id = {recorder.turn.primary.id: recorder for recorder in recorders}
        while by_id:
            # A claim passes over events that are locked at the moment.
            for turn in await claim(other, limit=TURNS):
                # The new holder sees every step that was acknowledged to the old one.
                seen = (await other.journal(turn.primary.id)).steps
                assert len(seen) >= len(by_id.pop(turn.primary.id).acknowledged)

    await race(recorders, take_over)


async def test_a_record_races_with_the_reaping_of_its_process(
    store: Store, another_store: StoreFactory, database_url: str, clock: Clock
) -> None:
    gone = Process(id="gone", host="here", started_at=clock.now, seen_at=clock.now)
    async with open_store(database_url, clock=clock) as doomed:
        await doomed.register(gone)
    recorders = await recorders_of(store, holder="gone")

    async def reap() -> None:
        async with open_store(database_url, clock=clock, watch=Watch(timedelta())) as other:
            while not await other.reap():  # noqa: ASYNC110 - the lock file has no signal
                await asyncio.sleep(0.05)

    await race(recorders, reap)


async def test_a_record_does_not_hinder_renewals(store: Store, another_store: StoreFactory) -> None:
    recorders, other = await recorders_of(store), await another_store()

    async def renew() -> None:
        for _ in range(20):
            assert await other.renew([one.turn for one in reversed(recorders)], LEASE) == []
        for recorder in recorders:
            recorder.stopped = True

    await race(recorders, renew)


async def test_two_holders_never_record_at_the_same_time(
    store: Store, another_store: StoreFactory, clock: Clock
) -> None:
    """Five holders, each paused past its lease, go on recording all at once."""
    await put(store, max_attempts=10)
    stores = [store, *[await another_store() for _ in range(2)]]
    turns: list[LeasedTurn] = []
    for number in range(5):
        turns.append(await claim_one(stores[number % 3]))
        clock.tick(minutes=11)

    async def record(number: int) -> bool:
        step = Step(key="a", state="done", attempt=number, result=str(number))
        try:
            await stores[number % 3].record(JournalEntry(turn=turns[number], steps=[step]))
        except LeaseLost:
            return False
        return True

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(record(number)) for number in range(5)]
    assert [task.result() for task in tasks] == [False] * 4 + [True]
    assert (await store.journal(turns[0].primary.id)).steps["a"].result == "4"


async def test_ten_thousand_steps_of_an_event_are_kept_in_order(store: Store) -> None:
    await put(store)
    turn = await claim_one(store)
    keys = [f"step#{number}" for number in range(10_000)]
    for start in range(0, len(keys), 100):
        steps = [
            Step(key=key, state="done", attempt=1, result="1") for key in keys[start : start + 100]
        ]
        await store.record(JournalEntry(turn=turn, steps=steps))
    assert [*(await store.journal(turn.primary.id)).steps] == keys

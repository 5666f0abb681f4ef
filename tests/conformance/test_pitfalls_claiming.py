"""Faults of other queues in claiming and leases, one test per line of the list."""

from __future__ import annotations

import asyncio
import signal
from datetime import timedelta

import pytest

from holdfast.queue.journal import Journal
from holdfast.queue.outcome import Done, Lost, Retry, Settled
from holdfast.queue.store import Filter, Store, SweepPolicy, Swept
from holdfast.testing.clock import Clock
from holdfast.testing.fixtures import StoreFactory
from tests.conformance.steps import (
    LEASE,
    claim,
    claim_ids,
    claim_one,
    end,
    ended,
    finished,
    live,
    message,
    outbox,
    put,
)
from tests.conformance.test_processes import reap_until_seen
from tests.conformance.worker_process import finish, worker_process

REFUSED = ["Lost", "LeaseLost", "LeaseLost", "Lost"]
"""Results of a renewal, a checkpoint, a record and a settle of a lost turn."""


async def test_a_settle_that_matches_on_id_alone(
    store: Store, database_url: str, clock: Clock
) -> None:
    """All calls of a worker that was stopped past its lease are refused."""
    event_id = await put(store, lane="a", message_id="m1")
    with worker_process(database_url, "paused", clock.now) as paused:
        paused.send_signal(signal.SIGSTOP)
        clock.tick(minutes=11)
        turn = await claim_one(store, holder="other")
        paused.send_signal(signal.SIGCONT)
        assert await asyncio.to_thread(finish, paused) == REFUSED
        assert await live(store, event_id) == turn.primary
        assert await ended(store, turn, Done((message("reply", queue="outbox"),))) == "completed"
        assert await asyncio.to_thread(finish, paused) == REFUSED
    assert (await finished(store, event_id)).holder == "other"
    assert [event.message_id for event in await outbox(store)] == ["m1/1"]
    assert await store.journal(event_id) == Journal()


async def test_a_fence_that_repeats(store: Store) -> None:
    """An attempt given back and taken again has the same number, never the same fence."""
    await put(store)
    await end(store, await claim_one(store), Retry("no"))
    zombie = await claim_one(store)
    await store.release([zombie])
    turn = await claim_one(store)
    assert (turn.primary.attempts, zombie.primary.attempts) == (2, 2)
    assert turn.fence != zombie.fence
    assert await end(store, zombie) == Lost(zombie)
    assert await end(store, turn) == Settled(turn)


async def test_rescue_by_age_instead_of_by_liveness(store: Store, clock: Clock) -> None:
    """A long job that renews is nobody else's, however old it gets."""
    await put(store, max_attempts=1)
    turn = await claim_one(store)
    for _ in range(20):
        clock.tick(minutes=9)
        assert await store.renew([turn], LEASE) == []
        assert await claim(store) == []
        assert await store.sweep(SweepPolicy(expire_after=timedelta(minutes=10))) == Swept()
        assert await store.reap() == []
    assert await ended(store, turn) == "completed"


async def test_rescue_by_liveness_within_seconds(
    store: Store, database_url: str, clock: Clock
) -> None:
    """The other half of the same line: work of a killed process does not wait for its lease."""
    event_id = await put(store)
    with worker_process(database_url, "doomed", clock.now) as doomed:
        doomed.kill()
        doomed.wait()
        assert await reap_until_seen(store) == ["doomed"]
    assert await claim_ids(store) == [[event_id]]


async def test_a_sweep_that_expires_events_whose_last_attempt_is_running(
    store: Store, clock: Clock
) -> None:
    """The last attempt has used all attempts and is still at work: it may finish."""
    await put(store, max_attempts=1)
    turn = await claim_one(store)
    clock.tick(minutes=9)
    assert await store.sweep(SweepPolicy(max_attempts=1, expire_after=timedelta())) == Swept()
    assert await ended(store, turn) == "completed"


async def test_a_sweep_that_quietly_files_an_hour_old_backlog_as_processed(
    store: Store, clock: Clock
) -> None:
    """Events that expire during an outage are dead letters, which can be retried."""
    ids = [await put(store, str(number)) for number in range(5)]
    clock.tick(hours=2)
    assert (await store.sweep(SweepPolicy(expire_after=timedelta(hours=1)))).expired == 5
    assert {letter.outcome for letter in await store.dead(Filter())} == {"expired"}
    assert sorted(await store.retry(Filter(outcomes=["expired"]))) == ids
    assert [turn.primary.event["text"] for turn in await claim(store, limit=5)] == [
        "0",
        "1",
        "2",
        "3",
        "4",
    ]


async def test_attempts_counted_only_on_a_recorded_failure(store: Store, clock: Clock) -> None:
    """An event that kills its process records nothing, and still runs out of attempts."""
    event_id = await put(store)
    for attempt in (1, 2, 3):
        assert (await claim_one(store)).primary.attempts == attempt
        clock.tick(minutes=11)
    assert await claim(store) == []
    assert (await store.sweep(SweepPolicy())).dead == 1
    assert (await finished(store, event_id)).attempts == 3


async def test_one_lease_for_a_batch_that_is_worked_one_after_the_other(
    store: Store, clock: Clock
) -> None:
    """Turns claimed together are renewed and given back one by one."""
    await store.put([message() for _ in range(3)])
    first, *tail = await claim(store, limit=3)
    for _ in range(3):
        clock.tick(minutes=9)
        assert await store.renew([first, *tail], LEASE) == []
    assert await ended(store, first) == "completed"
    assert await store.release(tail[:1]) == [Settled(tail[0])]
    assert await claim_ids(store) == [tail[0].ids]
    assert await ended(store, tail[1]) == "completed"


async def test_an_explicit_failure_waits_out_the_whole_visibility_time(
    store: Store, clock: Clock
) -> None:
    """A failure has a back-off of its own, however long the lease was."""
    event_id = await put(store)
    turn = await claim_one(store, lease=timedelta(hours=12))
    await end(store, turn, Retry("no", timedelta(seconds=2)))
    clock.tick(seconds=2)
    assert await claim_ids(store) == [[event_id]]


async def test_a_second_instance_at_start_up_resets_everything_processing(
    store: Store, another_store: StoreFactory, clock: Clock
) -> None:
    """A store that opens, sweeps and looks for the dead leaves live work alone."""
    await put(store)
    turn = await claim_one(store)
    second = await another_store()
    assert await second.reap() == []
    assert await second.sweep(SweepPolicy()) == Swept()
    assert await claim(second) == []
    assert await live(second, turn.primary.id) == turn.primary
    assert await ended(store, turn) == "completed"


@pytest.mark.parametrize(
    "engine",
    [
        "sqlite",
        "postgres",
        # Their statements are those of the first PostgreSQL.
        pytest.param("postgres15", marks=pytest.mark.chaos),
        pytest.param("timescale", marks=pytest.mark.chaos),
    ],
    indirect=True,
)
async def test_claiming_with_id_in_more_than_32766_pending_rows(store: Store) -> None:
    """More rows than a statement may have parameters are put, claimed, renewed and settled."""
    many = 33_000
    for start in range(0, many, 11_000):
        await store.put([message(str(number)) for number in range(start, start + 11_000)])
    turns = await claim(store, limit=many)
    assert len(turns) == many
    assert await store.renew(turns, LEASE) == []
    results = await store.settle([(turn, Done()) for turn in turns])
    assert sum(isinstance(result, Settled) for result in results) == many
    assert await store.outcomes("inbox") == {"completed": many}


async def test_a_claim_inside_a_plain_subquery_may_update_more_rows_than_its_limit(
    store: Store, another_store: StoreFactory
) -> None:
    """Claims that run at once give each no more than its limit, and no event twice."""
    await store.put([message() for _ in range(200)])
    stores = [store, await another_store(), await another_store(), await another_store()]
    claims = await asyncio.gather(*(claim(s, limit=7) for _ in range(5) for s in stores))
    assert max(len(turns) for turns in claims) <= 7
    ids = [event_id for turns in claims for turn in turns for event_id in turn.ids]
    assert len(ids) == len(set(ids))
    leased = await store.leased("inbox")
    assert sorted(event.id for event in leased) == sorted(ids)
    assert {event.attempts for event in leased} == {1}


async def test_a_hypertable_cannot_have_a_unique_index_without_its_time_column(
    store: Store, clock: Clock
) -> None:
    """Duplicates are found with another event time and after history was pruned."""
    await put(store, message_id="m1", event_ts=clock.now - timedelta(days=300))
    await end(store, await claim_one(store))
    assert await store.put([message(message_id="m1", event_ts=clock.now)]) == [None]
    clock.tick(days=1)
    assert (await store.sweep(SweepPolicy(keep_history=timedelta(hours=1)))).pruned == 1
    assert await store.put([message(message_id="m1", event_ts=clock.now)]) == [None]

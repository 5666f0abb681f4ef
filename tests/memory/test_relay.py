"""The relay: the index gets the current state of the store, whatever fails in between."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from holdfast.consumers.memory import DrainResult, KnowledgeStoreOutboxRelay, RelayOptions
from holdfast.memory.knowledge import (
    IndexUnavailable,
    KnowledgeDocument,
    KnowledgeScope,
    KnowledgeSource,
    KnowledgeStore,
)
from holdfast.memory.observation import ObservationStore, document_of
from holdfast.queue.event import MEMORY
from holdfast.queue.store import Filter, Store
from holdfast.testing.clock import Clock
from tests.memory.moody import Moody
from tests.memory.steps import ANN, BOB, fact, outbox, relay_to


async def test_a_change_reaches_the_index_and_leaves_the_outbox(
    store: Store,
    observations: ObservationStore,
    knowledge: KnowledgeStore,
    relay: KnowledgeStoreOutboxRelay,
) -> None:
    position = await observations.save(fact())
    assert await relay.drain_once() == DrainResult(processed=1)
    assert [hit.id for hit in await knowledge.search(ANN, "green tea")] == ["w"]
    assert (await outbox(store), await observations.wait_indexed(position)) == ([], True)
    assert await relay.drain_once() == DrainResult()


async def test_events_are_counted_and_not_turns(
    observations: ObservationStore, relay: KnowledgeStoreOutboxRelay
) -> None:
    for number in range(5):
        await observations.save(fact(f"fact {number}", id=str(number)))
    result = await relay.drain_once()
    assert (result.processed, result.claimed) == (5, 5)


async def test_a_drain_is_limited_to_one_batch(
    observations: ObservationStore, knowledge: KnowledgeStore, store: Store
) -> None:
    relay = KnowledgeStoreOutboxRelay(observations, knowledge, options=RelayOptions(batch_size=2))
    for number in range(5):
        await observations.save(fact(f"fact {number}", id=str(number)))
    assert (await relay.drain_once()).claimed == 2
    assert len(await outbox(store)) == 3


async def test_changes_of_a_subject_are_coalesced(
    observations: ObservationStore, moody: Moody, moody_relay: KnowledgeStoreOutboxRelay
) -> None:
    for number in range(20):
        await observations.save(fact(f"version {number}"))
    await moody_relay.drain_once()
    assert moody.upserts == 1
    assert list(await moody._real.documents(ANN)) == ["w"]


async def test_current_state_is_read_and_never_the_payload(
    observations: ObservationStore, knowledge: KnowledgeStore, relay: KnowledgeStoreOutboxRelay
) -> None:
    await observations.save(fact("first"))
    await observations.delete("acme", "w")
    await observations.save(fact("Bob has it now", subject="bob"))
    await relay.drain_once()
    assert (await knowledge.documents(ANN), list(await knowledge.documents(BOB))) == ({}, ["w"])


async def test_a_fact_that_moves_to_another_subject_leaves_the_old_ones_index(
    observations: ObservationStore, knowledge: KnowledgeStore, relay: KnowledgeStoreOutboxRelay
) -> None:
    await observations.save(fact())
    await relay.drain_once()
    await observations.save(fact(subject="bob"))
    await relay.drain_once()
    assert (await knowledge.documents(ANN), list(await knowledge.documents(BOB))) == ({}, ["w"])


async def test_a_deleted_workspace_leaves_no_index(
    observations: ObservationStore, knowledge: KnowledgeStore, relay: KnowledgeStoreOutboxRelay
) -> None:
    for number in range(3):
        await observations.save(fact(id=str(number)))
    await relay.drain_once()
    await observations.delete_workspace("acme")
    await relay.drain_once()
    assert await knowledge.documents(ANN) == {}


async def test_a_failure_is_due_again_after_exactly_two_seconds_then_four(
    store: Store,
    observations: ObservationStore,
    moody: Moody,
    moody_relay: KnowledgeStoreOutboxRelay,
    clock: Clock,
) -> None:
    await observations.save(fact())
    moody.error = ValueError("no such dimension")
    assert await moody_relay.drain_once() == DrainResult(failed=1)
    [event] = await store.waiting(MEMORY, "")
    assert (event.vt - clock.now, event.last_error) == (
        timedelta(seconds=2),
        "ValueError: no such dimension",
    )
    assert await moody_relay.drain_once() == DrainResult()
    clock.tick(seconds=2)
    assert await moody_relay.drain_once() == DrainResult(failed=1)
    [event] = await store.waiting(MEMORY, "")
    assert event.vt - clock.now == timedelta(seconds=4)


async def test_changes_of_one_subject_each_fail_once_and_are_due_after_exactly_two_seconds(
    store: Store,
    observations: ObservationStore,
    moody: Moody,
    moody_relay: KnowledgeStoreOutboxRelay,
    clock: Clock,
) -> None:
    for number in range(3):
        await observations.save(fact(f"fact {number}", id=str(number)))
    moody.error = ValueError("no such dimension")
    assert await moody_relay.drain_once() == DrainResult(failed=3)
    due = [(event.attempts, event.vt - clock.now) for event in await store.waiting(MEMORY, "")]
    assert due == [(1, timedelta(seconds=2))] * 3
    assert await moody_relay.drain_once() == DrainResult()
    moody.error = None
    clock.tick(seconds=2)
    assert await moody_relay.drain_once() == DrainResult(processed=3)


async def test_changes_that_fail_together_in_a_running_relay_are_due_after_exactly_two_seconds(
    store: Store,
    observations: ObservationStore,
    moody: Moody,
    moody_relay: KnowledgeStoreOutboxRelay,
    clock: Clock,
) -> None:
    for number in range(3):
        await observations.save(fact(f"fact {number}", id=str(number)))
    moody.error = ValueError("no such dimension")
    [turn] = await store.claim(MEMORY, [""], limit=1, lease=timedelta(seconds=60), collect_limit=32)
    await store.settle([(turn, await moody_relay.handle(turn))])
    due = [(event.attempts, event.vt - clock.now) for event in await store.waiting(MEMORY, "")]
    assert due == [(1, timedelta(seconds=2))] * 3


async def test_after_its_last_attempt_a_change_is_poison_that_can_be_retried(
    store: Store,
    observations: ObservationStore,
    moody: Moody,
    moody_relay: KnowledgeStoreOutboxRelay,
    clock: Clock,
) -> None:
    position = await observations.save(fact())
    moody.error = ValueError("broken")
    for _ in range(2):
        assert await moody_relay.drain_once() == DrainResult(failed=1)
        clock.tick(minutes=2)
    assert await moody_relay.drain_once() == DrainResult(poisoned=1)
    assert await moody_relay.drain_once() == DrainResult()
    [dead] = await store.dead(Filter(queue=MEMORY))
    assert (dead.id, dead.attempts) == (position, 3)
    assert not await observations.wait_indexed(position)
    moody.error = None
    await store.retry(Filter(ids=[position]))
    assert await moody_relay.drain_once() == DrainResult(processed=1)


async def test_an_index_that_is_away_for_ten_minutes_poisons_nothing(
    store: Store, observations: ObservationStore, moody: Moody, clock: Clock
) -> None:
    for number in range(5):
        await observations.save(fact(id=str(number), subject=str(number)))
    moody.error = IndexUnavailable("connection refused")
    for _ in range(20):
        # A new relay each time, because the breaker pauses in real time.
        relay = relay_to(observations, moody, max_attempts=3)
        assert await relay.drain_once() == DrainResult()
        clock.tick(seconds=30)
    assert {event.attempts for event in await store.waiting(MEMORY, "")} == {0}
    moody.error = None
    clock.tick(minutes=1)
    relay = KnowledgeStoreOutboxRelay(observations, moody)  # type: ignore[arg-type]
    assert await relay.drain_once() == DrainResult(processed=5)


async def test_while_the_index_is_away_the_relay_pauses(
    observations: ObservationStore,
    moody: Moody,
    moody_relay: KnowledgeStoreOutboxRelay,
    store: Store,
) -> None:
    for number in range(5):
        await observations.save(fact(id=str(number), subject=str(number)))
    moody.error = IndexUnavailable("connection refused")
    await moody_relay.drain_once()
    assert len([event for event in await store.waiting(MEMORY, "") if event.claimed]) == 1


async def test_one_bad_document_does_not_hold_up_the_others_of_its_subject(
    store: Store, observations: ObservationStore, knowledge: KnowledgeStore, clock: Clock
) -> None:
    class Picky(Moody):
        async def upsert(self, scope: KnowledgeScope, documents: KnowledgeSource) -> int:
            wanted = list(documents)
            if any(document.id == "bad" for document in wanted):
                raise ValueError("cannot index bad")
            return await self._real.upsert(scope, wanted)

    relay = relay_to(observations, Picky(knowledge), max_attempts=2)
    for id_ in ("a", "bad", "b"):
        await observations.save(fact(id=id_))
    # They fail together; then the relay tries each by itself.
    assert await relay.drain_once() == DrainResult(processed=2, failed=1)
    clock.tick(seconds=2)
    assert await relay.drain_once() == DrainResult(poisoned=1)
    assert sorted(await knowledge.documents(ANN)) == ["a", "b"]
    assert [
        event.event["observation_local_id"] for event in await store.dead(Filter(queue=MEMORY))
    ] == ["bad"]


async def test_a_crash_between_dispatch_and_settle_does_no_harm(
    store: Store,
    observations: ObservationStore,
    knowledge: KnowledgeStore,
    relay: KnowledgeStoreOutboxRelay,
    clock: Clock,
) -> None:
    await observations.save(fact())
    [turn] = await store.claim(MEMORY, [""], limit=1, lease=timedelta(seconds=60))
    await relay.handle(turn)
    clock.tick(seconds=61)
    await observations.save(fact("newer"))
    await relay.drain_once()
    await relay.drain_once()
    assert await knowledge.documents(ANN) == {"w": KnowledgeDocument(id="x", content="newer").hash}


async def test_a_relay_that_was_paused_past_its_lease_cannot_bring_back_an_older_state(
    store: Store,
    observations: ObservationStore,
    knowledge: KnowledgeStore,
    relay: KnowledgeStoreOutboxRelay,
    clock: Clock,
) -> None:
    await observations.save(fact("old"))
    old = await observations.find_by_ids("acme", ["w"])
    await store.claim(MEMORY, [""], limit=1, lease=timedelta(seconds=60))
    clock.tick(seconds=61)
    await observations.save(fact("new"))
    await relay.drain_once()
    await knowledge.upsert(ANN, [document_of(observation) for observation in old])
    assert await knowledge.documents(ANN) == {"w": KnowledgeDocument(id="x", content="new").hash}


async def test_a_running_relay_indexes_what_is_saved_and_stops_within_five_seconds(
    observations: ObservationStore, knowledge: KnowledgeStore, relay: KnowledgeStoreOutboxRelay
) -> None:
    relay.start()
    relay.start()
    position = await observations.save(fact())
    assert await observations.wait_indexed(position, within=10)
    async with asyncio.timeout(5):
        await relay.stop()
        await relay.stop()
        await relay.close()
    assert list(await knowledge.documents(ANN)) == ["w"]


async def test_an_error_of_an_unexpected_class_does_not_end_the_relay(
    observations: ObservationStore, moody: Moody, knowledge: KnowledgeStore
) -> None:
    moody.error = KeyError("surprise")
    async with KnowledgeStoreOutboxRelay(observations, moody) as relay:  # type: ignore[arg-type]
        await observations.save(fact())
        async with asyncio.timeout(10):
            waiting = observations.store.waiting
            while not (await waiting(MEMORY, ""))[0].last_error:  # noqa: ASYNC110 - no signal
                await asyncio.sleep(0.01)
        moody.error = None
        position = await observations.save(fact(subject="bob", id="b"))
        assert await observations.wait_indexed(position, within=10)
        assert relay.agent_name == "memory.observation"


async def test_after_three_deaths_of_a_lone_relay_the_row_is_poison_and_its_subject_goes_on(
    store: Store, observations: ObservationStore, knowledge: KnowledgeStore, clock: Clock
) -> None:
    deadly = await observations.save(fact(id="deadly"))
    await observations.save(fact(id="next"))
    options = RelayOptions(max_attempts=3)
    for _ in range(3):
        # As a process that dies during its turn.
        [turn] = await store.claim(
            MEMORY, [""], limit=1, lease=options.claim_duration, max_attempts=3
        )
        assert turn.primary.id == deadly
        clock.tick(seconds=61)
    relay = KnowledgeStoreOutboxRelay(observations, knowledge, options=options)
    assert await relay.drain_once() == DrainResult(processed=1, poisoned=1)
    assert [dead.id for dead in await store.dead(Filter(queue=MEMORY))] == [deadly]
    assert list(await knowledge.documents(ANN)) == ["next"]


async def test_a_running_lone_relay_buries_events_without_attempts_left(
    store: Store, observations: ObservationStore, knowledge: KnowledgeStore, clock: Clock
) -> None:
    await observations.save(fact(id="deadly"))
    position = await observations.save(fact(id="next"))
    await store.claim(MEMORY, [""], limit=1, lease=timedelta(seconds=60), max_attempts=1)
    clock.tick(seconds=61)
    options = RelayOptions(max_attempts=1, poll_interval=timedelta(milliseconds=50))
    async with KnowledgeStoreOutboxRelay(observations, knowledge, options=options):
        assert await observations.wait_indexed(position, within=30)
    assert len(await store.dead(Filter(queue=MEMORY))) == 1

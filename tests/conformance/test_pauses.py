"""Pauses are durable, seen by all processes, and nothing expires while they last."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.consumers.pausing import PausedConsumers, apply_pauses
from holdfast.queue.audit import AuditFilter
from holdfast.queue.consumer import Consumer
from holdfast.queue.event import INBOX, OUTBOX
from holdfast.queue.outcome import Done, Outcome
from holdfast.queue.policy import Policy, TargetGroup
from holdfast.queue.store import Store, SweepPolicy
from holdfast.queue.turn import LeasedTurn
from holdfast.store.pauses import ActivePauses, Pause, Pauses
from holdfast.testing.clock import Clock
from holdfast.testing.fixtures import StoreFactory

from .steps import put

ACTOR = "cli:ada"
TIMEOUT_SECONDS = 60


async def test_a_pause_is_seen_by_others_with_who_when_and_why(
    store: Store, another_store: StoreFactory, clock: Clock
) -> None:
    await Pauses(store).pause("agent", "coder", "deploying", actor=ACTOR)
    await Pauses(store).pause("queue", "memory", None, actor=ACTOR)

    paused = await Pauses(await another_store()).all()

    agent, queue = paused.pauses
    assert (agent.kind, agent.name, agent.reason) == ("agent", "coder", "deploying")
    assert (agent.paused_by, agent.paused_at) == (ACTOR, clock.now)
    assert (queue.kind, queue.reason) == ("queue", None)
    assert paused.targets(INBOX) == {"coder"}
    assert paused.targets(OUTBOX) == frozenset()
    assert paused.has_queue("memory")


async def test_pausing_again_changes_the_reason_and_resuming_ends_it_once(
    store: Store, clock: Clock
) -> None:
    pauses = Pauses(store)
    first = await pauses.pause("channel", "slack", "one", actor=ACTOR)
    clock.tick(minutes=1)
    again = await pauses.pause("channel", "slack", "two", actor="cli:bob")

    assert (again.reason, again.paused_at, again.paused_by) == ("two", first.paused_at, ACTOR)
    assert await pauses.resume("channel", "slack", actor=ACTOR)
    assert not await pauses.resume("channel", "slack", actor=ACTOR)
    assert await pauses.all() == ActivePauses([])
    log = await store.audit_log(AuditFilter())
    assert [(one.action, one.subject) for one in log] == [
        ("resumed", "channel:slack"),
        ("paused", "channel:slack"),
        ("paused", "channel:slack"),
    ]


async def test_nothing_expires_while_it_is_paused_nor_right_after(
    store: Store, clock: Clock
) -> None:
    await store.set_setting("routing", {"default": "coder"})
    for target in ("coder", "", "writer"):
        await put(store, target=target)
    await put(store, queue=OUTBOX, target="slack")
    inbox = SweepPolicy(queue=INBOX, expire_after=timedelta(hours=1))
    outbox = SweepPolicy(queue=OUTBOX, discard_unserved=timedelta(hours=1))
    pauses = Pauses(store)
    await pauses.pause("agent", "coder", None, actor=ACTOR)
    await pauses.pause("channel", "slack", None, actor=ACTOR)
    clock.tick(hours=2)

    assert (await store.sweep(inbox)).expired == 1
    assert (await store.sweep(outbox)).discarded == 0
    await pauses.resume("agent", "coder", actor=ACTOR)
    await pauses.resume("channel", "slack", actor=ACTOR)
    assert (await store.sweep(inbox)).expired == 0
    assert (await store.sweep(outbox)).discarded == 0
    clock.tick(hours=2)
    assert (await store.sweep(inbox)).expired == 2


async def test_a_sweep_while_a_pause_ends_expires_nothing(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store, target="coder")
    pauses = Pauses(store)
    await pauses.pause("agent", "coder", None, actor=ACTOR)
    clock.tick(hours=2)
    forgive, expired = pauses._forgive_wait, list[int]()

    async def forgive_late(pause: Pause) -> None:
        expired.append((await store.sweep(SweepPolicy(expire_after=timedelta(hours=1)))).expired)
        await forgive(pause)

    monkeypatch.setattr(pauses, "_forgive_wait", forgive_late)
    assert await pauses.resume("agent", "coder", actor=ACTOR)
    assert not await pauses.resume("agent", "coder", actor=ACTOR)
    assert expired == [0]
    assert (await store.sweep(SweepPolicy(expire_after=timedelta(hours=1)))).expired == 0


async def test_a_paused_queue_expires_nothing_at_all(store: Store, clock: Clock) -> None:
    await put(store, target="writer")
    await Pauses(store).pause("queue", INBOX, None, actor=ACTOR)
    clock.tick(hours=2)

    assert (await store.sweep(SweepPolicy(expire_after=timedelta(hours=1)))).expired == 0


class Working:
    """A consumer of two agents in a process, and the turns that it got."""

    def __init__(self, store: Store) -> None:
        self.targets: asyncio.Queue[str] = asyncio.Queue()
        group = TargetGroup(targets=("coder", "writer"), lease=timedelta(minutes=1))
        policy = Policy(
            queue=INBOX,
            target_groups=(group,),
            at_once=4,
            unnamed="coder",
            poll=timedelta(milliseconds=50),
            jitter=timedelta(0),
        )
        self.consumer = Consumer(store, policy, self._handle, "worker")

    async def _handle(self, turn: LeasedTurn) -> Outcome:
        await self.targets.put(turn.primary.target)
        return Done()

    async def next_target(self) -> str:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await self.targets.get()


async def test_a_consumer_claims_nothing_of_a_paused_agent_until_it_is_resumed(
    store: Store, another_store: StoreFactory
) -> None:
    working, operator = Working(store), await another_store()
    followed = PausedConsumers(store, lambda: [working.consumer])
    await Pauses(operator).pause("agent", "coder", None, actor=ACTOR)
    await followed.read()
    # The unnamed one is for the default agent, which is paused, too.
    for target in ("coder", "", "writer"):
        await put(store, target=target)

    async with asyncio.TaskGroup() as group:
        running = group.create_task(working.consumer.run(timedelta(0)))
        assert await working.next_target() == "writer"
        await put(store, target="writer")
        assert await working.next_target() == "writer"
        assert working.targets.empty()
        await Pauses(operator).resume("agent", "coder", actor=ACTOR)
        await followed.read()
        assert {await working.next_target() for _ in range(2)} == {"coder", ""}
        working.consumer.stop()
        await running


async def test_a_process_follows_pauses_of_others(
    store: Store, another_store: StoreFactory
) -> None:
    working, operator = Working(store), await another_store()
    followed = PausedConsumers(store, lambda: [working.consumer])

    async with asyncio.TaskGroup() as group:
        following = group.create_task(followed.follow())
        running = group.create_task(working.consumer.run(timedelta(0)))
        await put(store, target="coder")
        assert await working.next_target() == "coder"
        await Pauses(operator).pause("queue", INBOX, None, actor=ACTOR)
        await until_paused(working.consumer, followed)
        await put(store, target="coder")
        await Pauses(operator).resume("queue", INBOX, actor=ACTOR)
        followed.changed.set()
        assert await working.next_target() == "coder"
        working.consumer.stop()
        await running
        following.cancel()


async def until_paused(consumer: Consumer, followed: PausedConsumers) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not consumer.is_paused:
            followed.changed.set()
            await asyncio.sleep(0.05)


async def test_a_pause_of_another_kind_changes_nothing(store: Store) -> None:
    working = Working(store)
    await Pauses(store).pause("channel", "coder", None, actor=ACTOR)
    apply_pauses(working.consumer, await Pauses(store).all())

    assert not working.consumer.is_paused

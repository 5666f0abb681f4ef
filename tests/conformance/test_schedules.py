"""Schedules run once over all processes, by their policies, on every store alike."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.channels.base import Put
from holdfast.channels.schedule import ScheduleChannel
from holdfast.errors import Unknown, WrongUsage
from holdfast.queue.audit import AuditFilter
from holdfast.queue.event import Event, NewEvent
from holdfast.queue.store import Store
from holdfast.routing.router import Routing, receive
from holdfast.routing.schedules import run_now
from holdfast.store.schedules import (
    MOST_MISSED,
    Draft,
    Missed,
    Schedule,
    Schedules,
    add_schedule,
    build,
    pause_schedule,
    remove_schedule,
    resume_schedule,
)
from holdfast.testing.clock import Clock
from holdfast.testing.fixtures import StoreFactory

ROUTING = Routing(default="coder", lanes={"coder": "conversation"})
NINE = datetime(2026, 1, 1, 9, tzinfo=UTC)


def draft(timing: str = "0 9 * * *", **further: Any) -> Draft:
    return Draft(timing=timing, text="prepare the stand-up", agent="coder", **further)


def putting(store: Store) -> Put:
    async def put(new: NewEvent) -> int | None:
        return await receive(store, ROUTING, new, new.event["message"])

    return put


async def run_due(*stores: Store, files: list[Schedule] | None = None) -> None:
    """Look at the schedules in one process for each store, all at once, until nothing is due."""
    channels = [ScheduleChannel(store, 5, files=files or []) for store in stores]

    async def look(channel: ScheduleChannel, store: Store) -> None:
        while await channel.run_due(putting(store)) == timedelta(0):
            pass

    async with asyncio.TaskGroup() as group:
        for channel, store in zip(channels, stores, strict=True):
            group.create_task(look(channel, store))


async def messages(store: Store) -> list[Event]:
    return list(await store.waiting("inbox", "coder", limit=1000))


async def times(store: Store, schedule: Schedule) -> list[datetime]:
    """Return the times of the runs that were put, in order."""
    ids = [str(one.message_id) for one in await messages(store)]
    assert all(id.startswith(f"schedule_{schedule.id}_") for id in ids)
    return [datetime.fromisoformat(id.rpartition("_")[2]) for id in ids]


async def test_two_processes_run_a_schedule_once(
    store: Store, another_store: StoreFactory, clock: Clock
) -> None:
    schedule = await add_schedule(store, draft(), actor="cli:ada")
    stores = [store, await another_store(), await another_store()]
    await run_due(*stores)
    assert await messages(store) == []
    for day in range(3):
        clock.set(NINE + timedelta(days=day))
        await run_due(*stores)
    assert await times(store, schedule) == [NINE + timedelta(days=day) for day in range(3)]
    [found] = await Schedules(store).all()
    assert (found.last_at, found.next_at) == (
        NINE + timedelta(days=2),
        NINE + timedelta(days=3),
    )


async def test_a_crash_after_the_put_does_not_run_it_again(store: Store, clock: Clock) -> None:
    schedule = await add_schedule(store, draft(), actor="cli:ada")
    clock.set(NINE)
    [seen] = await Schedules(store).upcoming([])
    # The process dies here, before the schedule moves on.
    await putting(store)(seen.message(NINE, 5))
    await run_due(store)
    assert await times(store, schedule) == [NINE]
    assert not await Schedules(store).advance(seen, None, NINE), "it has moved on already"


@pytest.mark.parametrize(
    ("missed", "expected"),
    [("skip", []), ("once", [3]), ("all", [0, 1, 2, 3])],
)
async def test_a_process_that_was_down_follows_the_policy_for_missed_runs(
    store: Store, clock: Clock, missed: Missed, expected: list[int]
) -> None:
    schedule = await add_schedule(store, draft(missed=missed), actor="cli:ada")
    clock.set(NINE + timedelta(days=3, hours=2))
    await run_due(store)
    assert await times(store, schedule) == [NINE + timedelta(days=day) for day in expected]
    [found] = await Schedules(store).all()
    assert found.next_at == NINE + timedelta(days=4)


async def test_a_run_that_is_a_little_late_is_not_missed(store: Store, clock: Clock) -> None:
    schedule = await add_schedule(store, draft(missed="skip"), actor="cli:ada")
    clock.set(NINE + timedelta(seconds=50))
    await run_due(store)
    assert await times(store, schedule) == [NINE]


async def test_all_missed_runs_are_the_latest_up_to_a_limit(store: Store, clock: Clock) -> None:
    schedule = await add_schedule(store, draft("every 1 min", missed="all"), actor="cli:ada")
    clock.tick(days=1)
    await run_due(store)
    runs = await times(store, schedule)
    assert len(runs) == MOST_MISSED
    assert runs[-1] == clock.now


async def test_one_time_runs_once_and_is_pruned_later(store: Store, clock: Clock) -> None:
    schedule = await add_schedule(store, draft("2026-01-01T09:00"), actor="cli:ada")
    clock.set(NINE + timedelta(hours=1))
    for _ in range(2):
        await run_due(store)
    assert await times(store, schedule) == [NINE]
    schedules = Schedules(store)
    assert await schedules.prune(NINE) == 0
    assert (await schedules.find(schedule.id)).next_at is None
    assert await schedules.prune(NINE + timedelta(days=1)) == 1


async def test_a_pause_lasts_and_its_runs_are_not_made_up_for(
    store: Store, another_store: StoreFactory, clock: Clock
) -> None:
    schedule = await add_schedule(store, draft(missed="all"), actor="cli:ada")
    await pause_schedule(store, schedule.id, actor="cli:ada")
    clock.set(NINE + timedelta(days=2, hours=1))
    await run_due(await another_store())
    assert await messages(store) == []
    await resume_schedule(store, schedule.id, actor="cli:ada")
    await run_due(store)
    assert await messages(store) == []
    clock.set(NINE + timedelta(days=3))
    await run_due(store)
    assert await times(store, schedule) == [NINE + timedelta(days=3)]


async def test_a_pause_between_look_and_advance_is_kept(store: Store, clock: Clock) -> None:
    schedule = await add_schedule(store, draft(), actor="cli:ada")
    [seen] = await Schedules(store).upcoming([])
    await pause_schedule(store, schedule.id, actor="cli:ada")
    assert not await Schedules(store).advance(seen, None, NINE)
    assert (await Schedules(store).find(schedule.id)).paused_at == clock.now


async def test_run_now_puts_a_message_and_leaves_the_next_run(store: Store, clock: Clock) -> None:
    schedule = await add_schedule(store, draft(to="slack:C123"), actor="cli:ada")
    id = await run_now(store, ROUTING, schedule.id, max_attempts=5, actor="cli:bob")
    [message] = await messages(store)
    assert message.message_id == id == f"schedule_{schedule.id}_{clock.now.isoformat()}"
    assert message.lane == "coder/slack:C123"
    assert (message.event["channel"], message.event["conversation"]) == ("slack", "slack:C123")
    assert (await Schedules(store).find(schedule.id)).next_at == schedule.next_at


async def test_every_change_is_in_the_audit_log(store: Store) -> None:
    schedule = await add_schedule(store, draft(), actor="cli:ada")
    await pause_schedule(store, schedule.id, actor="cli:bob")
    await resume_schedule(store, schedule.id, actor="cli:bob")
    await run_now(store, ROUTING, schedule.id, max_attempts=5, actor="cli:bob")
    await remove_schedule(store, schedule.id, actor="cli:ada")
    entries = await store.audit_log(AuditFilter(subject=f"schedule:{schedule.id}"))
    assert [(entry.actor, entry.action) for entry in entries][::-1] == [
        ("cli:ada", "schedule_added"),
        ("cli:bob", "schedule_paused"),
        ("cli:bob", "schedule_resumed"),
        ("cli:bob", "schedule_ran"),
        ("cli:ada", "schedule_removed"),
    ]
    with pytest.raises(Unknown, match="there is no schedule"):
        await remove_schedule(store, schedule.id, actor="cli:ada")


async def test_a_schedule_of_a_file_runs_only_where_the_file_names_it(
    store: Store, another_store: StoreFactory, clock: Clock
) -> None:
    own = build(draft(), "standup", "file", clock.now)
    await run_due(store, files=[own])
    clock.set(NINE)
    await run_due(await another_store())
    assert await messages(store) == []
    await run_due(store, await another_store(), files=[own])
    assert await times(store, own) == [NINE]


async def test_a_restart_keeps_pause_and_missed_runs_of_a_file_unless_its_times_change(
    store: Store, clock: Clock
) -> None:
    schedules = Schedules(store)
    await run_due(store, files=[build(draft(), "standup", "file", clock.now)])
    clock.set(NINE + timedelta(hours=1))
    again = build(draft(), "standup", "file", clock.now)
    assert await schedules.configure(again)
    assert (await schedules.find("standup")).next_at == NINE
    await pause_schedule(store, "standup", actor="cli:ada")
    assert await schedules.configure(build(draft("0 12 * * *"), "standup", "file", clock.now))
    found = await schedules.find("standup")
    assert (found.next_at, found.paused_at) == (NINE + timedelta(hours=3), clock.now)


async def test_a_file_does_not_take_the_schedule_of_a_person(store: Store, clock: Clock) -> None:
    schedule = await add_schedule(store, draft(), actor="cli:ada")
    assert not await Schedules(store).configure(build(draft(), schedule.id, "file", clock.now))


async def test_a_damaged_schedule_is_paused_and_others_run(store: Store, clock: Clock) -> None:
    damaged = build(draft(), "damaged", "person", clock.now)
    object.__setattr__(damaged, "timing", "never")
    schedules = Schedules(store)
    assert await schedules.add(damaged)
    schedule = await add_schedule(store, draft(), actor="cli:ada")
    clock.set(NINE)
    await run_due(store)
    assert await times(store, schedule) == [NINE]
    assert (await schedules.find("damaged")).paused_at == NINE


async def test_times_in_the_past_and_texts_without_words_are_refused(store: Store) -> None:
    for wrong in (
        draft("2020-01-01T09:00"),
        draft("every 0.1s"),
        draft(to="slack"),
        draft(zone="Mars"),
        Draft(timing="0 9 * * *", text=" ", agent="coder"),
    ):
        with pytest.raises(WrongUsage):
            await add_schedule(store, wrong, actor="cli:ada")
    assert await Schedules(store).all() == []

"""Dead letters in groups: counted, retried, discarded and noted on every store alike."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.queue.audit import AuditFilter
from holdfast.queue.event import OUTBOX
from holdfast.queue.journal import EFFECT_UNKNOWN
from holdfast.queue.outcome import Dead
from holdfast.queue.store import Filter, Store
from holdfast.store.dead_groups import KEEP_NOTES, DeadGroups, Selection, cause_of
from holdfast.testing.clock import Clock
from holdfast.testing.fixtures import StoreFactory

from .steps import claim_one, end, put

ACTOR = "cli:ada"


async def bury(
    store: Store, error: str, error_class: str | None = None, target: str = "coder", **fields: str
) -> int:
    event_id = await put(store, target=target, **fields)
    queue = fields.get("queue", "inbox")
    await end(store, await claim_one(store, target, queue=queue), Dead(error, error_class))
    return event_id


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("order 4711 failed", "order … failed"),
        ("file 'a b.txt' is gone", "file … is gone"),
        ('no "x" in 0xdeadbeef', "no … in …"),
        ("status 503 of job-17", "status 503 of …"),
        ("first line\nsecond line 2", "first line"),
        ("", "Boom"),
    ],
)
def test_a_cause_has_no_numbers_ids_and_quotes(error: str, cause: str) -> None:
    assert cause_of(error, "Boom") == cause


async def test_letters_of_one_cause_are_one_group_newest_first(store: Store, clock: Clock) -> None:
    begun_at = clock.now
    await bury(store, "order 17 failed", "Boom")
    clock.tick(seconds=1)
    newest = await bury(store, "order 9000 failed", "Boom")
    clock.tick(seconds=1)
    await bury(store, "order 18 failed", "Boom", "writer")
    await bury(store, "order 18 failed", "Bang")
    await bury(store, "gone", queue=OUTBOX, target="slack")

    groups = await DeadGroups(store).all()

    assert [(one.queue, one.target, one.error_class, one.count) for one in groups[-1:]] == [
        ("inbox", "coder", "Boom", 2)
    ]
    last = groups[-1]
    assert (last.cause, last.newest_id) == ("order … failed", newest)
    assert (last.oldest_at, (last.newest_at - begun_at).total_seconds()) == (begun_at, 1)
    assert len(groups) == 4
    assert [one.queue for one in await DeadGroups(store).all(OUTBOX)] == [OUTBOX]


async def test_messages_without_an_agent_are_of_the_default_one(store: Store) -> None:
    await bury(store, "no", target="")
    await bury(store, "no", target="coder")

    [group] = await DeadGroups(store, "coder").all()

    assert (group.target, group.count) == ("coder", 2)
    assert len(await DeadGroups(store, "coder").dead_ids(group)) == 2


async def test_a_dry_run_counts_and_changes_nothing(store: Store) -> None:
    for number in range(3):
        await bury(store, f"order {number} failed")
    await bury(store, "another")
    groups = DeadGroups(store)
    group = (await groups.all())[-1]
    which = Selection(group=group.id)

    planned = await groups.retry(which, actor=ACTOR, dry_run=True)

    assert (planned.count, planned.skipped, planned.more) == (3, 0, False)
    assert sum(one.count for one in await groups.all()) == 4
    done = await groups.retry(which, actor=ACTOR)
    assert done == planned
    assert [one.cause for one in await groups.all()] == ["another"]


async def test_unknown_effects_are_skipped_until_somebody_decides(store: Store) -> None:
    await bury(store, "may have happened", EFFECT_UNKNOWN)
    await bury(store, "no")
    groups, everything = DeadGroups(store), Selection(queue="inbox")

    planned = await groups.retry(everything, actor=ACTOR, dry_run=True)
    done = await groups.retry(everything, actor=ACTOR)
    decided = await groups.retry(everything, actor=ACTOR, assume="not-done")

    assert (planned.count, planned.skipped) == (done.count, done.skipped) == (1, 1)
    assert (decided.count, decided.skipped) == (1, 0)


async def test_filters_select_by_queue_agent_class_and_text(store: Store) -> None:
    await bury(store, "100% broken", "Boom")
    await bury(store, "fine", "Bang", "writer")
    await bury(store, "gone", queue=OUTBOX, target="slack")
    groups = DeadGroups(store)

    async def count(**which: Any) -> int:
        return (await groups.discard(Selection(**which), actor=ACTOR, dry_run=True)).count

    assert await count(queue="inbox") == 2
    assert await count(target="writer") == 1
    assert await count(error_class="Boom") == 1
    assert await count(text="100% BROKEN") == 1
    assert await count(text="100_ broken") == 0
    assert await count(queue=OUTBOX, text="gone") == 1


async def test_a_call_changes_a_bounded_number_and_says_that_more_are_left(
    store: Store,
) -> None:
    for number in range(5):
        await bury(store, f"order {number}")
    groups = DeadGroups(store, most_changed=3, batch=2)
    [group] = await groups.all()

    first = await groups.discard(Selection(group=group.id), actor=ACTOR)
    second = await groups.discard(Selection(group=group.id), actor=ACTOR)

    assert (first.count, first.more) == (3, True)
    assert (second.count, second.more) == (2, False)


async def test_unknown_effects_do_not_hide_that_more_are_left(store: Store) -> None:
    for number in range(3):
        await bury(store, f"order {number}")
    for number in range(3):
        await bury(store, f"may have happened {number}", EFFECT_UNKNOWN)
    groups, everything = DeadGroups(store, most_changed=2), Selection(queue="inbox")

    first = await groups.retry(everything, actor=ACTOR)
    second = await groups.retry(everything, actor=ACTOR)

    assert (first.count, first.more) == (2, True)
    assert (second.count, second.more) == (1, False)
    assert second.skipped == 3


async def test_the_default_agent_has_messages_without_a_name_in_the_inbox_alone(
    store: Store,
) -> None:
    await bury(store, "no", target="")
    await bury(store, "no", target="", queue=OUTBOX)
    groups = DeadGroups(store, "coder")

    planned = await groups.discard(Selection(target="coder"), actor=ACTOR, dry_run=True)
    unnamed = await groups.discard(Selection(target=""), actor=ACTOR, dry_run=True)

    assert (planned.count, unnamed.count) == (1, 2)


async def test_two_operators_on_the_same_letters_change_each_once(
    store: Store, another_store: StoreFactory
) -> None:
    ids = [await bury(store, "no") for _ in range(6)]
    other = await another_store()

    changes = await asyncio.gather(
        *(DeadGroups(one).retry(Selection(ids=ids), actor=ACTOR) for one in (store, other))
    )

    assert sum(change.count for change in changes) == 6


async def test_a_retried_letter_that_fails_again_is_in_its_group_again(store: Store) -> None:
    event_id = await bury(store, "order 1 failed", "Boom")
    groups = DeadGroups(store)
    [before] = await groups.all()
    await groups.retry(Selection(ids=[event_id]), actor=ACTOR)
    assert await groups.all() == []
    await end(store, await claim_one(store, "coder"), Dead("order 2 failed", "Boom"))

    [after] = await groups.all()

    assert (after.id, after.count) == (before.id, 1)


async def test_a_note_stays_with_its_group_and_is_in_the_audit_log(
    store: Store, clock: Clock
) -> None:
    event_id = await bury(store, "no")
    groups = DeadGroups(store)
    [group] = await groups.all()
    await groups.note(group.id, "Ada looks at it", actor=ACTOR)
    await groups.note(group.id, "fixed by Bob", actor="cli:bob")

    [noted] = await groups.all()

    assert noted.note is not None
    assert (noted.note.text, noted.note.noted_by) == ("fixed by Bob", "cli:bob")
    entries = await store.audit_log(AuditFilter(action="noted"))
    assert {entry.actor for entry in entries} == {"cli:ada", "cli:bob"}
    clock.tick(seconds=KEEP_NOTES.total_seconds() + 1)
    assert await groups.prune_notes() == 0
    await store.discard(Filter(ids=[event_id]))
    assert await groups.prune_notes() == 1
    await groups.note(group.id, "", actor=ACTOR)

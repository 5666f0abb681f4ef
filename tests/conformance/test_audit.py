"""The audit log records who did what, and nobody changes it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import HoldfastError
from holdfast.memory.observation import Observation
from holdfast.queue.audit import AuditEntry, AuditFilter
from holdfast.queue.store import Filter, Store
from holdfast.store.memory import open_observations
from holdfast.testing.clock import Clock
from tests.conformance.steps import bury, claim_one, put

ROOT = "cli:root"
ALL = AuditFilter()


async def acts(store: Store, which: AuditFilter = ALL, **page: Any) -> list[tuple[str, str, str]]:
    return [
        (entry.actor, entry.action, entry.subject) for entry in await store.audit_log(which, **page)
    ]


async def dead_letter(store: Store) -> int:
    return await bury(store, await put(store))


async def run_sql(store: Any, statement: str) -> None:
    """Run a statement by hand, past the store's own methods."""
    if hasattr(store.engine, "write"):
        await store.engine.write(lambda db: db.connection.execute(statement).fetchall())
    else:
        await store.engine.connections.rows(
            f"{statement.replace(' audit', ' agent.audit')} returning id"
        )


async def test_who_retried_discarded_cancelled_replayed_and_signalled_is_recorded(
    store: Store,
) -> None:
    retried, discarded = await dead_letter(store), await dead_letter(store)
    await store.retry(Filter(ids=[retried]), actor=ROOT)
    await store.discard(Filter(ids=[discarded]), actor="token:ci")
    await claim_one(store)
    assert await store.cancel(retried, "enough", actor=ROOT)
    [again] = await store.replay([retried], actor="api:admin")
    assert await store.signal(again, "approval", True, actor="session:ada")
    assert await acts(store) == [
        ("session:ada", "signalled", f"event:{again}"),
        ("api:admin", "replayed", f"event:{retried}"),
        (ROOT, "cancelled", f"event:{retried}"),
        ("token:ci", "discarded", f"event:{discarded}"),
        (ROOT, "retried", f"event:{retried}"),
    ]
    assert (await store.audit_log(ALL))[1].details == {"newId": again}


async def test_an_act_that_did_nothing_or_has_no_actor_is_not_recorded(store: Store) -> None:
    await store.retry(Filter(ids=[4711]), actor=ROOT)
    await store.discard(Filter(ids=[4711]), actor=ROOT)
    assert not await store.cancel(4711, "enough", actor=ROOT)
    assert await store.replay([4711], actor=ROOT) == []
    assert not await store.signal(4711, "approval", True, actor=ROOT)
    [again] = await store.retry(Filter(ids=[await dead_letter(store)]))
    assert await store.signal(again, "approval", True)
    assert await acts(store) == []


async def test_who_forgot_is_recorded_and_the_subject_only_as_a_pseudonym(store: Store) -> None:
    observations = open_observations(store)
    await observations.save(
        Observation(
            workspace_id="default",
            subject_type="USER",
            subject_id="ann",
            id="a",
            content="likes tea",
        )
    )
    await observations.forget("default", "USER", "ann", actor=ROOT)
    [entry] = await store.audit_log(ALL)
    assert (entry.actor, entry.action) == (ROOT, "forgot")
    assert (
        entry.subject
        == await store.pseudonym("default:USER:ann")
        != await store.pseudonym("default:USER:bob")
    )
    assert "ann" not in repr(entry)
    assert entry.details["observations"] == 1


async def test_an_entry_joins_the_transaction_of_its_act(store: Store) -> None:
    entry = AuditEntry(actor=ROOT, action="rotated", subject="token:admin", details={"count": 1})

    async def fail_after_it() -> None:
        async with store.transaction() as tx:
            await store.audit(entry, tx=tx)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail_after_it()
    assert await acts(store) == []
    async with store.transaction() as tx:
        id = await store.audit(entry, tx=tx)
    [kept] = await store.audit_log(ALL)
    assert (kept.id, kept.subject, kept.details) == (id, "token:admin", {"count": 1})


async def test_the_log_is_listed_newest_first_in_pages_and_by_filter(
    store: Store, clock: Clock
) -> None:
    ids = []
    for number in range(4):
        clock.tick(minutes=1)
        actor = ("cli:ann", "cli:bob")[number % 2]
        ids.append(
            await store.audit(AuditEntry(actor=actor, action="retried", subject=f"event:{number}"))
        )
    await store.audit(AuditEntry(actor=ROOT, action="rotated"))

    async def listed(which: AuditFilter = ALL, **page: Any) -> list[int | None]:
        return [entry.id for entry in await store.audit_log(which, **page)]

    assert await listed(AuditFilter(action="retried")) == ids[::-1]
    assert await listed(AuditFilter(actor="cli:bob")) == [ids[3], ids[1]]
    assert await listed(AuditFilter(subject="event:2")) == [ids[2]]
    assert await listed(AuditFilter(action="retried", since=clock.now - timedelta(minutes=1))) == [
        ids[3],
        ids[2],
    ]
    assert await listed(before_id=ids[2]) == [ids[1], ids[0]]
    assert await listed(AuditFilter(action="retried"), since_id=ids[1]) == [ids[3], ids[2]]
    assert await listed(limit=1, before_id=ids[3]) == [ids[2]]


@pytest.mark.parametrize("statement", ["update audit set actor = 'nobody'", "delete from audit"])
async def test_the_database_refuses_to_change_the_log(store: Store, statement: str) -> None:
    await store.audit(AuditEntry(actor=ROOT, action="rotated"))
    with pytest.raises(HoldfastError, match="append-only"):
        await run_sql(store, statement)
    assert await acts(store) == [(ROOT, "rotated", "")]


async def test_only_retention_removes_old_entries_and_leaves_the_log_guarded(
    store: Store, clock: Clock
) -> None:
    await store.audit(AuditEntry(actor=ROOT, action="rotated", subject="old"))
    clock.tick(days=2)
    await store.audit(AuditEntry(actor=ROOT, action="rotated", subject="new"))
    assert await store.prune_audit(timedelta(days=3)) == 0
    assert await store.prune_audit(timedelta(days=1)) == 1
    assert await acts(store) == [(ROOT, "rotated", "new")]
    clock.tick(days=9)
    with pytest.raises(HoldfastError, match="append-only"):
        await run_sql(store, "delete from audit")


async def test_a_retry_of_many_records_each(store: Store) -> None:
    ids = [await dead_letter(store) for _ in range(3)]
    assert await store.retry(Filter(queue="inbox"), actor=ROOT) == ids
    assert sorted(subject for *_, subject in await acts(store)) == sorted(
        f"event:{id}" for id in ids
    )

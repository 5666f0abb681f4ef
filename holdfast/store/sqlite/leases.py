"""Claiming and keeping turns in SQLite, within a transaction of the writer's."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from sqlite3 import Connection
from typing import Any

from holdfast.errors import LeaseLost
from holdfast.event import INBOX, Event, Turn
from holdfast.store.base import COLLECT_BYTES
from holdfast.store.collector import uncollected
from holdfast.store.payload import dump, parse
from holdfast.store.sqlite.queries import load
from holdfast.store.sqlite.rows import MICROSECOND, Lease, stored_of
from holdfast.store.sqlite.writer import Writing

SQL = load()


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a consumer asks for."""

    queue: str
    targets: Sequence[str]
    limit: int
    lease: timedelta
    holder: str | None
    collect_limit: int
    max_attempts: int


@uncollected
def claim(db: Writing, wanted: Claim) -> list[Turn]:
    connection, now = db.connection, db.now
    lease = Lease(wanted.queue, wanted.holder, now + wanted.lease // MICROSECOND, now)
    heads = _ready(connection, wanted, lease)
    if not heads:
        return []
    followers = _followers(connection, wanted, lease, heads) if wanted.collect_limit > 1 else {}
    [last_fence] = connection.execute(SQL["next_fence"], {"turns": len(heads)}).fetchone()
    first_fence = last_fence - len(heads) + 1
    params = {"until": lease.vt, "now": now, "holder": wanted.holder}
    ids = dump([head.id for head in heads])
    connection.execute(SQL["claim_heads"], params | {"heads": ids, "first_fence": first_fence})
    turns = []
    for fence, head in enumerate(heads, first_fence):
        head.fence = fence
        turns.append(Turn(wanted.queue, fence, (head, *followers.get(head.id, ()))))
    if followers:
        _claim_followers(connection, turns, params)
    return turns


def _claim_followers(connection: Connection, turns: Sequence[Turn], params: dict[str, Any]) -> None:
    behind = [(event, turn.fence) for turn in turns for event in turn.events[1:]]
    for event, fence in behind:
        event.fence = fence
    followers = dump([[event.id, fence] for event, fence in behind])
    connection.execute(SQL["claim_followers"], params | {"followers": followers})


def events(connection: Connection, ids: Sequence[int]) -> list[Event]:
    return [stored_of(row) for row in connection.execute(SQL["events"], {"ids": dump(ids)})]


def _ready(connection: Connection, wanted: Claim, lease: Lease) -> list[Event]:
    """The heads to claim, each target within its limit; in random order, so that a long backlog leaves others room."""
    limits: dict[str, int] = dict(connection.execute(SQL["limits"], {"queue": wanted.queue}).fetchall())
    unnamed = _limit_of_unnamed(connection, wanted.queue) if limits else ""
    places = {
        limit: running - _running(connection, lease.now, wanted.queue, {limit, ""} if limit == unnamed else {limit})
        for limit, running in limits.items()
        if limit in {target or unnamed for target in wanted.targets}
    }
    targets = list(dict.fromkeys(wanted.targets))
    heads: list[Event] = []
    for target in random.sample(targets, len(targets)):
        limit = target or unnamed
        room = min(wanted.limit - len(heads), places.get(limit, wanted.limit))
        found = _waiting(connection, wanted, lease, target, room) if room > 0 else []
        if limit in places:
            places[limit] -= len(found)
        heads += found
    return heads


def _limit_of_unnamed(connection: Connection, queue: str) -> str:
    """Messages that name no agent count for the default agent."""
    row = connection.execute(SQL["default_target"]).fetchone() if queue == INBOX else None
    return str(row[0] or "") if row else ""


def _running(connection: Connection, now: int, queue: str, targets: Collection[str]) -> int:
    params = [{"queue": queue, "target": target, "now": now} for target in targets]
    return sum(connection.execute(SQL["running"], one).fetchone()[0] for one in params)


def _waiting(connection: Connection, wanted: Claim, lease: Lease, target: str, limit: int) -> list[Event]:
    """What of one target may be claimed, longest waiting first."""
    params = {
        "queue": wanted.queue,
        "target": target,
        "now": lease.now,
        "limit": limit,
        "max_attempts": wanted.max_attempts,
    }
    have_run_out, payloads, *columns = connection.execute(SQL["ready"], params).fetchone()
    if have_run_out:
        ids = [id for (id,) in connection.execute(SQL["ready_or_run_out"], params)]
        found = {event.id: event for event in events(connection, ids)}
        return [lease.taken(found[id]) for id in ids]
    return [] if payloads is None else lease.taken_of([payloads, *columns], target)


def _followers(connection: Connection, wanted: Claim, lease: Lease, heads: Sequence[Event]) -> dict[int, list[Event]]:
    """What follows the heads that were never tried, by the id of the head."""
    fresh = connection.execute(SQL["fresh_heads"], {"ids": dump([head.id for head in heads])}).fetchall()
    runs = {head: _run_behind(connection, lease.now, wanted, head, *of_head) for head, *of_head in fresh}
    behind = [id for run in runs.values() for id in run]
    read = {event.id: lease.taken(event) for event in events(connection, behind)} if behind else {}
    return {head: [read[id] for id in run] for head, run in runs.items() if run}


def _run_behind(
    connection: Connection, now: int, wanted: Claim, head: int, lane: str, target: str, size: int
) -> list[int]:
    params = {"queue": wanted.queue, "lane": lane, "head": head, "limit": wanted.collect_limit - 1}
    run: list[int] = []
    for id, its_target, attempts, vt, its_size in connection.execute(SQL["behind"], params):
        size += its_size
        if its_target != target or attempts > 0 or vt > now or size > COLLECT_BYTES:
            break
        run.append(id)
    return run


def are_held(connection: Connection, turns: Sequence[Turn]) -> bool:
    """Whether all of them are, and none is named twice."""
    fences = {event.id: turn.fence for turn in turns for event in turn.events}
    [count] = connection.execute(SQL["count_held"], {"fences": dump(fences)}).fetchone()
    return bool(count == sum([len(turn.events) for turn in turns]))


Held = dict[int, tuple[int, int, int | None]]


def held(connection: Connection, turns: Sequence[Turn]) -> Held:
    """The leases on these turns' events, whoever has them: by id, (fence, attempts, max_attempts)."""
    ids = [event.id for turn in turns for event in turn.events]
    found, *leases = map(parse, connection.execute(SQL["held"], {"ids": dump(ids)}).fetchone())
    return dict(zip(found, zip(*leases, strict=True), strict=True))


def is_held(turn: Turn, there: Held) -> bool:
    for event in turn.events:
        lease = there.get(event.id)
        if lease is None or lease[0] != turn.fence:
            return False
    return True


def renew(db: Writing, turns: Sequence[Turn], lease: timedelta) -> list[Turn]:
    there = held(db.connection, turns)
    ids = [event.id for turn in turns if is_held(turn, there) for event in turn.events]
    params = {"ids": dump(ids), "until": db.now + lease // MICROSECOND, "now": db.now}
    db.connection.execute(SQL["renew"], params)
    return [turn for turn in turns if not is_held(turn, there)]


def checkpoint(db: Writing, turn: Turn, state: str) -> int:
    if not is_held(turn, held(db.connection, [turn])):
        raise LeaseLost(f"the lease on event {turn.primary.id} is lost; drop the work")
    params = {"id": turn.primary.id, "fence": turn.fence, "state": state, "now": db.now}
    [vt] = db.connection.execute(SQL["checkpoint"], params).fetchone()
    return int(vt)

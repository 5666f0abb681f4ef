"""Claiming and keeping turns in SQLite, within a transaction of the writer's."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from sqlite3 import Connection, DataError
from typing import Any

from holdfast.errors import HoldfastError, LeaseLost
from holdfast.queue.event import INBOX, Event, Turn
from holdfast.queue.store import COLLECT_BYTES
from holdfast.store.collector import uncollected
from holdfast.store.payload import dump, may_share_turn, parse
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
    at_most: Sequence[int | None] | None = None


@dataclass(slots=True)
class Found:
    """Heads that were found, and what makes events of them."""

    ids: list[int]
    made: Callable[[], list[Event]]


class Misread(HoldfastError):
    """Events that are leased now, and at least one of them cannot be read."""

    def __init__(self, ids: list[int]) -> None:
        super().__init__("an event that was claimed cannot be read")
        self.ids = ids


def claim(db: Writing, wanted: Claim) -> Callable[[], list[Turn]]:
    """Lease what is ready; the answer makes turns of it, which takes no database."""
    connection, now = db.connection, db.now
    lease = Lease(wanted.queue, wanted.holder, now + wanted.lease // MICROSECOND, now)
    found = _ready(connection, wanted, lease)
    heads = [id for part in found for id in part.ids]
    if not heads:
        return list
    followers = _followers(connection, wanted, lease, heads) if wanted.collect_limit > 1 else {}
    [last_fence] = connection.execute(SQL["next_fence"], {"turns": len(heads)}).fetchone()
    first_fence = last_fence - len(heads) + 1
    params = {"until": lease.vt, "now": now, "holder": wanted.holder}
    connection.execute(
        SQL["claim_heads"], params | {"heads": dump(heads), "first_fence": first_fence}
    )
    fences = dict(zip(heads, range(first_fence, last_fence + 1), strict=True)) if followers else {}
    behind = [[event.id, fences[head]] for head, run in followers.items() for event in run]
    if behind:
        connection.execute(SQL["claim_followers"], params | {"followers": dump(behind)})
    return partial(_turns, wanted.queue, found, followers, first_fence)


@uncollected
def _turns(
    queue: str, found: Sequence[Found], followers: Mapping[int, Sequence[Event]], first_fence: int
) -> list[Turn]:
    turns = []
    try:
        heads = [event for part in found for event in part.made()]
    except (TypeError, ValueError) as error:
        behind = [event.id for run in followers.values() for event in run]
        raise Misread([id for part in found for id in part.ids] + behind) from error
    for fence, head in enumerate(heads, first_fence):
        events = (head, *followers[head.id]) if head.id in followers else (head,)
        for event in events:
            event.fence = fence
        turns.append(Turn(queue, fence, events))
    return turns


def events(connection: Connection, ids: Sequence[int]) -> list[Event]:
    return [stored_of(row) for row in connection.execute(SQL["events"], {"ids": dump(ids)})]


def _ready(connection: Connection, wanted: Claim, lease: Lease) -> list[Found]:
    """Find the heads to claim, each target within its limits."""
    limits: dict[str, int] = dict(
        connection.execute(SQL["limits"], {"queue": wanted.queue}).fetchall()
    )
    unnamed = _limit_of_unnamed(connection, wanted.queue) if limits else ""
    places = {
        limit: running
        - _running(
            connection, lease.now, wanted.queue, {limit, ""} if limit == unnamed else {limit}
        )
        for limit, running in limits.items()
        if limit in {target or unnamed for target in wanted.targets}
    }
    heads: list[Found] = []
    left = here = wanted.limit
    for target, most in _in_order(wanted):
        limit = target or unnamed
        here = here if most is None else most
        room = min(left, here, places.get(limit, wanted.limit))
        if room < 1:
            continue
        found = _waiting(connection, wanted, lease, target, room)
        left -= len(found.ids)
        here -= len(found.ids)
        if limit in places:
            places[limit] -= len(found.ids)
        heads.append(found)
    return heads


def _in_order(wanted: Claim) -> list[tuple[str, int | None]]:
    """Targets with the most of each. Without such limits in random order, so that a long backlog leaves others room."""
    if wanted.at_most is not None:
        return list(zip(wanted.targets, wanted.at_most, strict=True))
    targets = list(dict.fromkeys(wanted.targets))
    return [(target, wanted.limit) for target in random.sample(targets, len(targets))]


def _limit_of_unnamed(connection: Connection, queue: str) -> str:
    """Messages that name no agent count for the default agent."""
    row = connection.execute(SQL["default_target"]).fetchone() if queue == INBOX else None
    return str(row[0] or "") if row else ""


def _running(connection: Connection, now: int, queue: str, targets: Collection[str]) -> int:
    params = [{"queue": queue, "target": target, "now": now} for target in targets]
    return sum(connection.execute(SQL["running"], one).fetchone()[0] for one in params)


def _waiting(connection: Connection, wanted: Claim, lease: Lease, target: str, limit: int) -> Found:
    """What of one target may be claimed, longest waiting first."""
    params = {
        "queue": wanted.queue,
        "target": target,
        "now": lease.now,
        "limit": limit,
        "max_attempts": wanted.max_attempts,
    }
    try:
        have_run_out, ids, *columns = connection.execute(SQL["ready"], params).fetchone()
    except DataError:
        # payloads of more than a gigabyte, which no value of SQLite may have
        return _one_by_one(connection, params, lease)
    if have_run_out:
        return _one_by_one(connection, params, lease)
    found = parse(ids)
    return Found(found, partial(lease.taken_of, target, found, columns))


def _one_by_one(connection: Connection, params: dict[str, Any], lease: Lease) -> Found:
    """The same for any events, whose lease may have run out."""
    ids = [id for (id,) in connection.execute(SQL["ready_or_run_out"], params)]
    by_id = {event.id: lease.taken(event) for event in events(connection, ids)}
    return Found(ids, lambda: [by_id[id] for id in ids])


def _followers(
    connection: Connection, wanted: Claim, lease: Lease, heads: Sequence[int]
) -> dict[int, list[Event]]:
    """What follows the heads that were never tried, by the id of the head."""
    fresh = connection.execute(SQL["fresh_heads"], {"ids": dump(heads)}).fetchall()
    runs = {
        head: _run_behind(connection, lease.now, wanted, head, *of_head) for head, *of_head in fresh
    }
    behind = [id for run in runs.values() for id in run]
    read = {event.id: lease.taken(event) for event in events(connection, behind)} if behind else {}
    return {head: [read[id] for id in run] for head, run in runs.items() if run}


def _run_behind(
    connection: Connection,
    now: int,
    wanted: Claim,
    head: int,
    lane: str,
    target: str,
    sent_by: str | None,
    size: int,
    event: str | None,
) -> list[int]:
    """The untried, due events right behind a head that may share its turn."""
    params = {"queue": wanted.queue, "lane": lane, "head": head, "limit": wanted.collect_limit - 1}
    run: list[int] = []
    for id, its_target, attempts, vt, its_sent_by, its_size, its_event in connection.execute(
        SQL["behind"], params
    ):
        size += its_size
        if its_target != target or attempts > 0 or vt > now or size > COLLECT_BYTES:
            break
        if event is not None and not (its_sent_by == sent_by and may_share(event, its_event)):
            break
        run.append(id)
    return run


def may_share(one: str, other: str) -> bool:
    """Whether two messages of the inbox may share a turn; one that cannot be read is claimed alone."""
    try:
        return may_share_turn(INBOX, parse(one), parse(other))
    except ValueError:
        return False


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

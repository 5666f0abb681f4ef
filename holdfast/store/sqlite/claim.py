"""Claiming turns and keeping them, within a transaction of the writer."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from sqlite3 import Connection

from holdfast.errors import LeaseLost
from holdfast.queue.event import INBOX, Event
from holdfast.queue.store import COLLECT_BYTES
from holdfast.queue.turn import LeasedTurn
from holdfast.store.payload import dump, may_share_turn, parse
from holdfast.store.sqlite.connection import load
from holdfast.store.sqlite.rows import MICROSECOND, Moments, event_of, micros
from holdfast.store.sqlite.writer import Writing

SQL = load()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """The arguments of `Store.claim`."""

    queue: str
    targets: Sequence[str]
    limit: int
    lease: timedelta
    holder: str | None
    collect_limit: int
    max_attempts: int
    at_most: Sequence[int | None] | None = None


def claim(db: Writing, request: ClaimRequest) -> list[LeasedTurn]:
    """Lease ready events and return their turns.

    Raises TypeError or ValueError if an event cannot be read; then nothing is leased."""
    connection = db.connection
    heads = _find_heads(db, request)
    if not heads:
        return []
    followers = _find_followers(db, request, heads) if request.collect_limit > 1 else {}
    [last_fence] = connection.execute(SQL["next_fence"], {"turns": len(heads)}).fetchone()
    fences = dict(zip(heads, range(last_fence - len(heads) + 1, last_fence + 1), strict=True))
    until = db.now + request.lease // MICROSECOND
    params = {"until": until, "now": db.now, "holder": request.holder}
    connection.execute(
        SQL["claim_heads"], params | {"heads": dump(heads), "first_fence": fences[heads[0]]}
    )
    behind = [(id, fences[head]) for head, run in followers.items() for id in run]
    if behind:
        connection.execute(SQL["claim_followers"], params | {"followers": dump(behind)})
    ids = [*heads, *(id for id, _ in behind)]
    events = {event.id: event for event in read_events(connection, ids)}
    if not behind:
        return [LeasedTurn(request.queue, fence, (events[head],)) for head, fence in fences.items()]
    return [
        LeasedTurn(
            request.queue, fence, tuple([events[id] for id in (head, *followers.get(head, ()))])
        )
        for head, fence in fences.items()
    ]


def read_events(connection: Connection, ids: Sequence[int]) -> list[Event]:
    moments = Moments()
    rows = connection.execute(SQL["events"], {"ids": dump(ids)})
    return [event_of(row, moments) for row in rows]


def held(db: Writing, queue: str, holder: str) -> list[LeasedTurn]:
    """Return the turns that a holder leases."""
    moments = Moments()
    params = {"queue": queue, "holder": holder, "now": db.now}
    rows = db.connection.execute(SQL["held_turns"], params)
    turns: dict[int, list[Event]] = {}
    for row in rows:
        event = event_of(row, moments)
        turns.setdefault(event.fence, []).append(event)
    return [LeasedTurn(queue, fence, tuple(events)) for fence, events in turns.items()]


def _find_heads(db: Writing, request: ClaimRequest) -> list[int]:
    """Find the heads to claim, each target within its limits."""
    connection = db.connection
    limits: dict[str, int] = dict(
        connection.execute(SQL["limits"], {"queue": request.queue}).fetchall()
    )
    unnamed = _limit_of_unnamed(connection, request.queue) if limits else ""
    free = {
        limit: running
        - _count_running(db, request.queue, {limit, ""} if limit == unnamed else {limit})
        for limit, running in limits.items()
        if limit in {target or unnamed for target in request.targets}
    }
    heads: list[int] = []
    left = left_of_target = request.limit
    for target, most in _order_targets(request):
        limit = target or unnamed
        left_of_target = left_of_target if most is None else most
        allowed = min(left, left_of_target, free.get(limit, request.limit))
        if allowed < 1:
            continue
        found = _find_ready(db, request, target, allowed)
        left -= len(found)
        left_of_target -= len(found)
        if limit in free:
            free[limit] -= len(found)
        heads += found
    return heads


def _order_targets(request: ClaimRequest) -> list[tuple[str, int | None]]:
    """Return the targets, each with its limit; None shares the limit of the target before it.

    Without limits the order is random, so that a long backlog cannot starve the others."""
    if request.at_most is not None:
        return list(zip(request.targets, request.at_most, strict=True))
    targets = list(dict.fromkeys(request.targets))
    return [(target, request.limit) for target in random.sample(targets, len(targets))]


def _limit_of_unnamed(connection: Connection, queue: str) -> str:
    """Return the default agent: messages that name no agent count for it."""
    row = connection.execute(SQL["default_target"]).fetchone() if queue == INBOX else None
    return str(row[0] or "") if row else ""


def _count_running(db: Writing, queue: str, targets: Collection[str]) -> int:
    params = [{"queue": queue, "target": target, "now": db.now} for target in targets]
    return sum(db.connection.execute(SQL["running"], one).fetchone()[0] for one in params)


def _find_ready(db: Writing, request: ClaimRequest, target: str, limit: int) -> list[int]:
    """Find the ready heads of one target, longest waiting first."""
    params = {
        "queue": request.queue,
        "target": target,
        "now": db.now,
        "limit": limit,
        "max_attempts": request.max_attempts,
    }
    return [id for (id,) in db.connection.execute(SQL["ready"], params)]


def _find_followers(
    db: Writing, request: ClaimRequest, heads: Sequence[int]
) -> dict[int, list[int]]:
    """Find the events that join the turns of untried heads, by the id of the head."""
    fresh = db.connection.execute(SQL["fresh_heads"], {"ids": dump(heads)}).fetchall()
    limit = request.collect_limit
    return {
        head: _find_run_behind(db, request, head, lane, *values)
        if claimed_before is None
        else _find_claimed_behind(db, (request.queue, lane), head, claimed_before, limit)
        for head, lane, claimed_before, *values in fresh
    }


def _find_claimed_behind(
    db: Writing, queue_lane: tuple[str, str], head: int, claimed_at: int, limit: int
) -> list[int]:
    """Find the events that were last claimed with a head, in a turn that was given back.

    The turn recorded steps, which belong to these messages. So no others may join it."""
    queue, lane = queue_lane
    params = {
        "queue": queue,
        "lane": lane,
        "head": head,
        "claimed_at": claimed_at,
        "limit": limit - 1,
    }
    return [id for (id,) in db.connection.execute(SQL["claimed_behind"], params)]


def _find_run_behind(
    db: Writing,
    request: ClaimRequest,
    head: int,
    lane: str,
    target: str,
    sent_by: str | None,
    size: int,
    event: str | None,
) -> list[int]:
    """Find the untried, due events directly behind a head that may share its turn."""
    params = {
        "queue": request.queue,
        "lane": lane,
        "head": head,
        "limit": request.collect_limit - 1,
    }
    run: list[int] = []
    for id, its_target, attempts, vt, its_sent_by, its_size, its_event in db.connection.execute(
        SQL["behind"], params
    ):
        size += its_size
        if its_target != target or attempts > 0 or vt > db.now or size > COLLECT_BYTES:
            break
        if event is not None and not (its_sent_by == sent_by and _may_share(event, its_event)):
            break
        run.append(id)
    return run


def _may_share(one: str, other: str) -> bool:
    """Return whether two inbox messages may share a turn; an unreadable one is claimed alone."""
    try:
        return may_share_turn(INBOX, parse(one), parse(other))
    except ValueError:
        return False


def gather(db: Writing, turn: LeasedTurn, limit: int) -> list[Event]:
    """Add the untried events directly behind a turn that may share it. Returns those added.

    Nothing joins a turn that is lost or was tried before."""
    head = turn.primary
    if head.lane is None or head.attempts != 1 or not is_held(turn, read_leases(db, [turn])):
        return []
    if _was_given_back(db, head):
        before = micros(head.claimed[-2])
        joining = _find_claimed_behind(db, (head.queue, head.lane), head.id, before, limit)
    else:
        joining = _find_joining(db, head, limit)
    if joining:
        params = {"id": head.id, "now": db.now, "ids": dump(joining)}
        db.connection.execute(SQL["join_turn"], params)
    return read_events(db.connection, joining)


def _was_given_back(db: Writing, head: Event) -> bool:
    """Return whether a claimed head recorded steps in a turn that was given back."""
    if len(head.claimed) < 2:
        return False
    [has_steps] = db.connection.execute(SQL["has_steps"], {"id": head.id}).fetchone()
    return bool(has_steps)


def _find_joining(db: Writing, head: Event, limit: int) -> list[int]:
    joining: list[int] = []
    left = COLLECT_BYTES
    params = {"id": head.id, "limit": limit - 1, "now": db.now}
    for id, fits, event, size, head_size in db.connection.execute(SQL["alike_behind"], params):
        left -= size
        if not fits or left < head_size or not _may_join(head, event):
            break
        joining.append(id)
    return joining


def _may_join(head: Event, event: str) -> bool:
    try:
        return may_share_turn(head.queue, head.event, parse(event))
    except ValueError:
        return False


Leases = dict[int, tuple[int, int, int | None]]
"""Leases by the id of the event: fence, attempts and max_attempts."""


def are_all_held(connection: Connection, turns: Sequence[LeasedTurn]) -> bool:
    """Return whether all turns are held, and none is named twice."""
    fences = {event.id: turn.fence for turn in turns for event in turn.events}
    [count] = connection.execute(SQL["count_held"], {"fences": dump(fences)}).fetchone()
    return bool(count == sum([len(turn.events) for turn in turns]))


def read_leases(db: Writing, turns: Sequence[LeasedTurn]) -> Leases:
    """Read the leases on the events of these turns, whoever holds them."""
    ids = [event.id for turn in turns for event in turn.events]
    row = db.connection.execute(SQL["leases"], {"ids": dump(ids)}).fetchone()
    leased, *values = map(parse, row)
    return dict(zip(leased, zip(*values, strict=True), strict=True))


def is_held(turn: LeasedTurn, leases: Leases) -> bool:
    for event in turn.events:
        lease = leases.get(event.id)
        if lease is None or lease[0] != turn.fence:
            return False
    return True


def renew(db: Writing, turns: Sequence[LeasedTurn], lease: timedelta) -> list[LeasedTurn]:
    """Extend the leases of these turns. Returns the turns that are lost."""
    leases = read_leases(db, turns)
    ids = [event.id for turn in turns if is_held(turn, leases) for event in turn.events]
    params = {"ids": dump(ids), "until": db.now + lease // MICROSECOND, "now": db.now}
    db.connection.execute(SQL["renew"], params)
    return [turn for turn in turns if not is_held(turn, leases)]


def checkpoint(db: Writing, turn: LeasedTurn, state: str) -> int:
    """Store the progress of a turn. Returns when its lease ends; raises LeaseLost."""
    if not is_held(turn, read_leases(db, [turn])):
        raise LeaseLost(f"the lease on event {turn.primary.id} is lost; drop the work")
    params = {"id": turn.primary.id, "fence": turn.fence, "state": state, "now": db.now}
    [vt] = db.connection.execute(SQL["checkpoint"], params).fetchone()
    return int(vt)

"""History on PostgreSQL: events, dead letters, conversations, activity and the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from holdfast.chat import AgentMessage, ChatMessage
from holdfast.queue.audit import AuditEntry, AuditFilter
from holdfast.queue.event import Event, FinishedEvent
from holdfast.queue.journal import Assume
from holdfast.queue.pages import Measure, Page
from holdfast.queue.store import DEAD_OUTCOMES, ActivityRow, Count, Filter, Transaction
from holdfast.store.activity import read_activity_row
from holdfast.store.payload import dump, parse, storable
from holdfast.store.postgres.connections import Connections
from holdfast.store.postgres.rows import COLUMNS, FINISHED_COLUMNS, event_of, finished_of
from holdfast.store.readable import make_readable

ANY_NUMBER = 2**31 - 1
FORGET_BATCH = 1000
"""Most rows of activity that one call of agent.forget_activity drops."""
AGENT_MESSAGE = (
    "id", "agent_id", "role", "channel", "sender", "message_id", "content", "conversation",
    "created_at",
)  # fmt: skip
CHAT_MESSAGE = ("id", "team_id", "from_agent", "message", "created_at")
COUNT = (
    "queue", "target", "ready", "delayed", "queued", "leased", "ready_since", "pending_since",
)  # fmt: skip
BETWEEN = "id < coalesce(%s, 9223372036854775807) and id > coalesce(%s, 0)"
WAITING_BETWEEN = (
    "event_id < coalesce(%s, 9223372036854775807) - (select agent.line_offset())"
    " and event_id > coalesce(%s, 0) - (select agent.line_offset())"
)
"""Limits of the ids of lines, in terms of the events, which have an index."""


async def read_finished(
    db: Connections,
    which: Filter,
    *,
    limit: int = 20,
    before_id: int | None = None,
    since_id: int | None = None,
    most_bytes: int | None = None,
) -> Page[FinishedEvent]:
    found = await db.page(
        f"select {FINISHED_COLUMNS} from agent.finished(%s, %s, %s, %s, %s, %s, %s, %s)",
        (*filter_arguments(which), limit, before_id, since_id),
        limit,
        most_bytes,
    )
    return found.map(lambda row: make_readable(finished_of(row)))


async def read_dead_since(
    db: Connections, queue: str, after: tuple[datetime, int], limit: int
) -> list[FinishedEvent]:
    rows = await db.rows(
        f"select {FINISHED_COLUMNS} from agent.died(%s, %s, %s, %s)", (queue, *after, limit)
    )
    return [make_readable(finished_of(row)) for row in rows]


async def read_audit(
    db: Connections,
    which: AuditFilter,
    *,
    limit: int = 20,
    before_id: int | None = None,
    since_id: int | None = None,
    most_bytes: int | None = None,
) -> Page[AuditEntry]:
    found = await db.page(
        "select id, at, actor, action, subject, details::text"
        " from agent.audit_log(%s, %s, %s, %s, %s, %s, %s)",
        (which.action, which.actor, which.subject, which.since, limit, before_id, since_id),
        limit,
        most_bytes,
    )
    return found.map(_audit_entry)


async def pseudonym(db: Connections, name: str) -> str:
    return str(await db.value("select agent.pseudonym(%s)", (storable(name),)))


async def read_live_event(db: Connections, event_id: int) -> Event | None:
    rows = await db.rows(f"select {COLUMNS} from agent.event where id = %s", (event_id,))
    return make_readable(event_of(rows[0])) if rows else None


async def read_waiting(
    db: Connections,
    queue: str,
    target: str,
    *,
    limit: int = 100,
    before_id: int | None = None,
    since_id: int | None = None,
    most_bytes: int | None = None,
) -> Page[Event]:
    found = await db.page(
        f"select {COLUMNS} from agent.event where queue = %s and target = %s"
        f" and {BETWEEN} order by id limit %s",
        (queue, target, before_id, since_id, limit),
        limit,
        most_bytes,
    )
    return found.map(lambda row: make_readable(event_of(row)))


async def read_recent(
    db: Connections,
    queue: str,
    *,
    limit: int = 20,
    before_id: int | None = None,
    since_id: int | None = None,
    most_bytes: int | None = None,
) -> Page[Event]:
    found = await db.page(
        f"select {COLUMNS} from agent.recent(%s, %s, %s, %s)",
        (queue, limit, before_id, since_id),
        limit,
        most_bytes,
    )
    return found.map(lambda row: make_readable(event_of(row)))


async def read_leased(
    db: Connections,
    queue: str,
    limit: int | None,
    before_id: int | None,
    since_id: int | None,
    most_bytes: int | None,
) -> Page[Event]:
    found = await db.page(
        f"select {COLUMNS} from agent.leased(%s) where {BETWEEN} order by id desc limit %s",
        (queue, before_id, since_id, limit),
        ANY_NUMBER if limit is None else limit,
        most_bytes,
    )
    return found.map(lambda row: make_readable(event_of(row)))


async def count_handed_on(db: Connections, root_id: int, before_id: int) -> int:
    return int(await db.value("select agent.handed_on(%s, %s)", (root_id, before_id)))


async def count_spent(db: Connections, root_id: int) -> int:
    return int(await db.value("select agent.spent(%s)", (root_id,)))


async def read_counts(db: Connections) -> list[Count]:
    rows = await db.rows(f"select {', '.join(COUNT)} from agent.counts()")
    return [Count(**dict(zip(COUNT, row, strict=True))) for row in rows]


async def read_outcomes(db: Connections, queue: str) -> dict[str, int]:
    return dict(
        await db.rows(
            "select outcome, count(*) from agent.event_hist where queue = %s group by outcome",
            (queue,),
        )
    )


async def read_oldest_snapshot(db: Connections) -> timedelta | None:
    age: timedelta | None = await db.value("select agent.oldest_snapshot()")
    return age


CURRENT = (
    "not exists (select from agent.message_version as version where version.superseded"
    " and version.message_id = coalesce(nullif(line.origin, ''), line.message_id))"
)
"""The condition that a line's message was not replaced by a later version."""


async def read_agent_messages(
    db: Connections,
    agent_id: str,
    *,
    conversation: str | None = None,
    waiting: bool = True,
    limit: int = 20,
    before_id: int | None = None,
    since_id: int | None = None,
    most_bytes: int | None = None,
) -> Page[AgentMessage]:
    # Two statements instead of "or is null": each has an index of its own.
    of_one = () if conversation is None else (conversation,)
    columns = ", ".join(AGENT_MESSAGE)
    wanted = f"agent_id = %s {'and conversation = %s' if of_one else ''}"
    current = CURRENT if of_one else "true"
    statement = (
        f"(select {columns} from agent.agent_message as line where {wanted} and {current}"
        f" and {BETWEEN} order by id desc limit %s)"
    )
    arguments = (agent_id, *of_one, before_id, since_id, limit)
    if waiting:
        statement += (
            f" union all (select {columns} from agent.message_line where is_live and {wanted}"
            f" and {WAITING_BETWEEN} order by event_id desc limit %s) order by id desc limit %s"
        )
        arguments = (*arguments, *arguments, limit)
    found = await db.page(statement, arguments, limit, most_bytes)
    return found.map(lambda row: AgentMessage(**dict(zip(AGENT_MESSAGE, row, strict=True))))


async def read_chat_messages(
    db: Connections,
    team_id: str,
    *,
    limit: int = 20,
    before_id: int | None = None,
    since_id: int | None = None,
    most_bytes: int | None = None,
) -> Page[ChatMessage]:
    found = await db.page(
        f"select {', '.join(CHAT_MESSAGE)} from agent.chat_messages"
        f" where team_id = %s and {BETWEEN} order by id desc limit %s",
        (team_id, before_id, since_id, limit),
        limit,
        most_bytes,
    )
    return found.map(lambda row: ChatMessage(**dict(zip(CHAT_MESSAGE, row, strict=True))))


async def retry(
    db: Connections, which: Filter, actor: str | None, assume: Assume | None
) -> list[int]:
    rows = await db.rows(
        "select id, agent.add_audit(%s, 'retried', 'event:' || id) from agent.retry_events"
        "(array(select id from agent.finished(%s, %s, %s, %s, %s)), %s) as id",
        (actor, *filter_arguments(dead_only(which)), assume),
    )
    return sorted(row[0] for row in rows)


async def discard(db: Connections, which: Filter, actor: str | None) -> list[int]:
    rows = await db.rows(
        "select id, agent.add_audit(%s, 'discarded', 'event:' || id) from agent.discard_events"
        "(array(select id from agent.finished(%s, %s, %s, %s, %s))) as id",
        (actor, *filter_arguments(dead_only(which))),
    )
    return sorted(row[0] for row in rows)


async def replay(db: Connections, ids: Sequence[int], actor: str | None) -> list[int]:
    rows = await db.rows(
        "select new_id, agent.add_audit(%s, 'replayed', 'event:' || id"
        ", jsonb_build_object('newId', new_id))"
        " from unnest(%s::int8[]) with ordinality as asked (id, nth)"
        " cross join lateral agent.replay_event(id) as new_id"
        " where new_id is not null order by nth",
        (actor, list(ids)),
    )
    return [row[0] for row in rows]


async def read_activity(
    db: Connections, position: int, limit: int, most_bytes: int | None
) -> Page[ActivityRow]:
    rows = await db.rows(
        "select place, frames, created_at from agent.activity_page(%s, %s, %s)",
        (position, limit, most_bytes),
    )
    found = Measure(limit, most_bytes).page(rows)
    return found.map(lambda row: read_activity_row(row[0], row[1], int(row[2].timestamp() * 1000)))


async def read_activity_span(db: Connections) -> tuple[int, int]:
    [(first, following)] = await db.rows("select first, next from agent.activity_span()")
    return first, following


async def forget_activity(db: Connections, keep: timedelta) -> int:
    forgotten, batch = 0, FORGET_BATCH
    while batch == FORGET_BATCH:
        batch = await db.value("select agent.forget_activity(%s)", (keep,))
        forgotten += batch
    return forgotten


async def add_audit(db: Connections, entry: AuditEntry, tx: Transaction | None) -> int:
    statement = "select agent.add_audit(%s, %s, %s, %s)"
    arguments = (*storable((entry.actor, entry.action, entry.subject)), dump(entry.details))
    return int(await db.value(statement, arguments, tx))


async def prune_audit(db: Connections, keep: timedelta) -> int:
    return int(await db.value("select agent.prune_audit(agent.now() - %s)", (keep,)))


def dead_only(which: Filter) -> Filter:
    outcomes = [
        outcome for outcome in DEAD_OUTCOMES if which.outcomes is None or outcome in which.outcomes
    ]
    return Filter(
        ids=which.ids, queue=which.queue, target=which.target, outcomes=outcomes, error=which.error
    )


def filter_arguments(which: Filter) -> tuple[Any, ...]:
    ids = None if which.ids is None else list(which.ids)
    outcomes = None if which.outcomes is None else list(which.outcomes)
    return ids, which.queue, which.target, outcomes, which.error


def _audit_entry(row: tuple[Any, ...]) -> AuditEntry:
    id_, at, actor, action, subject, details = row
    return AuditEntry(
        id=id_, at=at, actor=actor, action=action, subject=subject, details=parse(details)
    )

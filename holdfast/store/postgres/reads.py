"""What people and pages read of the PostgreSQL store; nothing here changes anything."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from holdfast.queue.audit import AuditEntry, AuditFilter
from holdfast.queue.event import Event, FinishedEvent
from holdfast.queue.pages import Measure, Page
from holdfast.queue.record import AgentMessage, ChatMessage
from holdfast.queue.store import DEAD_OUTCOMES, Count, Filter, Happened, Process
from holdfast.store.activity import happened
from holdfast.store.payload import parse, storable
from holdfast.store.postgres.connections import Connections
from holdfast.store.postgres.wire import COLUMNS, FINISHED_COLUMNS, event_of, finished_of
from holdfast.store.readable import setting_of, shown

ANY_NUMBER = 2**31 - 1


class PostgresReads:
    """The reading half of the store."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    @property
    def connections(self) -> Connections:
        """For what lives beside the events (memory)."""
        return self._connections

    async def now(self) -> datetime:
        moment: datetime = await self._connections.value("select agent.now()")
        return moment

    async def finished(
        self,
        which: Filter,
        *,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[FinishedEvent]:
        found = await self._connections.page(
            f"select {FINISHED_COLUMNS} from agent.finished(%s, %s, %s, %s, %s, %s, %s, %s)",
            (*filter_arguments(which), limit, before_id, since_id),
            limit,
            most_bytes,
        )
        return found.made(lambda row: shown(finished_of(row)))

    async def dead(
        self,
        which: Filter,
        *,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[FinishedEvent]:
        return await self.finished(
            dead_only(which),
            limit=limit,
            before_id=before_id,
            since_id=since_id,
            most_bytes=most_bytes,
        )

    async def died(
        self, queue: str, after: tuple[datetime, int], *, limit: int
    ) -> list[FinishedEvent]:
        rows = await self._connections.rows(
            f"select {FINISHED_COLUMNS} from agent.died(%s, %s, %s, %s)", (queue, *after, limit)
        )
        return [shown(finished_of(row)) for row in rows]

    async def audit_log(
        self,
        which: AuditFilter,
        *,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[AuditEntry]:
        found = await self._connections.page(
            "select id, at, actor, action, subject, details::text from agent.audit_log(%s, %s, %s, %s, %s, %s, %s)",
            (which.action, which.actor, which.subject, which.since, limit, before_id, since_id),
            limit,
            most_bytes,
        )
        return found.made(_audit_entry)

    async def pseudonym(self, name: str) -> str:
        return str(await self._connections.value("select agent.pseudonym(%s)", (storable(name),)))

    async def live(self, event_id: int) -> Event | None:
        rows = await self._connections.rows(
            f"select {COLUMNS} from agent.event where id = %s", (event_id,)
        )
        return shown(event_of(rows[0])) if rows else None

    async def waiting(
        self,
        queue: str,
        target: str,
        *,
        limit: int = 100,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[Event]:
        found = await self._connections.page(
            f"select {COLUMNS} from agent.event where queue = %s and target = %s"
            " and id < coalesce(%s, 9223372036854775807) and id > coalesce(%s, 0) order by id limit %s",
            (queue, target, before_id, since_id, limit),
            limit,
            most_bytes,
        )
        return found.made(lambda row: shown(event_of(row)))

    async def recent(
        self,
        queue: str,
        *,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[Event]:
        found = await self._connections.page(
            f"select {COLUMNS} from agent.recent(%s, %s, %s, %s)",
            (queue, limit, before_id, since_id),
            limit,
            most_bytes,
        )
        return found.made(lambda row: shown(event_of(row)))

    async def leased(
        self,
        queue: str,
        *,
        limit: int | None = None,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[Event]:
        found = await self._connections.page(
            f"select {COLUMNS} from agent.leased(%s)"
            " where id < coalesce(%s, 9223372036854775807) and id > coalesce(%s, 0) order by id desc limit %s",
            (queue, before_id, since_id, limit),
            ANY_NUMBER if limit is None else limit,
            most_bytes,
        )
        return found.made(lambda row: shown(event_of(row)))

    async def handed_on(self, root_id: int, before_id: int) -> int:
        return int(
            await self._connections.value("select agent.handed_on(%s, %s)", (root_id, before_id))
        )

    async def spent(self, root_id: int) -> int:
        return int(await self._connections.value("select agent.spent(%s)", (root_id,)))

    async def counts(self) -> list[Count]:
        names = (
            "queue",
            "target",
            "ready",
            "delayed",
            "queued",
            "leased",
            "ready_since",
            "pending_since",
        )
        rows = await self._connections.rows(f"select {', '.join(names)} from agent.counts()")
        return [Count(**dict(zip(names, row, strict=True))) for row in rows]

    async def outcomes(self, queue: str) -> dict[str, int]:
        return dict(
            await self._connections.rows(
                "select outcome, count(*) from agent.event_hist where queue = %s group by outcome",
                (queue,),
            )
        )

    async def oldest_snapshot(self) -> timedelta | None:
        age: timedelta | None = await self._connections.value("select agent.oldest_snapshot()")
        return age

    async def setting(self, key: str) -> Any:
        rows = await self._connections.rows(
            "select value from agent.setting where key = %s", (key,)
        )
        return setting_of(rows[0][0]) if rows else None

    async def processes(self) -> list[Process]:
        rows = await self._connections.rows(
            "select id, host, started_at, seen_at, last_wake_reason, turns, serves"
            " from agent.process order by started_at, id"
        )
        return [
            Process(
                id=id_,
                host=host,
                started_at=started_at,
                seen_at=seen_at,
                last_wake_reason=reason,
                turns=turns,
                serves=None if serves is None else parse(serves),
            )
            for id_, host, started_at, seen_at, reason, turns, serves in rows
        ]

    async def agent_messages(
        self,
        agent_id: str,
        *,
        conversation: str | None = None,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[AgentMessage]:
        # Said or left out, never "or is null": each has an index of its own.
        of_one = () if conversation is None else (conversation,)
        found = await self._connections.page(
            "select id, agent_id, role, channel, sender, message_id, content, conversation, created_at"
            f" from agent.agent_message where agent_id = %s {'and conversation = %s' if of_one else ''}"
            " and id < coalesce(%s, 9223372036854775807) and id > coalesce(%s, 0)"
            " order by id desc limit %s",
            (agent_id, *of_one, before_id, since_id, limit),
            limit,
            most_bytes,
        )
        names = (
            "id",
            "agent_id",
            "role",
            "channel",
            "sender",
            "message_id",
            "content",
            "conversation",
            "created_at",
        )
        return found.made(lambda row: AgentMessage(**dict(zip(names, row, strict=True))))

    async def chat_messages(
        self,
        team_id: str,
        *,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[ChatMessage]:
        found = await self._connections.page(
            "select id, team_id, from_agent, message, created_at from agent.chat_messages"
            " where team_id = %s and id < coalesce(%s, 9223372036854775807) and id > coalesce(%s, 0)"
            " order by id desc limit %s",
            (team_id, before_id, since_id, limit),
            limit,
            most_bytes,
        )
        names = ("id", "team_id", "from_agent", "message", "created_at")
        return found.made(lambda row: ChatMessage(**dict(zip(names, row, strict=True))))

    async def activity(
        self, position: int, *, limit: int = 500, most_bytes: int | None = None
    ) -> Page[Happened]:
        rows = await self._connections.rows(
            "select place, frames, created_at from agent.activity_page(%s, %s, %s)",
            (position, limit, most_bytes),
        )
        found = Measure(limit, most_bytes).page(rows)
        return found.made(lambda row: happened(row[0], row[1], int(row[2].timestamp() * 1000)))

    async def activity_span(self) -> tuple[int, int]:
        [(first, following)] = await self._connections.rows(
            "select first, next from agent.activity_span()"
        )
        return first, following


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

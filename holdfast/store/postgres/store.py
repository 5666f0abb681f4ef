"""The PostgreSQL store: it calls the functions of schema agent, which are the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from operator import attrgetter
from types import TracebackType
from typing import Any, TypeAlias

from typing_extensions import Unpack

from holdfast.chat import AgentMessage, ChatMessage, LineOptions
from holdfast.message import Payload
from holdfast.queue.audit import AuditEntry, AuditFilter, event_subject
from holdfast.queue.event import OUTBOX, Event, FinishedEvent, NewEvent
from holdfast.queue.journal import Assume, Journal, JournalEntry, Step
from holdfast.queue.outcome import Lost, Outcome, Settled
from holdfast.queue.pages import Page, PageOptions
from holdfast.queue.record import Record
from holdfast.queue.store import (
    DEFAULT_MAX_ATTEMPTS,
    Acked,
    ActivityRow,
    Clock,
    Count,
    Filter,
    Process,
    SweepPolicy,
    Swept,
    Transaction,
)
from holdfast.queue.turn import LeasedTurn
from holdfast.store.failure import stored_error
from holdfast.store.journal import lease_lost, stored_text
from holdfast.store.payload import dump, storable, storable_name
from holdfast.store.postgres import history, journal
from holdfast.store.postgres.batch import Batch
from holdfast.store.postgres.bulk import is_bulk, is_plain, put_bulk
from holdfast.store.postgres.connections import Connections, translate_errors
from holdfast.store.postgres.fleet import Fleet
from holdfast.store.postgres.rows import (
    COLUMNS,
    end_of,
    event_of,
    lease_of,
    new_event,
    one_event,
    record,
    turns_of,
)
from holdfast.store.readable import setting_of
from holdfast.store.watch import Watch

BATCH = 1000
"""Maximum number of events or turns that share one call."""

JOURNAL_BATCH = 100
"""Maximum number of journal entries that share one call: the result of a step may have 1 MiB."""

VACUUM = (
    "vacuum agent.event, agent.event_hist, agent.agent_message, agent.chat_message, agent.activity,"
    " agent.setting, agent.observation, agent.knowledge, agent.step, agent.journal,"
    " agent.journal_text, agent.signal"
)

SWEEP = attrgetter(
    "queue", "max_attempts", "expire_after", "discard_unserved", "dedup_window", "keep_history"
)
"""Returns the arguments of agent.sweep, in its order."""

SWEPT = ("dead", "expired", "discarded", "repaired_lanes", "forgotten", "pruned")
"""The counts that agent.sweep returns, in its order."""

STORE_ONE = "select event_id, is_head from agent.store_one(%s, %s, %s, %s, %s, %s, %s, %s)"
STORE_ALL = "select ids, ready from agent.store_all(%s, %s, true)"
SETTLE = "select ended, ready from agent.settle_turns(%s)"

_Put: TypeAlias = "tuple[NewEvent | None, Record | None]"


class PostgresStore:
    """A store on PostgreSQL; use it as an async context manager.

    Events put at the same time share a call and a commit, and so do settled turns."""

    def __init__(
        self,
        url: str,
        *,
        direct_url: str | None = None,
        clock: Clock | None = None,
        pool_size: int = 8,
        watch: Watch | None = None,
    ) -> None:
        self._connections = Connections(url, clock=clock, size=pool_size)
        # A direct URL means that the other one leads to a pooler, which passes on no wake-ups.
        self._fleet = Fleet(direct_url or url, self._connections, watch or Watch())
        self._puts: Batch[_Put, int | None] = Batch(self._put_together, BATCH)
        self._settles: Batch[Payload, str] = Batch(self._settle_together, BATCH)
        self._entries: Batch[Payload, bool] = Batch(self._record_together, JOURNAL_BATCH)
        self._stack = AsyncExitStack()
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> PostgresStore:
        await self._stack.enter_async_context(self._connections)
        await self._stack.enter_async_context(self._tasks)
        self._running = [
            self._tasks.create_task(self._puts.run()),
            self._tasks.create_task(self._settles.run()),
            self._tasks.create_task(self._entries.run()),
            self._tasks.create_task(self._fleet.run()),
        ]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._fleet.flush()
        for task in self._running:
            task.cancel()
        await self._stack.__aexit__(None, None, None)

    async def close(self) -> None:
        await self.__aexit__(None, None, None)

    @property
    def connections(self) -> Connections:
        """The pool, for the stores that share the database (memory, credentials)."""
        return self._connections

    @property
    def engine(self) -> PostgresStore:
        """Return this store."""
        return self

    async def now(self) -> datetime:
        moment: datetime = await self._connections.value("select agent.now()")
        return moment

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        with translate_errors():
            async with self._connections.transaction() as connection:
                yield connection

    async def put(
        self,
        events: Sequence[NewEvent],
        *,
        records: Sequence[Record] = (),
        tx: Transaction | None = None,
    ) -> list[int | None]:
        if tx is not None:
            arguments = (
                dump([new_event(new) for new in events]),
                dump([record(line) for line in records]),
            )
            return list(await self._connections.value("select agent.put(%s, %s)", arguments, tx))
        wanted: list[_Put] = [(new, None) for new in events] + [(None, line) for line in records]
        return (await self._puts.add(wanted))[: len(events)] if wanted else []

    async def _put_together(self, wanted: list[_Put]) -> list[int | None]:
        events = [new for new, _ in wanted if new is not None]
        ids = iter(await self._put_all(events, [line for _, line in wanted if line is not None]))
        return [next(ids) if new is not None else None for new, _ in wanted]

    async def _put_all(self, events: list[NewEvent], lines: list[Record]) -> list[int | None]:
        ids: list[int | None]
        if is_bulk(events):
            ids, ready = await put_bulk(self._connections, events, lines)
            self._fleet.wake(ready)
            return ids
        if len(events) == 1 and not lines and is_plain(events[0]):
            [(id, is_head)] = await self._connections.rows(STORE_ONE, one_event(events[0]))
            self._fleet.wake([events[0].queue] if is_head else ())
            return [id]
        records = dump([record(line) for line in lines]) if lines else None
        arguments = dump([new_event(new) for new in events]), records
        [(ids, woken)] = await self._connections.rows(STORE_ALL, arguments)
        self._fleet.wake(woken)
        return ids

    async def say(self, line: ChatMessage, *, tx: Transaction | None = None) -> int:
        statement = "select agent.add_chat_message(%s, %s, %s, %s, %s)"
        arguments = storable((line.team_id, line.from_agent, line.message, line.subject, line.key))
        return int(await self._connections.value(statement, arguments, tx))

    async def gather(self, turn: LeasedTurn, limit: int) -> bool:
        rows = await self._connections.rows(
            f"select {COLUMNS} from agent.gather(%s, %s, %s)", (turn.primary.id, turn.fence, limit)
        )
        turn.events += tuple(event_of(row) for row in rows)
        return bool(rows)

    async def claim(
        self,
        queue: str,
        targets: Sequence[str],
        *,
        limit: int,
        lease: timedelta,
        holder: str | None = None,
        collect_limit: int = 1,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        at_most: Sequence[int | None] | None = None,
    ) -> list[LeasedTurn]:
        if limit <= 0 or not targets:
            return []
        limits = None if at_most is None else list(at_most)
        rows = await self._connections.rows_without_unreadable(
            f"select {COLUMNS} from agent.claim_turns(%s, %s, %s, %s, %s, %s, %s, %s::int4[])",
            (queue, list(targets), limit, lease, holder, collect_limit, max_attempts, limits),
        )
        return turns_of(rows)

    async def renew(self, turns: Sequence[LeasedTurn], lease: timedelta) -> list[LeasedTurn]:
        if not turns:
            return []
        leases = dump([lease_of(turn) for turn in turns])
        lost = set(await self._connections.value("select agent.renew(%s, %s)", (leases, lease)))
        return [turn for turn in turns if turn.fence in lost]

    async def checkpoint(self, turn: LeasedTurn, state: Payload) -> datetime:
        until: datetime | None = await self._connections.value(
            "select agent.checkpoint(%s, %s, %s)", (turn.ids, turn.fence, dump(state))
        )
        if until is None:
            raise lease_lost(turn)
        return until

    async def record(self, entry: JournalEntry) -> None:
        [is_held] = await self._entries.add([journal.entry_row(entry)])
        if not is_held:
            raise lease_lost(entry.turn)

    async def _record_together(self, entries: list[Payload]) -> list[bool]:
        return await journal.record(self._connections, entries)

    async def journal(self, event_id: int, *, offset: int = 0, results: bool = True) -> Journal:
        return await journal.read_journal(self._connections, event_id, offset, results=results)

    async def signal(
        self, event_id: int, name: str, value: Any, *, actor: str | None = None
    ) -> bool:
        rows = await self._connections.rows(
            "select done, case when done then agent.add_audit(%s, 'signalled', %s) end"
            " from agent.signal_event(%s, %s, %s) as done",
            (actor, event_subject(event_id), event_id, stored_text(name), dump(value)),
        )
        return bool(rows[0][0])

    async def take_signal(self, turn: LeasedTurn, step: Step) -> Step | None:
        taken = await journal.take_signal(self._connections, turn, step)
        if isinstance(taken, Lost):
            raise lease_lost(turn)
        return taken

    async def resume_signalled(self, event_id: int | None = None) -> int:
        return int(await self._connections.value("select agent.resume_signalled(%s)", (event_id,)))

    async def settle(
        self,
        ends: Sequence[tuple[LeasedTurn, Outcome]],
        *,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    ) -> list[Settled | Lost]:
        wanted = [end_of(turn, outcome, max_attempts) for turn, outcome in ends]
        ended = await self._settles.add(wanted) if wanted else []
        return [_settle_result(turn, how) for (turn, _), how in zip(ends, ended, strict=True)]

    async def held(self, queue: str, holder: str) -> list[LeasedTurn]:
        rows = await self._connections.rows(
            f"select {COLUMNS} from agent.held_turns(%s, %s)", (queue, holder)
        )
        return turns_of(rows)

    async def release(self, turns: Sequence[LeasedTurn]) -> list[Settled | Lost]:
        leases = dump([lease_of(turn) for turn in turns])
        rows = (
            await self._connections.rows("select ended from agent.release(%s)", (leases,))
            if turns
            else []
        )
        return [_settle_result(turn, row[0]) for turn, row in zip(turns, rows, strict=True)]

    async def _settle_together(self, ends: list[Payload]) -> list[str]:
        [(ended, ready)] = await self._connections.rows(SETTLE, (dump(ends),))
        self._fleet.wake(ready)
        return list(ended)

    async def cancel(
        self, event_id: int, reason: str, *, actor: str | None = None, leased_only: bool = True
    ) -> bool:
        rows = await self._connections.rows(
            "select done, case when done then agent.add_audit(%s, 'cancelled', %s) end"
            " from agent.cancel_event(%s, %s, %s) as done",
            (actor, event_subject(event_id), event_id, stored_error(reason), leased_only),
        )
        return bool(rows[0][0])

    async def ack(self, event_id: int, queue: str = OUTBOX) -> Acked:
        acked: Acked = await self._connections.value(
            "select agent.ack_event(%s, %s)", (event_id, queue)
        )
        return acked

    async def amend(
        self, event_id: int, payload: Payload | None, routed_text: str | None = None
    ) -> bool:
        given = event_id, None if payload is None else dump(payload), storable_name(routed_text)
        return bool(await self._connections.value("select agent.amend_event(%s, %s, %s)", given))

    async def wake(self, queue: str) -> None:
        await self._connections.value("select agent.wake(array[%s])", (queue,))

    async def limit(self, queue: str, target: str, running: int | None) -> None:
        await self._connections.value(
            "select agent.limit_target(%s, %s, %s)", (queue, target, running)
        )

    async def next_due(self, queue: str, targets: Sequence[str]) -> datetime | None:
        due: datetime | None = await self._connections.value(
            "select agent.next_due(%s, %s)", (queue, list(targets))
        )
        return due

    async def bury(self, queue: str, max_attempts: int = DEFAULT_MAX_ATTEMPTS) -> int:
        return int(
            await self._connections.value("select agent.bury(%s, %s)", (queue, max_attempts))
        )

    async def sweep(self, policy: SweepPolicy) -> Swept:
        rows = await self._connections.rows_without_unreadable(
            "select dead, expired, discarded, mended, forgotten, pruned"
            " from agent.sweep(%s, %s, %s, %s, %s, %s)",
            SWEEP(policy),
        )
        return Swept(**dict(zip(SWEPT, rows[0], strict=True)))

    async def live(self, event_id: int) -> Event | None:
        return await history.read_live_event(self._connections, event_id)

    async def leased(
        self,
        queue: str,
        *,
        limit: int | None = None,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[Event]:
        return await history.read_leased(
            self._connections, queue, limit, before_id, since_id, most_bytes
        )

    async def waiting(self, queue: str, target: str, **page: Unpack[PageOptions]) -> Page[Event]:
        return await history.read_waiting(self._connections, queue, target, **page)

    async def recent(self, queue: str, **page: Unpack[PageOptions]) -> Page[Event]:
        return await history.read_recent(self._connections, queue, **page)

    async def finished(self, which: Filter, **page: Unpack[PageOptions]) -> Page[FinishedEvent]:
        return await history.read_finished(self._connections, which, **page)

    async def dead(self, which: Filter, **page: Unpack[PageOptions]) -> Page[FinishedEvent]:
        return await history.read_finished(self._connections, history.dead_only(which), **page)

    async def died(
        self, queue: str, after: tuple[datetime, int], *, limit: int
    ) -> list[FinishedEvent]:
        return await history.read_dead_since(self._connections, queue, after, limit)

    async def retry(
        self, which: Filter, *, actor: str | None = None, assume: Assume | None = None
    ) -> list[int]:
        return await history.retry(self._connections, which, actor, assume)

    async def discard(self, which: Filter, *, actor: str | None = None) -> list[int]:
        return await history.discard(self._connections, which, actor)

    async def replay(self, ids: Sequence[int], *, actor: str | None = None) -> list[int]:
        return await history.replay(self._connections, ids, actor)

    async def handed_on(self, root_id: int, before_id: int) -> int:
        return await history.count_handed_on(self._connections, root_id, before_id)

    async def spent(self, root_id: int) -> int:
        return await history.count_spent(self._connections, root_id)

    async def counts(self) -> list[Count]:
        return await history.read_counts(self._connections)

    async def outcomes(self, queue: str) -> dict[str, int]:
        return await history.read_outcomes(self._connections, queue)

    async def oldest_snapshot(self) -> timedelta | None:
        return await history.read_oldest_snapshot(self._connections)

    async def agent_messages(
        self, agent_id: str, **options: Unpack[LineOptions]
    ) -> Page[AgentMessage]:
        return await history.read_agent_messages(self._connections, agent_id, **options)

    async def chat_messages(self, team_id: str, **page: Unpack[PageOptions]) -> Page[ChatMessage]:
        return await history.read_chat_messages(self._connections, team_id, **page)

    async def audit(self, entry: AuditEntry, *, tx: Transaction | None = None) -> int:
        return await history.add_audit(self._connections, entry, tx)

    async def audit_log(self, which: AuditFilter, **page: Unpack[PageOptions]) -> Page[AuditEntry]:
        return await history.read_audit(self._connections, which, **page)

    async def pseudonym(self, name: str) -> str:
        return await history.pseudonym(self._connections, name)

    async def prune_audit(self, keep: timedelta) -> int:
        return await history.prune_audit(self._connections, keep)

    async def activity(
        self, position: int, *, limit: int = 500, most_bytes: int | None = None
    ) -> Page[ActivityRow]:
        return await history.read_activity(self._connections, position, limit, most_bytes)

    async def activity_span(self) -> tuple[int, int]:
        return await history.read_activity_span(self._connections)

    async def forget_activity(self, keep: timedelta) -> int:
        return await history.forget_activity(self._connections, keep)

    async def vacuum(self, *, at_once: bool = True) -> None:
        if at_once:
            await self._connections.execute_alone(VACUUM)

    async def setting(self, key: str) -> Any:
        rows = await self._connections.rows(
            "select value from agent.setting where key = %s", (key,)
        )
        return setting_of(rows[0][0]) if rows else None

    async def set_setting(self, key: str, value: Any, *, tx: Transaction | None = None) -> None:
        arguments = (key, None if value is None else dump(value))
        await self._connections.value("select agent.set_setting(%s, %s)", arguments, tx)

    async def use_choice(self, key: str, *, tx: Transaction | None = None) -> None:
        await self._connections.value("select agent.use_choice(%s)", (key,), tx)

    async def prune_choices(
        self, keep: timedelta | None, most: int, channels: Sequence[str]
    ) -> int:
        arguments = (keep, most, list(channels))
        return int(
            await self._connections.value(
                "select agent.prune_choices(agent.now() - %s::interval, %s, %s)", arguments
            )
        )

    async def register(self, process: Process) -> None:
        await self._fleet.register(process)

    async def unregister(self, process_id: str) -> None:
        await self._fleet.unregister(process_id)

    async def refresh_process(self, process: Process) -> None:
        await self._fleet.refresh_process(process)

    async def processes(self) -> list[Process]:
        return await self._fleet.processes()

    async def reap(self, max_attempts: Mapping[str, int] | None = None) -> list[str]:
        return await self._fleet.reap(max_attempts)

    async def expect(self, queue: str, is_expected: bool = True) -> None:
        await self._fleet.expect(queue, is_expected)

    def wakeups(self, queue: str | None = None) -> AsyncIterator[str]:
        return self._fleet.wakeups(queue)


def _settle_result(turn: LeasedTurn, how: str) -> Settled | Lost:
    return Lost(turn) if how == "lost" else Settled(turn, how)

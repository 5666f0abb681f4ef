"""The Store on SQLite: one file, one writer thread per process, readers beside it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from typing import Any, TypeVar

from typing_extensions import Unpack

from holdfast.chat import AgentMessage, ChatMessage, NewConversation
from holdfast.errors import HoldfastError
from holdfast.message import Payload
from holdfast.queue.audit import AuditEntry, AuditFilter
from holdfast.queue.event import OUTBOX, Event, FinishedEvent, NewEvent
from holdfast.queue.journal import Assume, Journal, JournalEntry, Step
from holdfast.queue.outcome import Lost, Outcome, Settled, Snooze
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
from holdfast.queue.wake import Wakeups
from holdfast.store.journal import lease_lost, size_of
from holdfast.store.payload import dump
from holdfast.store.sqlite import (
    access,
    activity,
    claim,
    dead,
    journal,
    put,
    reads,
    settings,
    settle,
    sweep,
)
from holdfast.store.sqlite import process as processes
from holdfast.store.sqlite.claim import ClaimRequest
from holdfast.store.sqlite.connection import BUSY_SECONDS, vacuum
from holdfast.store.sqlite.rows import ANY_ID, micros, moment, page_params
from holdfast.store.sqlite.writer import (
    QUICK_SECONDS,
    SqliteTransaction,
    WriterThread,
    Writing,
)
from holdfast.store.watch import Watch

T = TypeVar("T")

NOW = timedelta()
SMALL = 32 * 1024
"""Largest payload, in characters, that the event loop itself may write."""


class SqliteStore:
    """Events in one SQLite file, for many tasks and many processes; an async context manager."""

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Clock | None = None,
        watch: Watch | None = None,
        readers: int = reads.READERS,
        quick_seconds: float = QUICK_SECONDS,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        self.path = Path(path)
        self._clock = clock
        self._quick_seconds = quick_seconds
        self._busy_seconds = busy_seconds
        self._reader = reads.Reader(self.path, readers)
        self._process_locks = processes.ProcessLocks(self.path, watch or Watch())
        self._wakeups = Wakeups()
        self._writer: WriterThread | None = None
        self._sweeper = sweep.Sweeper(self, self._now)

    async def __aenter__(self) -> SqliteStore:
        try:
            await asyncio.to_thread(reads.require_schema, self.path)
            loop = asyncio.get_running_loop()
            writer = WriterThread(
                self.path, loop, self._now, self._ring, self._quick_seconds, self._busy_seconds
            )
            await writer.start()
        except BaseException:
            await self._reader.close()
            raise
        self._writer = writer
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._writer is not None:
            await self._writer.close()
        await self._reader.close()
        self._process_locks.close()

    async def now(self) -> datetime:
        return moment(self._now())

    def _now(self) -> int:
        return time.time_ns() // 1000 if self._clock is None else micros(self._clock())

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run a read beside the writer."""
        return await self._reader.run(work)

    @property
    def engine(self) -> SqliteStore:
        """Return this store."""
        return self

    def write(self, work: Callable[[Writing], T]) -> asyncio.Future[T]:
        """Run work in a transaction of the writer."""
        return self.writer.submit(work)

    async def _write(self, work: Callable[[Writing], T], tx: Transaction | None) -> T:
        """Run work in the caller's transaction, or without one in the writer's."""
        result: T = await (self.write(work) if tx is None else tx.run(work))
        return result

    @property
    def writer(self) -> WriterThread:
        if self._writer is None:
            raise HoldfastError("the store is not open; use it in `async with`")
        return self._writer

    def _ring(self, queues: set[str]) -> None:
        for queue in queues:
            self._wakeups.ring(queue)

    def transaction(self) -> SqliteTransaction:
        return SqliteTransaction(self.path, self._now, self._ring)

    async def put(
        self,
        events: Sequence[NewEvent],
        *,
        records: Sequence[Record] = (),
        tx: Transaction | None = None,
    ) -> list[int | None]:
        # Make the JSON here, while the writer may be waiting for the disk.
        text = put.dump_events(events)

        def work(db: Writing) -> list[int | None]:
            return put.put_events(db, events, text, records)

        is_small = len(events) == 1 and len(text) < SMALL
        if tx is None and is_small and all(isinstance(one, NewConversation) for one in records):
            return await self.writer.do_small(work)
        return await self._write(work, tx)

    async def say(self, line: ChatMessage, *, tx: Transaction | None = None) -> int:
        return await self._write(lambda db: put.put_chat_messages(db, [line]), tx)

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
        if limit < 1 or not targets:
            return []
        request = ClaimRequest(
            queue=queue,
            targets=targets,
            limit=limit,
            lease=lease,
            holder=holder,
            collect_limit=collect_limit,
            max_attempts=max_attempts,
            at_most=at_most,
        )
        return await dead.without_unreadable(
            self, queue, lambda: self._lease(lambda db: claim.claim(db, request))
        )

    async def _lease(self, work: Callable[[Writing], list[LeasedTurn]]) -> list[LeasedTurn]:
        """Run work that leases events. Release them if the caller is cancelled meanwhile."""
        leased = self.write(work)
        try:
            return await asyncio.shield(leased)
        except asyncio.CancelledError:
            # The caller will never see these turns; without this they would wait out their lease.
            leased.add_done_callback(self._give_back)
            raise

    def _give_back(self, leased: asyncio.Future[list[LeasedTurn]]) -> None:
        if not leased.cancelled() and leased.exception() is None and leased.result():
            ends: list[tuple[LeasedTurn, Outcome]] = [
                (turn, Snooze(NOW)) for turn in leased.result()
            ]
            self.write(lambda db: settle.settle(db, ends, DEFAULT_MAX_ATTEMPTS))

    async def gather(self, turn: LeasedTurn, limit: int) -> bool:
        def join(db: Writing) -> list[LeasedTurn]:
            joined = claim.gather(db, turn, limit)
            return [replace(turn, events=tuple(joined))] if joined else []

        for joined in await dead.without_unreadable(self, turn.queue, lambda: self._lease(join)):
            turn.events += joined.events
            return True
        return False

    async def renew(self, turns: Sequence[LeasedTurn], lease: timedelta) -> list[LeasedTurn]:
        return await self.write(lambda db: claim.renew(db, turns, lease)) if turns else []

    async def checkpoint(self, turn: LeasedTurn, state: Payload) -> datetime:
        text = dump(state)
        return moment(await self.write(lambda db: claim.checkpoint(db, turn, text)))

    async def record(self, entry: JournalEntry) -> None:
        def work(db: Writing) -> bool:
            return journal.record(db, entry)

        if size_of(entry) < SMALL:
            held = await self.writer.do_small(work)
        else:
            held = await self.write(work)
        if not held:
            raise lease_lost(entry.turn)

    async def journal(self, event_id: int, *, offset: int = 0, results: bool = True) -> Journal:
        return await self.read(
            lambda db: journal.read_journal(db, event_id, offset, results=results)
        )

    async def signal(
        self, event_id: int, name: str, value: Any, *, actor: str | None = None
    ) -> bool:
        text = dump(value)

        def put(db: Writing) -> bool:
            is_live = journal.put_signal(db, event_id, name, text)
            access.audit_events(db, actor, "signalled", [event_id] if is_live else [])
            return is_live

        return await self.write(put)

    async def take_signal(self, turn: LeasedTurn, step: Step) -> Step | None:
        taken = await self.write(lambda db: journal.take_signal(db, turn, step))
        if isinstance(taken, Lost):
            raise lease_lost(turn)
        return taken

    async def resume_signalled(self, event_id: int | None = None) -> int:
        return await self.write(lambda db: journal.resume_signalled(db, event_id))

    async def settle(
        self,
        ends: Sequence[tuple[LeasedTurn, Outcome]],
        *,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    ) -> list[Settled | Lost]:
        return await self.write(lambda db: settle.settle(db, ends, max_attempts)) if ends else []

    async def held(self, queue: str, holder: str) -> list[LeasedTurn]:
        return await self.write(lambda db: claim.held(db, queue, holder))

    async def release(self, turns: Sequence[LeasedTurn]) -> list[Settled | Lost]:
        return await self.settle([(turn, Snooze(NOW)) for turn in turns])

    async def cancel(
        self, event_id: int, reason: str, *, actor: str | None = None, leased_only: bool = True
    ) -> bool:
        return await self.write(lambda db: settle.cancel(db, event_id, reason, actor, leased_only))

    async def ack(self, event_id: int, queue: str = OUTBOX) -> Acked:
        return await self.write(lambda db: settle.ack(db, event_id, queue))

    async def amend(
        self, event_id: int, payload: Payload | None, routed_text: str | None = None
    ) -> bool:
        return await self.write(lambda db: settle.amend(db, event_id, payload, routed_text))

    async def bury(self, queue: str, max_attempts: int = DEFAULT_MAX_ATTEMPTS) -> int:
        policy = SweepPolicy(queue=queue, max_attempts=max_attempts)
        return await self._sweeper.in_batches(sweep.bury, policy)

    async def sweep(self, policy: SweepPolicy) -> Swept:
        return await self._sweeper.sweep(policy)

    async def forget_activity(self, keep: timedelta) -> int:
        return await self._sweeper.in_batches(sweep.forget_activity, keep)

    async def retry(
        self, which: Filter, *, actor: str | None = None, assume: Assume | None = None
    ) -> list[int]:
        retry = partial(dead.retry, assume=assume)
        return await dead.change_all(self, retry, which, actor, "retried")

    async def discard(self, which: Filter, *, actor: str | None = None) -> list[int]:
        return await dead.change_all(self, dead.discard, which, actor, "discarded")

    async def replay(self, ids: Sequence[int], *, actor: str | None = None) -> list[int]:
        return await self.write(lambda db: dead.replay(db, ids, actor))

    async def finished(self, which: Filter, **page: Unpack[PageOptions]) -> Page[FinishedEvent]:
        return await self.read(lambda db: dead.read_finished(db, which, page_params(**page)))

    async def dead(self, which: Filter, **page: Unpack[PageOptions]) -> Page[FinishedEvent]:
        return await self.read(lambda db: dead.read_dead(db, which, page_params(**page)))

    async def died(
        self, queue: str, after: tuple[datetime, int], *, limit: int
    ) -> list[FinishedEvent]:
        return await self.read(lambda db: dead.read_dead_since(db, queue, after, limit))

    async def live(self, event_id: int) -> Event | None:
        return await self.read(partial(reads.read_live_event, id=event_id))

    async def next_due(self, queue: str, targets: Sequence[str]) -> datetime | None:
        now = self._now()
        return await self.read(lambda db: reads.read_next_due(db, now, queue, targets))

    async def waiting(self, queue: str, target: str, **page: Unpack[PageOptions]) -> Page[Event]:
        page.setdefault("limit", 100)
        params = {"queue": queue, "target": target} | page_params(**page)
        return await self.read(lambda db: reads.read_live_events(db, "waiting", params))

    async def leased(
        self,
        queue: str,
        *,
        limit: int | None = None,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[Event]:
        most = ANY_ID if limit is None else limit
        page = page_params(most, before_id, since_id, most_bytes)
        params = {"queue": queue, "now": self._now()} | page
        return await self.read(lambda db: reads.read_live_events(db, "leased", params))

    async def recent(self, queue: str, **page: Unpack[PageOptions]) -> Page[Event]:
        params = {"queue": queue} | page_params(**page)
        return await self.read(lambda db: reads.read_recent(db, params))

    async def counts(self) -> list[Count]:
        return await self.read(partial(reads.read_counts, now=self._now()))

    async def outcomes(self, queue: str) -> dict[str, int]:
        return await self.read(partial(reads.read_outcomes, queue=queue))

    async def handed_on(self, root_id: int, before_id: int) -> int:
        params = {"root_id": root_id, "before_id": before_id}
        return await self.read(lambda db: reads.read_number(db, "handed_on", params))

    async def spent(self, root_id: int) -> int:
        return await self.read(lambda db: reads.read_number(db, "spent", {"root_id": root_id}))

    async def oldest_snapshot(self) -> timedelta | None:
        # A reader may hold up a checkpoint, but never the removal of rows.
        return None

    async def agent_messages(
        self,
        agent_id: str,
        *,
        conversation: str | None = None,
        waiting: bool = True,
        **page: Unpack[PageOptions],
    ) -> Page[AgentMessage]:
        which = {"agent_id": agent_id, "conversation": conversation, "waiting": waiting}
        params = which | page_params(**page)
        return await self.read(lambda db: reads.read_agent_messages(db, params))

    async def chat_messages(self, team_id: str, **page: Unpack[PageOptions]) -> Page[ChatMessage]:
        params = {"team_id": team_id} | page_params(**page)
        return await self.read(lambda db: reads.read_chat_messages(db, params))

    async def activity(
        self, position: int, *, limit: int = 500, most_bytes: int | None = None
    ) -> Page[ActivityRow]:
        return await self.read(lambda db: activity.read_activity(db, position, limit, most_bytes))

    async def activity_span(self) -> tuple[int, int]:
        return await self.read(activity.read_activity_span)

    async def audit(self, entry: AuditEntry, *, tx: Transaction | None = None) -> int:
        return await self._write(lambda db: access.add_audit(db, entry), tx)

    async def audit_log(self, which: AuditFilter, **page: Unpack[PageOptions]) -> Page[AuditEntry]:
        return await self.read(lambda db: access.read_audit(db, which, page_params(**page)))

    async def pseudonym(self, name: str) -> str:
        return await self.read(partial(access.pseudonym, name=name))

    async def prune_audit(self, keep: timedelta) -> int:
        return await self.write(lambda db: access.prune_audit(db, keep))

    async def vacuum(self, *, at_once: bool = True) -> None:
        await asyncio.to_thread(vacuum, self.path)

    async def setting(self, key: str) -> Any:
        return await self.read(partial(settings.read_setting, key=key))

    async def set_setting(self, key: str, value: Any, *, tx: Transaction | None = None) -> None:
        await self._write(lambda db: settings.set_setting(db, key, value), tx)

    async def limit(self, queue: str, target: str, running: int | None) -> None:
        await self.write(lambda db: settings.set_limit(db, queue, target, running))

    async def use_choice(self, key: str, *, tx: Transaction | None = None) -> None:
        await self._write(lambda db: settings.mark_choice_used(db, key), tx)

    async def prune_choices(
        self, keep: timedelta | None, most: int, channels: Sequence[str]
    ) -> int:
        return await self.write(lambda db: settings.prune_choices(db, keep, most, channels))

    async def processes(self) -> list[Process]:
        return await self.read(processes.read_processes)

    async def register(self, process: Process) -> None:
        await asyncio.to_thread(self._process_locks.hold, process.id)
        await self.write(lambda db: processes.put_process(db, process))

    async def unregister(self, process_id: str) -> None:
        await self.write(lambda db: processes.delete_process(db, process_id))
        await asyncio.to_thread(self._process_locks.release, process_id)

    async def refresh_process(self, process: Process) -> None:
        await self.write(lambda db: processes.update_process(db, process))

    async def reap(self, max_attempts: Mapping[str, int] | None = None) -> list[str]:
        ids = [process.id for process in await self.processes()]
        locks = self._process_locks
        reap = partial(processes.reap_process, locks=locks, max_attempts=dict(max_attempts or {}))
        dead = await asyncio.to_thread(locks.find_dead, ids)
        reaped = [id for id in dead if await self.write(partial(reap, process_id=id))]
        for id in reaped:
            locks.remove_dead(id)
        return reaped

    async def wake(self, queue: str) -> None:
        await self.write(lambda db: processes.touch(db, queue))

    async def expect(self, queue: str, is_expected: bool = True) -> None:
        """Do nothing: every process sees the commits of the others."""

    def wakeups(self, queue: str | None = None) -> AsyncIterator[str]:
        self.writer.watch()
        return self._wakeups.listen(queue)

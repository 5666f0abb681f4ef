"""The Store on SQLite: one file, one writer thread per process, readers beside it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.message import Payload, unrouted
from holdfast.queue.audit import Action, AuditEntry
from holdfast.queue.event import OUTBOX, NewEvent, Turn
from holdfast.queue.outcome import Lost, Outcome, Settled, Snooze
from holdfast.queue.record import ChatMessage, Record
from holdfast.queue.store import (
    DEFAULT_MAX_ATTEMPTS,
    Acked,
    Clock,
    Filter,
    Process,
    SweepPolicy,
    Swept,
    Transaction,
)
from holdfast.store.activity import received
from holdfast.store.payload import dump
from holdfast.store.sqlite import audit, dead, leases, liveness, settling, sweep, unreadable
from holdfast.store.sqlite.gathering import gather
from holdfast.store.sqlite.put import put, put_lines, put_one, put_records
from holdfast.store.sqlite.queries import load
from holdfast.store.sqlite.reads import SqliteReads, require_schema
from holdfast.store.sqlite.rows import MICROSECOND, moment, new_row, process_params
from holdfast.store.sqlite.thread import WriterThread
from holdfast.store.sqlite.transaction import SqliteTransaction
from holdfast.store.sqlite.vacuum import vacuum
from holdfast.store.sqlite.writer import Tally, Writing
from holdfast.store.wakeup import Wakeups

T = TypeVar("T")

SQL = load()
NOW = timedelta()
SMALL = 32 * 1024
"""Characters of an event that the event loop itself may write."""


class SqliteStore(SqliteReads):
    """Events in one SQLite file, safe with many tasks and many processes. Use it as an async context manager."""

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Clock | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(Path(path), clock)
        self._signs = liveness.SignsOfLife(self.path, monotonic)
        self._wakeups = Wakeups()
        self._writer: WriterThread | None = None
        self._old_keys = sweep.OldKeys(self._now)

    async def __aenter__(self) -> SqliteStore:
        try:
            await asyncio.to_thread(require_schema, self.path)
            writer = WriterThread(self.path, asyncio.get_running_loop(), self._now, self._ring)
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
        self._signs.close()

    def write(self, work: Callable[[Writing], T]) -> asyncio.Future[T]:
        """Have work done in a transaction of the writer's: ours, or a neighbour's (memory)."""
        return self.writer.submit(work)

    @property
    def writer(self) -> WriterThread:
        if self._writer is None:
            raise HoldfastError("the store is not open; use it in `async with`")
        return self._writer

    @property
    def tally(self) -> Tally:
        """How many requests were committed, and in how many commits."""
        return Tally() if self._writer is None else self._writer.tally

    def _ring(self, queues: set[str]) -> None:
        for queue in queues:
            self._wakeups.ring(queue)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[SqliteTransaction]:
        tx = SqliteTransaction(self.path, self._now)
        await tx.begin()
        try:
            yield tx
        except BaseException:
            await tx.end("rollback")
            raise
        await tx.end("commit")
        self._ring(tx.ready)

    async def put(
        self,
        events: Sequence[NewEvent],
        *,
        records: Sequence[Record] = (),
        tx: Transaction | None = None,
    ) -> list[int | None]:
        one = len(events) == 1
        # JSON is made here, while the writer may be waiting for the disk.
        text = dump(unrouted(events[0].event)[0] if one else [new_row(event) for event in events])
        keyed = not one and any(event.message_id is not None for event in events)

        def work(db: Writing) -> list[int | None]:
            ids = [put_one(db, events[0], text)] if one else put(db, text, len(events), keyed=keyed)
            if records:
                put_records(db, records)
            db.frames.append(received(events, ids))
            db.ready.update(event.queue for event in events)
            return ids

        if tx is None and one and len(text) < SMALL and not records:
            return await self.writer.do_small(work)
        return await (self.write(work) if tx is None else tx.run(work))

    async def say(self, line: ChatMessage, *, tx: Transaction | None = None) -> int:
        def work(db: Writing) -> int:
            return put_lines(db, [line])

        return await (self.write(work) if tx is None else tx.run(work))

    async def gather(self, turn: Turn, limit: int) -> bool:
        joined = await self._without_unreadable(
            turn.queue, lambda: self.write(lambda db: gather(db, turn, limit))
        )
        turn.events += tuple(joined)
        return bool(joined)

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
    ) -> list[Turn]:
        if limit < 1 or not targets:
            return []
        wanted = leases.Claim(
            queue=queue,
            targets=targets,
            limit=limit,
            lease=lease,
            holder=holder,
            collect_limit=collect_limit,
            max_attempts=max_attempts,
            at_most=at_most,
        )
        return await self._without_unreadable(queue, lambda: self._claim(wanted))

    async def _claim(self, wanted: leases.Claim) -> list[Turn]:
        claimed = self.writer.submit_making(lambda db: leases.claim(db, wanted))
        try:
            return await asyncio.shield(claimed)
        except asyncio.CancelledError:
            # nobody will know of these turns: without this they would wait out their lease
            claimed.add_done_callback(self._give_back)
            raise
        except leases.Misread as misread:
            ids = misread.ids
        await self._bury_unreadable(wanted.queue)
        return await self.read(
            lambda connection: unreadable.turns_of(connection, wanted.queue, ids)
        )

    async def _without_unreadable(self, queue: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work; while events of the queue cannot be read and fail it, bury such events and try again.

        Others may come meanwhile, and another task may bury what failed this one: so it fails after two vain looks."""
        was_vain = False
        while True:
            try:
                return await work()
            except StoreUnavailable:
                raise
            except (HoldfastError, TypeError, ValueError):
                is_vain = not await self._bury_unreadable(queue)
                if is_vain and was_vain:
                    raise
                was_vain = is_vain

    async def _bury_unreadable(self, queue: str) -> bool:
        letters = await self.read(lambda connection: unreadable.find(connection, queue))
        if letters:
            await self.write(lambda db: unreadable.bury(db, letters))
        return bool(letters)

    def _give_back(self, claimed: asyncio.Future[list[Turn]]) -> None:
        if not claimed.cancelled() and claimed.exception() is None and claimed.result():
            ends: list[tuple[Turn, Outcome]] = [(turn, Snooze(NOW)) for turn in claimed.result()]
            self.write(lambda db: settling.settle(db, ends, DEFAULT_MAX_ATTEMPTS))

    async def renew(self, turns: Sequence[Turn], lease: timedelta) -> list[Turn]:
        return await self.write(lambda db: leases.renew(db, turns, lease)) if turns else []

    async def checkpoint(self, turn: Turn, state: Payload) -> datetime:
        text = dump(state)
        return moment(await self.write(lambda db: leases.checkpoint(db, turn, text)))

    async def settle(
        self, ends: Sequence[tuple[Turn, Outcome]], *, max_attempts: int = DEFAULT_MAX_ATTEMPTS
    ) -> list[Settled | Lost]:
        return await self.write(lambda db: settling.settle(db, ends, max_attempts)) if ends else []

    async def release(self, turns: Sequence[Turn]) -> list[Settled | Lost]:
        return await self.settle([(turn, Snooze(NOW)) for turn in turns])

    async def cancel(self, event_id: int, reason: str, *, actor: str | None = None) -> bool:
        def work(db: Writing) -> bool:
            done = settling.cancel(db, event_id, reason)
            audit.add_events(db, actor, "cancelled", [event_id] if done else [])
            return done

        return await self.write(work)

    async def ack(self, event_id: int, queue: str = OUTBOX) -> Acked:
        return await self.write(lambda db: settling.ack(db, event_id, queue))

    async def limit(self, queue: str, target: str, running: int | None) -> None:
        name = "lift_limit" if running is None else "set_limit"
        params = {"queue": queue, "target": target, "running": running}

        def work(db: Writing) -> None:
            db.connection.execute(SQL[name], params)
            db.ready.add(queue)

        await self.write(work)

    async def bury(self, queue: str, max_attempts: int = DEFAULT_MAX_ATTEMPTS) -> int:
        return await self._in_batches(
            sweep.bury, SweepPolicy(queue=queue, max_attempts=max_attempts)
        )

    async def sweep(self, policy: SweepPolicy) -> Swept:
        dead = await self._in_batches(sweep.bury, policy)
        expired = await self._in_batches(sweep.expire, policy)
        discarded = await self._in_batches(sweep.discard_unserved, policy)
        headless = await self._reader.run(lambda c: sweep.headless_lanes(c, policy.queue))
        mended = (
            await self.write(lambda db: sweep.mend(db, policy.queue, headless)) if headless else 0
        )
        forgotten = await self._forget(policy)
        pruned = await self._in_batches(sweep.prune, policy)
        return Swept(
            dead=dead,
            expired=expired,
            discarded=discarded,
            mended=mended,
            forgotten=forgotten,
            pruned=pruned,
        )

    async def forget_activity(self, keep: timedelta) -> int:
        return await self._in_batches(sweep.forget_activity, keep)

    async def _forget(self, policy: SweepPolicy) -> int:
        total = 0
        start: str | None = "" if self._old_keys.is_due(policy) else None
        while start is not None:
            walk = partial(self._old_keys.walk, policy=policy, start=start)
            old, start = await self._reader.run(walk)
            for first in range(0, len(old), sweep.BATCH):
                batch = old[first : first + sweep.BATCH]
                total += await self.write(partial(sweep.forget, policy=policy, message_ids=batch))
        return total

    async def _in_batches(self, step: Callable[[Writing, T], int], wanted: T) -> int:
        total = 0
        while True:
            count = await self.write(lambda db: step(db, wanted))
            total += count
            if count < sweep.BATCH:
                return total

    async def retry(self, which: Filter, *, actor: str | None = None) -> list[int]:
        return await self._with_dead(dead.retry, which, actor, "retried")

    async def discard(self, which: Filter, *, actor: str | None = None) -> list[int]:
        return await self._with_dead(dead.discard, which, actor, "discarded")

    async def _with_dead(
        self,
        step: Callable[[Writing, Sequence[int]], list[int]],
        which: Filter,
        actor: str | None,
        action: Action,
    ) -> list[int]:
        def work(db: Writing, batch: Sequence[int]) -> list[int]:
            changed = step(db, batch)
            audit.add_events(db, actor, action, changed)
            return changed

        ids = await self._reader.run(lambda connection: dead.dead_ids(connection, which))
        done: list[int] = []
        for start in range(0, len(ids), sweep.BATCH):
            done += await self.write(partial(work, batch=ids[start : start + sweep.BATCH]))
        return done

    async def replay(self, ids: Sequence[int], *, actor: str | None = None) -> list[int]:
        return await self.write(lambda db: dead.replay(db, ids, actor))

    async def audit(self, entry: AuditEntry, *, tx: Transaction | None = None) -> int:
        def work(db: Writing) -> int:
            return audit.add(db, entry)

        return await (self.write(work) if tx is None else tx.run(work))

    async def prune_audit(self, keep: timedelta) -> int:
        return await self.write(lambda db: audit.prune(db, keep))

    async def vacuum(self) -> None:
        await asyncio.to_thread(vacuum, self.path)

    async def set_setting(self, key: str, value: Any, *, tx: Transaction | None = None) -> None:
        name, params = "set_setting", {"key": key, "value": dump(value)}
        if value is None:
            name, params = "remove_setting", {"key": key}

        def work(db: Writing) -> None:
            _execute(db, name, params)

        await (self.write(work) if tx is None else tx.run(work))

    async def use_choice(self, key: str, *, tx: Transaction | None = None) -> None:
        def work(db: Writing) -> None:
            _execute(db, "use_choice", {"key": key})

        await (self.write(work) if tx is None else tx.run(work))

    async def prune_choices(
        self, keep: timedelta | None, most: int, channels: Sequence[str]
    ) -> int:
        def work(db: Writing) -> int:
            _execute(db, "note_choices", {"now": db.now})
            before = None if keep is None else db.now - keep // MICROSECOND
            params = {"before": before, "most": most, "channels": dump(list(channels))}
            return db.connection.execute(SQL["prune_choices"], params).rowcount

        return await self.write(work)

    async def register(self, process: Process) -> None:
        await asyncio.to_thread(self._signs.hold, process.id)
        await self.write(lambda db: _execute(db, "put_process", process_params(process)))

    async def unregister(self, process_id: str) -> None:
        await self.write(lambda db: _execute(db, "delete_process", {"id": process_id}))
        await asyncio.to_thread(self._signs.let_go, process_id)

    async def beat(self, process: Process) -> None:
        await self.write(
            lambda db: _execute(db, "beat", process_params(process) | {"seen_at": db.now})
        )

    async def reap(self, max_attempts: Mapping[str, int] | None = None) -> list[str]:
        ids = [process.id for process in await self.processes()]
        gone = await asyncio.to_thread(self._signs.gone, ids)
        most = dict(max_attempts or {})
        reap = partial(liveness.reap, signs=self._signs, max_attempts=most)
        reaped = [id for id in gone if await self.write(partial(reap, process_id=id))]
        for id in reaped:
            self._signs.forget(id)
        return reaped

    async def wake(self, queue: str) -> None:
        def work(db: Writing) -> None:
            db.connection.execute(SQL["touch"])
            db.ready.add(queue)

        await self.write(work)

    def wakeups(self) -> AsyncIterator[str]:
        self.writer.watch()
        return self._wakeups.listen()


def _execute(db: Writing, name: str, params: dict[str, Any]) -> None:
    db.connection.execute(SQL[name], params)

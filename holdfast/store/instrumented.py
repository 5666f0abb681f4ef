"""A store around an engine that times its calls and reports what this process puts."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any

from typing_extensions import Unpack

from holdfast.chat import AgentMessage, ChatMessage, ChatStore, LineOptions
from holdfast.message import Payload
from holdfast.queue.audit import AuditEntry, AuditFilter
from holdfast.queue.event import OUTBOX, Event, FinishedEvent, NewEvent
from holdfast.queue.journal import Assume, Journal, JournalEntry, Step
from holdfast.queue.outcome import Lost, Outcome, Settled
from holdfast.queue.pages import Page, PageOptions
from holdfast.queue.record import Record
from holdfast.queue.store import (
    DEFAULT_MAX_ATTEMPTS,
    Acked,
    ActivityRow,
    Count,
    Filter,
    Process,
    SweepPolicy,
    Swept,
    Transaction,
)
from holdfast.queue.turn import LeasedTurn
from holdfast.telemetry import STORE_CALL, STORE_ERRORS, spans

OnPut = Callable[[Sequence[NewEvent], Sequence[int | None]], None]
"""Called with the events of a put and their ids, after the commit."""


class _Call:
    """Times one call, counts its error, and opens a span for it inside of a traced turn."""

    __slots__ = ("_began_at", "_name", "_span")

    def __init__(self, name: str) -> None:
        self._name = name
        self._span: AbstractContextManager[None] | None = None

    def __enter__(self) -> None:
        if spans.tracing is not None:
            self._span = spans.store_call(self._name)
            self._span.__enter__()
        self._began_at = time.perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        STORE_CALL.of(self._name).observe(time.perf_counter() - self._began_at)
        if isinstance(error, Exception):
            STORE_ERRORS.add(self._name, type(error).__name__)
        if self._span is not None:
            self._span.__exit__(kind, error, trace)


class InstrumentedStore:
    """A store that times its calls as callers see them, and calls `on_put` after each put."""

    def __init__(self, engine: ChatStore, on_put: OnPut | None = None) -> None:
        self._engine = engine
        self._on_put = on_put

    @property
    def engine(self) -> ChatStore:
        """The engine that does the work."""
        return self._engine

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        return self._engine.transaction()

    async def put(
        self,
        events: Sequence[NewEvent],
        *,
        records: Sequence[Record] = (),
        tx: Transaction | None = None,
    ) -> list[int | None]:
        with _Call("put"):
            ids = await self._engine.put(events, records=records, tx=tx)
        # A transaction of the caller's may still be rolled back.
        if self._on_put is not None and tx is None:
            self._on_put(events, ids)
        return ids

    async def expect(self, queue: str, is_expected: bool = True) -> None:
        await self._engine.expect(queue, is_expected)

    def wakeups(self, queue: str | None = None) -> AsyncIterator[str]:
        return self._engine.wakeups(queue)

    async def close(self) -> None:
        await self._engine.close()

    async def now(self) -> datetime:
        with _Call("now"):
            return await self._engine.now()

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
        with _Call("claim"):
            return await self._engine.claim(
                queue,
                targets,
                limit=limit,
                lease=lease,
                holder=holder,
                collect_limit=collect_limit,
                max_attempts=max_attempts,
                at_most=at_most,
            )

    async def gather(self, turn: LeasedTurn, limit: int) -> bool:
        with _Call("gather"):
            return await self._engine.gather(turn, limit)

    async def renew(self, turns: Sequence[LeasedTurn], lease: timedelta) -> list[LeasedTurn]:
        with _Call("renew"):
            return await self._engine.renew(turns, lease)

    async def checkpoint(self, turn: LeasedTurn, state: Payload) -> datetime:
        with _Call("checkpoint"):
            return await self._engine.checkpoint(turn, state)

    async def settle(
        self,
        ends: Sequence[tuple[LeasedTurn, Outcome]],
        *,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    ) -> list[Settled | Lost]:
        with _Call("settle"):
            return await self._engine.settle(ends, max_attempts=max_attempts)

    async def held(self, queue: str, holder: str) -> list[LeasedTurn]:
        with _Call("held"):
            return await self._engine.held(queue, holder)

    async def release(self, turns: Sequence[LeasedTurn]) -> list[Settled | Lost]:
        with _Call("release"):
            return await self._engine.release(turns)

    async def cancel(
        self, event_id: int, reason: str, *, actor: str | None = None, leased_only: bool = True
    ) -> bool:
        with _Call("cancel"):
            return await self._engine.cancel(event_id, reason, actor=actor, leased_only=leased_only)

    async def ack(self, event_id: int, queue: str = OUTBOX) -> Acked:
        with _Call("ack"):
            return await self._engine.ack(event_id, queue)

    async def amend(
        self, event_id: int, payload: Payload | None, routed_text: str | None = None
    ) -> bool:
        with _Call("amend"):
            return await self._engine.amend(event_id, payload, routed_text)

    async def limit(self, queue: str, target: str, running: int | None) -> None:
        with _Call("limit"):
            await self._engine.limit(queue, target, running)

    async def next_due(self, queue: str, targets: Sequence[str]) -> datetime | None:
        with _Call("next_due"):
            return await self._engine.next_due(queue, targets)

    async def bury(self, queue: str, max_attempts: int = DEFAULT_MAX_ATTEMPTS) -> int:
        with _Call("bury"):
            return await self._engine.bury(queue, max_attempts)

    async def sweep(self, policy: SweepPolicy) -> Swept:
        with _Call("sweep"):
            return await self._engine.sweep(policy)

    async def wake(self, queue: str) -> None:
        with _Call("wake"):
            await self._engine.wake(queue)

    async def record(self, entry: JournalEntry) -> None:
        with _Call("record"):
            await self._engine.record(entry)

    async def journal(self, event_id: int, *, offset: int = 0, results: bool = True) -> Journal:
        with _Call("journal"):
            return await self._engine.journal(event_id, offset=offset, results=results)

    async def signal(
        self, event_id: int, name: str, value: Any, *, actor: str | None = None
    ) -> bool:
        with _Call("signal"):
            return await self._engine.signal(event_id, name, value, actor=actor)

    async def take_signal(self, turn: LeasedTurn, step: Step) -> Step | None:
        with _Call("take_signal"):
            return await self._engine.take_signal(turn, step)

    async def resume_signalled(self, event_id: int | None = None) -> int:
        with _Call("resume_signalled"):
            return await self._engine.resume_signalled(event_id)

    async def live(self, event_id: int) -> Event | None:
        with _Call("live"):
            return await self._engine.live(event_id)

    async def leased(
        self,
        queue: str,
        *,
        limit: int | None = None,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[Event]:
        with _Call("leased"):
            return await self._engine.leased(
                queue, limit=limit, before_id=before_id, since_id=since_id, most_bytes=most_bytes
            )

    async def waiting(self, queue: str, target: str, **page: Unpack[PageOptions]) -> Page[Event]:
        with _Call("waiting"):
            return await self._engine.waiting(queue, target, **page)

    async def recent(self, queue: str, **page: Unpack[PageOptions]) -> Page[Event]:
        with _Call("recent"):
            return await self._engine.recent(queue, **page)

    async def finished(self, which: Filter, **page: Unpack[PageOptions]) -> Page[FinishedEvent]:
        with _Call("finished"):
            return await self._engine.finished(which, **page)

    async def dead(self, which: Filter, **page: Unpack[PageOptions]) -> Page[FinishedEvent]:
        with _Call("dead"):
            return await self._engine.dead(which, **page)

    async def died(
        self, queue: str, after: tuple[datetime, int], *, limit: int
    ) -> list[FinishedEvent]:
        with _Call("died"):
            return await self._engine.died(queue, after, limit=limit)

    async def retry(
        self, which: Filter, *, actor: str | None = None, assume: Assume | None = None
    ) -> list[int]:
        with _Call("retry"):
            return await self._engine.retry(which, actor=actor, assume=assume)

    async def discard(self, which: Filter, *, actor: str | None = None) -> list[int]:
        with _Call("discard"):
            return await self._engine.discard(which, actor=actor)

    async def replay(self, ids: Sequence[int], *, actor: str | None = None) -> list[int]:
        with _Call("replay"):
            return await self._engine.replay(ids, actor=actor)

    async def handed_on(self, root_id: int, before_id: int) -> int:
        with _Call("handed_on"):
            return await self._engine.handed_on(root_id, before_id)

    async def spent(self, root_id: int) -> int:
        with _Call("spent"):
            return await self._engine.spent(root_id)

    async def counts(self) -> list[Count]:
        with _Call("counts"):
            return await self._engine.counts()

    async def outcomes(self, queue: str) -> dict[str, int]:
        with _Call("outcomes"):
            return await self._engine.outcomes(queue)

    async def oldest_snapshot(self) -> timedelta | None:
        with _Call("oldest_snapshot"):
            return await self._engine.oldest_snapshot()

    async def say(self, line: ChatMessage, *, tx: Transaction | None = None) -> int:
        with _Call("say"):
            return await self._engine.say(line, tx=tx)

    async def agent_messages(
        self, agent_id: str, **options: Unpack[LineOptions]
    ) -> Page[AgentMessage]:
        with _Call("agent_messages"):
            return await self._engine.agent_messages(agent_id, **options)

    async def chat_messages(self, team_id: str, **page: Unpack[PageOptions]) -> Page[ChatMessage]:
        with _Call("chat_messages"):
            return await self._engine.chat_messages(team_id, **page)

    async def register(self, process: Process) -> None:
        with _Call("register"):
            await self._engine.register(process)

    async def unregister(self, process_id: str) -> None:
        with _Call("unregister"):
            await self._engine.unregister(process_id)

    async def refresh_process(self, process: Process) -> None:
        with _Call("refresh_process"):
            await self._engine.refresh_process(process)

    async def processes(self) -> list[Process]:
        with _Call("processes"):
            return await self._engine.processes()

    async def reap(self, max_attempts: Mapping[str, int] | None = None) -> list[str]:
        with _Call("reap"):
            return await self._engine.reap(max_attempts)

    async def activity(
        self, position: int, *, limit: int = 500, most_bytes: int | None = None
    ) -> Page[ActivityRow]:
        with _Call("activity"):
            return await self._engine.activity(position, limit=limit, most_bytes=most_bytes)

    async def activity_span(self) -> tuple[int, int]:
        with _Call("activity_span"):
            return await self._engine.activity_span()

    async def forget_activity(self, keep: timedelta) -> int:
        with _Call("forget_activity"):
            return await self._engine.forget_activity(keep)

    async def setting(self, key: str) -> Any:
        with _Call("setting"):
            return await self._engine.setting(key)

    async def set_setting(self, key: str, value: Any, *, tx: Transaction | None = None) -> None:
        with _Call("set_setting"):
            await self._engine.set_setting(key, value, tx=tx)

    async def use_choice(self, key: str, *, tx: Transaction | None = None) -> None:
        with _Call("use_choice"):
            await self._engine.use_choice(key, tx=tx)

    async def prune_choices(
        self, keep: timedelta | None, most: int, channels: Sequence[str]
    ) -> int:
        with _Call("prune_choices"):
            return await self._engine.prune_choices(keep, most, channels)

    async def audit(self, entry: AuditEntry, *, tx: Transaction | None = None) -> int:
        with _Call("audit"):
            return await self._engine.audit(entry, tx=tx)

    async def audit_log(self, which: AuditFilter, **page: Unpack[PageOptions]) -> Page[AuditEntry]:
        with _Call("audit_log"):
            return await self._engine.audit_log(which, **page)

    async def pseudonym(self, name: str) -> str:
        with _Call("pseudonym"):
            return await self._engine.pseudonym(name)

    async def prune_audit(self, keep: timedelta) -> int:
        with _Call("prune_audit"):
            return await self._engine.prune_audit(keep)

    async def vacuum(self, *, at_once: bool = True) -> None:
        with _Call("vacuum"):
            await self._engine.vacuum(at_once=at_once)

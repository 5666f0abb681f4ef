"""The Store protocol: everything durable goes through these operations, on every engine alike."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

from holdfast.message import Payload
from holdfast.queue.audit import AuditEntry, AuditFilter
from holdfast.queue.event import INBOX, OUTBOX, Event, FinishedEvent, NewEvent
from holdfast.queue.outcome import Lost, Outcome, Settled
from holdfast.queue.pages import Page
from holdfast.queue.record import AgentMessage, ChatMessage, Record
from holdfast.queue.turn import LeasedTurn

Clock = Callable[[], datetime]
Transaction = Any
"""What `Store.transaction` yields: on PostgreSQL a psycopg connection, on SQLite a handle of this store."""

DEFAULT_MAX_ATTEMPTS = 3
DEAD_OUTCOMES = ("dead", "expired", "cancelled")
COLLECT_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which finished events are meant: by id, or by queue, target, outcome and a part of the error."""

    ids: Sequence[int] | None = None
    queue: str | None = None
    target: str | None = None
    outcomes: Sequence[str] | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Live events of one queue and target. ready + delayed + queued + leased is all of them."""

    queue: str
    target: str
    ready: int
    delayed: int
    queued: int
    leased: int
    ready_since: datetime | None = field(default=None, compare=False)
    """Since when the longest waiting of the ready ones has been visible."""
    pending_since: datetime | None = field(default=None, compare=False)
    """When the oldest of them all was stored, ready or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPolicy:
    """What a sweep of one queue ends, forgets and prunes; None means never."""

    queue: str = INBOX
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    expire_after: timedelta | None = None
    dedup_window: timedelta = timedelta(days=7)
    keep_history: timedelta | None = None
    discard_unserved: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep did; `mended` counts lanes that had no head, and is 0 unless there is a fault."""

    dead: int = 0
    expired: int = 0
    discarded: int = 0
    mended: int = 0
    forgotten: int = 0
    pruned: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process that works on this store, seen by all others."""

    id: str
    host: str
    started_at: datetime
    seen_at: datetime
    last_wake_reason: str | None = None
    turns: int = 0
    serves: Payload | None = None
    """Its agents, teams and limits; None for a process of release 0.4.0, which does not say."""


@dataclass(frozen=True, slots=True)
class Happened:
    """What one call told: its place in the order of all, and its frames."""

    position: int
    frames: list[Payload]


Acked = Literal["acked", "busy", "unknown"]
"""Whether an event is completed (also earlier), being worked on, or not there."""


class EventQueue(Protocol):
    """Put, claim and settle events. A lost turn never fails the others of its call."""

    async def now(self) -> datetime:
        """The store's clock: the only clock that decides what is due."""

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """A transaction that `put` can join; committed at the end of the block, rolled back on an error."""

    async def put(
        self,
        events: Sequence[NewEvent],
        *,
        records: Sequence[Record] = (),
        tx: Transaction | None = None,
    ) -> list[int | None]:
        """Store all events or none; the id of each, or None where its message_id is already known."""

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
        """Lease up to `limit` turns of these targets.

        With collect_limit > 1 a turn takes the untried events right behind its head, in the inbox only those of the
        same conversation and person (`holdfast.message.collect_key`). `at_most` limits each target, and targets are
        then read in the order given; None as an entry shares the limit of the target before it. Without it, targets
        are read in random order."""

    async def gather(self, turn: LeasedTurn, limit: int) -> bool:
        """Add the untried events right behind a single-event turn that a claim could have collected with it, up to
        `limit` in all. Returns whether any were added."""

    async def renew(self, turns: Sequence[LeasedTurn], lease: timedelta) -> list[LeasedTurn]:
        """Extend the leases; the turns that are lost are returned."""

    async def checkpoint(self, turn: LeasedTurn, state: Payload) -> datetime:
        """Keep progress with the primary event; returns until when the lease holds, raises LeaseLost."""

    async def settle(
        self,
        ends: Sequence[tuple[LeasedTurn, Outcome]],
        *,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    ) -> list[Settled | Lost]:
        """End turns, in the order given; a lost one never fails the others."""

    async def release(self, turns: Sequence[LeasedTurn]) -> list[Settled | Lost]:
        """Give turns back at once, without using an attempt."""

    async def cancel(self, event_id: int, reason: str, *, actor: str | None = None) -> bool:
        """End a leased event as a dead letter with outcome cancelled; its worker finds its lease lost.

        An `actor`, here and below, is recorded in the audit log in the same transaction."""

    async def ack(self, event_id: int, queue: str = OUTBOX) -> Acked:
        """A live event of a queue that nobody works on is completed, because its client says it has it."""

    async def limit(self, queue: str, target: str, running: int | None) -> None:
        """At most so many leased turns of a target over all processes; None lifts the limit.

        Messages that name no agent count for the default one."""

    async def next_due(self, queue: str, targets: Sequence[str]) -> datetime | None:
        """When the next turn of these targets becomes visible, leases included; None if nothing is to come."""

    async def bury(self, queue: str, max_attempts: int = DEFAULT_MAX_ATTEMPTS) -> int:
        """End events that have no attempts left and are not leased as dead letters. Returns how many.

        A sweep does it, too; this is for a consumer that runs where nobody sweeps."""

    async def sweep(self, policy: SweepPolicy) -> Swept:
        """End what is over, forget what is old, give every lane its head."""

    async def wake(self, queue: str) -> None:
        """Let every process look at a queue again."""

    def wakeups(self) -> AsyncIterator[str]:
        """Names of queues in which something became ready, '' for any; never the only way to learn of it."""


class History(Protocol):
    """Read events, live and finished, dead letters and conversations; work dead letters again."""

    async def live(self, event_id: int) -> Event | None:
        """A live event by its id."""

    async def leased(
        self,
        queue: str,
        *,
        limit: int | None = None,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[Event]:
        """The events being worked now, newest first."""

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
        """Live events of a target, oldest first, without claiming them."""

    async def recent(
        self,
        queue: str,
        *,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[Event]:
        """Live and finished events of a queue, newest first; those discarded are left out."""

    async def finished(
        self,
        which: Filter,
        *,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[FinishedEvent]:
        """History, newest first."""

    async def dead(
        self,
        which: Filter,
        *,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[FinishedEvent]:
        """Dead letters (dead, expired, cancelled), newest first."""

    async def died(
        self, queue: str, after: tuple[datetime, int], *, limit: int
    ) -> list[FinishedEvent]:
        """Dead letters in the order in which they died, from after a moment and an id."""

    async def retry(self, which: Filter, *, actor: str | None = None) -> list[int]:
        """Make dead letters live again, with their ids and full attempts."""

    async def discard(self, which: Filter, *, actor: str | None = None) -> list[int]:
        """Remove payload and error of dead letters; ids, times and outcome stay for dedup."""

    async def replay(self, ids: Sequence[int], *, actor: str | None = None) -> list[int]:
        """Put finished events once more, as new ones."""

    async def handed_on(self, root_id: int, before_id: int) -> int:
        """How many messages were handed on, at whatever remove, from one root message; those with lesser ids."""

    async def spent(self, root_id: int) -> int:
        """Lines and files that the turns of a root message posted and sent, as their states say."""

    async def counts(self) -> list[Count]:
        """Live events by queue and target."""

    async def outcomes(self, queue: str) -> dict[str, int]:
        """How many events of a queue ended how."""

    async def oldest_snapshot(self) -> timedelta | None:
        """Age of the oldest transaction that keeps dead rows from being removed; None where there is none."""

    async def say(self, line: ChatMessage, *, tx: Transaction | None = None) -> int:
        """Append a line to a team's room; its id."""

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
        """An agent's history, of one conversation or of all, newest first."""

    async def chat_messages(
        self,
        team_id: str,
        *,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[ChatMessage]:
        """A room's history, newest first."""


class ProcessTable(Protocol):
    """The processes that work on this store, and the end of those that died."""

    async def register(self, process: Process) -> None:
        """Make this process known and hold its sign of life until the store is closed."""

    async def unregister(self, process_id: str) -> None:
        """This process ends in good order: nobody has to find it dead."""

    async def beat(self, process: Process) -> None:
        """Say that this process is still there, and what it is doing."""

    async def processes(self) -> list[Process]:
        """All processes that registered and were not seen to die."""

    async def reap(self, max_attempts: Mapping[str, int] | None = None) -> list[str]:
        """Look for dead processes; those seen dead twice lose their turns. Their ids are returned.

        `max_attempts` by queue, for events without a number of their own."""


class ActivityLog(Protocol):
    """Frames of what happened to messages, in one order for all readers."""

    async def activity(
        self, position: int, *, limit: int = 500, most_bytes: int | None = None
    ) -> Page[Happened]:
        """What happened from a position on, oldest first; nothing will ever come to stand before what was read."""

    async def activity_span(self) -> tuple[int, int]:
        """The oldest position kept, and the one that comes next; equal where nothing is kept."""

    async def forget_activity(self, keep: timedelta) -> int:
        """Drop what happened longer ago; how many rows."""


class SettingTable(Protocol):
    """Values that all processes see."""

    async def setting(self, key: str) -> Any:
        """A value that processes share, None if never written."""

    async def set_setting(self, key: str, value: Any, *, tx: Transaction | None = None) -> None:
        """Write a value that processes share; None removes it."""

    async def use_choice(self, key: str, *, tx: Transaction | None = None) -> None:
        """Note that the setting of a conversation was used: drop the time since which it is unused."""

    async def prune_choices(
        self, keep: timedelta | None, most: int, channels: Sequence[str]
    ) -> int:
        """Delete settings `default/<conversation>` that are unused for `keep`, and return how many.

        At most so many are left of each of these channels, and of all others together, latest used first. A setting
        counts as unused from the first call on that finds it so."""


class AuditLog(Protocol):
    """Acts of people and programs: who did what to which event or person."""

    async def audit(self, entry: AuditEntry, *, tx: Transaction | None = None) -> int:
        """Append an act to the audit log and return its id; `id` and `at` of the entry are ignored."""

    async def audit_log(
        self,
        which: AuditFilter,
        *,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[AuditEntry]:
        """List the audit log, newest first."""

    async def pseudonym(self, name: str) -> str:
        """Return an opaque name of a person for the audit log: a salted hash, the same each time."""

    async def prune_audit(self, keep: timedelta) -> int:
        """Delete audit entries older than `keep` and return how many."""


class Store(EventQueue, History, ProcessTable, ActivityLog, SettingTable, AuditLog, Protocol):
    """The database of one installation. All methods are safe to call from many tasks.

    Times are aware datetimes in UTC. A list ends with the row that reaches `most_bytes`; without it, only rows are
    counted."""

    @property
    def engine(self) -> object:
        """The engine that does the work: the store itself, unless it wraps one."""

    async def vacuum(self, *, at_once: bool = True) -> None:
        """Free the bytes of deleted rows.

        SQLite rewrites its file without them, rebuilds the full-text index and empties the write-ahead log;
        writers wait meanwhile. PostgreSQL vacuums its tables, or leaves that to autovacuum if not `at_once`."""

    async def close(self) -> None:
        """Let go of connections, threads and the sign of life."""

"""The Store protocols: all durable operations, the same on every engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

from holdfast.message import Payload
from holdfast.queue.audit import AuditEntry, AuditFilter
from holdfast.queue.event import INBOX, OUTBOX, Event, FinishedEvent, NewEvent
from holdfast.queue.journal import Assume, JournalTable
from holdfast.queue.outcome import Lost, Outcome, Settled
from holdfast.queue.pages import Page
from holdfast.queue.record import Record
from holdfast.queue.turn import LeasedTurn

Clock = Callable[[], datetime]
Transaction = Any
"""The value of `Store.transaction`: a psycopg connection, or on SQLite a handle of the store."""

DEFAULT_MAX_ATTEMPTS = 3
DEAD_OUTCOMES = ("dead", "expired", "cancelled")
VERSION = "version"
"""Key in `Process.serves` of the release that the process runs."""
COLLECT_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Selects finished events by id, or by queue, target, outcome and a part of the error."""

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
    """The time at which the oldest ready event became visible."""
    pending_since: datetime | None = field(default=None, compare=False)
    """When the oldest event was stored, ready or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPolicy:
    """Limits for a sweep of one queue; None means never."""

    queue: str = INBOX
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    expire_after: timedelta | None = None
    dedup_window: timedelta = timedelta(days=7)
    keep_history: timedelta | None = None
    discard_unserved: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """Counts of a sweep. `repaired_lanes` had no head; it is 0 unless there is a bug."""

    dead: int = 0
    expired: int = 0
    discarded: int = 0
    repaired_lanes: int = 0
    forgotten: int = 0
    pruned: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process that works on this store."""

    id: str
    host: str
    started_at: datetime
    seen_at: datetime
    last_wake_reason: str | None = None
    turns: int = 0
    serves: Payload | None = None
    """Its agents, teams and limits; None for a process of release 0.4.0."""
    problems: Payload = field(default_factory=dict)
    """Problems of its channels, a text for each channel that has any."""

    @property
    def version(self) -> str | None:
        """The release that it runs; None before 0.8.0."""
        return None if self.serves is None else self.serves.get(VERSION)


@dataclass(frozen=True, slots=True)
class ActivityRow:
    """A row of the activity log: its position in the order of all rows, and its frames."""

    position: int
    frames: list[Payload]


Acked = Literal["acked", "busy", "unknown"]
"""Result of an ack: completed now or earlier, being worked on, or not there."""


class EventQueue(Protocol):
    """Put, claim and settle events. A lost turn never fails the others of its call."""

    async def now(self) -> datetime:
        """Return the time of the store's clock, the only one that decides what is due."""

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction that `put` can join; an error in the block rolls it back."""

    async def put(
        self,
        events: Sequence[NewEvent],
        *,
        records: Sequence[Record] = (),
        tx: Transaction | None = None,
    ) -> list[int | None]:
        """Store all events or none. Returns the id of each, None if its message_id is known."""

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

        With collect_limit > 1 a turn takes the untried events right behind its head; in the inbox
        only those with the same `holdfast.message.collect_key`. `at_most` limits each target; an
        entry None shares the limit of the target before it. Targets are then read in the order
        given, otherwise in random order."""

    async def gather(self, turn: LeasedTurn, limit: int) -> bool:
        """Add the untried events queued directly behind a single-event turn, up to `limit`.

        Only events that a claim could have collected. Returns whether any were added."""

    async def renew(self, turns: Sequence[LeasedTurn], lease: timedelta) -> list[LeasedTurn]:
        """Extend the leases. Returns the turns that are lost."""

    async def checkpoint(self, turn: LeasedTurn, state: Payload) -> datetime:
        """Store progress with the primary event. Returns the end of the lease.

        Raises LeaseLost."""

    async def settle(
        self,
        ends: Sequence[tuple[LeasedTurn, Outcome]],
        *,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    ) -> list[Settled | Lost]:
        """End turns, in the order given. A lost one never fails the others."""

    async def release(self, turns: Sequence[LeasedTurn]) -> list[Settled | Lost]:
        """Give turns back at once, without using an attempt."""

    async def held(self, queue: str, holder: str) -> list[LeasedTurn]:
        """List the turns that a holder leases now, whether it knows of them or not."""

    async def cancel(
        self, event_id: int, reason: str, *, actor: str | None = None, leased_only: bool = True
    ) -> bool:
        """End a leased event as a dead letter with outcome cancelled; its worker loses the lease.

        With leased_only=False, this also ends an event that is not leased. Returns whether it was
        ended. An `actor`, here and below, is recorded in the audit log in the same transaction."""

    async def ack(self, event_id: int, queue: str = OUTBOX) -> Acked:
        """Complete a live event that nobody works on, because its client has received it."""

    async def amend(
        self, event_id: int, payload: Payload | None, routed_text: str | None = None
    ) -> bool:
        """Replace the payload of an event that was never claimed, because its sender edited it.

        None withdraws the event: it ends as discarded. Returns False if it was claimed or ended."""

    async def limit(self, queue: str, target: str, running: int | None) -> None:
        """Limit the leased turns of a target over all processes; None lifts the limit.

        Messages that name no agent count for the default one."""

    async def next_due(self, queue: str, targets: Sequence[str]) -> datetime | None:
        """Return when the next turn of these targets becomes visible, leases included.

        None if nothing is to come."""

    async def bury(self, queue: str, max_attempts: int = DEFAULT_MAX_ATTEMPTS) -> int:
        """Make dead letters of events without attempts that are not leased. Returns how many.

        A sweep does this too; call this for a consumer that runs without a sweeper."""

    async def sweep(self, policy: SweepPolicy) -> Swept:
        """End expired events, prune old rows, and give every lane its head."""

    async def wake(self, queue: str) -> None:
        """Wake the consumers of a queue in every process."""

    async def expect(self, queue: str, is_expected: bool = True) -> None:
        """Tell other processes whether to wake this one for a queue. Calls are counted.

        Look for events after this call, not before: earlier ones sent no wake-up."""

    def wakeups(self, queue: str | None = None) -> AsyncIterator[str]:
        """Yield names of queues in which something became ready, '' for any.

        With a name, yield only that one and ''. Puts and settles of other processes wake only for
        queues that `expect` names. Some wake-ups may be lost, so consumers poll as well."""


class History(Protocol):
    """Read events, live and finished, and dead letters; work dead letters again."""

    async def live(self, event_id: int) -> Event | None:
        """Return a live event, None if it is not live."""

    async def leased(
        self,
        queue: str,
        *,
        limit: int | None = None,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[Event]:
        """List the events being worked now, newest first."""

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
        """List the live events of a target, oldest first, without claiming them."""

    async def recent(
        self,
        queue: str,
        *,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[Event]:
        """List live and finished events of a queue, newest first, without discarded ones."""

    async def finished(
        self,
        which: Filter,
        *,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[FinishedEvent]:
        """List history, newest first."""

    async def dead(
        self,
        which: Filter,
        *,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[FinishedEvent]:
        """List dead letters (dead, expired, cancelled), newest first."""

    async def died(
        self, queue: str, after: tuple[datetime, int], *, limit: int
    ) -> list[FinishedEvent]:
        """List dead letters in the order in which they died, after a moment and an id."""

    async def retry(
        self, which: Filter, *, actor: str | None = None, assume: Assume | None = None
    ) -> list[int]:
        """Make dead letters live again, with their ids and full attempts. Returns their ids.

        With `assume`, their once-steps that may have happened count as done, with the result None,
        or run again. Without it, letters of the class EFFECT_UNKNOWN stay dead."""

    async def discard(self, which: Filter, *, actor: str | None = None) -> list[int]:
        """Erase payload and error of dead letters; ids, times and outcome stay for dedup."""

    async def replay(self, ids: Sequence[int], *, actor: str | None = None) -> list[int]:
        """Put copies of finished events as new events. Returns the new ids."""

    async def handed_on(self, root_id: int, before_id: int) -> int:
        """Count the messages handed on from a root message, at any depth, with id < `before_id`."""

    async def spent(self, root_id: int) -> int:
        """Add up the room lines and files of a root message's turns, as counted in their states."""

    async def counts(self) -> list[Count]:
        """Count live events by queue and target."""

    async def outcomes(self, queue: str) -> dict[str, int]:
        """Count the finished events of a queue by outcome."""

    async def oldest_snapshot(self) -> timedelta | None:
        """Return the age of the oldest transaction that keeps dead rows from being removed.

        None if there is none."""


class ProcessTable(Protocol):
    """The processes that work on this store, and the recovery of the turns of dead ones."""

    async def register(self, process: Process) -> None:
        """Record this process, and hold its sign of life until the store is closed."""

    async def unregister(self, process_id: str) -> None:
        """Remove this process, so that nobody has to find it dead."""

    async def refresh_process(self, process: Process) -> None:
        """Update when this process was last seen, and what it does."""

    async def processes(self) -> list[Process]:
        """List the processes that registered and have not been seen to die."""

    async def reap(self, max_attempts: Mapping[str, int] | None = None) -> list[str]:
        """Release the turns of processes that were silent in two checks in a row.

        `max_attempts`, by queue, applies to events without their own. Returns the ids of the
        processes."""


class ActivityLog(Protocol):
    """Frames of what happened to messages, in one order for all readers."""

    async def activity(
        self, position: int, *, limit: int = 500, most_bytes: int | None = None
    ) -> Page[ActivityRow]:
        """List rows of the activity log from a position on, oldest first.

        No row is ever added before one that was read."""

    async def activity_span(self) -> tuple[int, int]:
        """Return the oldest position kept and the next one; equal if nothing is kept."""

    async def forget_activity(self, keep: timedelta) -> int:
        """Delete rows of the activity log older than `keep`. Returns how many."""


class SettingTable(Protocol):
    """Values that all processes see."""

    async def setting(self, key: str) -> Any:
        """Return a value that all processes see, None if it was never written."""

    async def set_setting(self, key: str, value: Any, *, tx: Transaction | None = None) -> None:
        """Write a value that all processes see; None removes it."""

    async def use_choice(self, key: str, *, tx: Transaction | None = None) -> None:
        """Mark the setting of a conversation as used, by removing its `unused_since`."""

    async def prune_choices(
        self, keep: timedelta | None, most: int, channels: Sequence[str]
    ) -> int:
        """Delete settings `default/<conversation>` unused for `keep`. Returns how many.

        At most `most` are left of each of these channels, and of all others together, latest used
        first. A setting counts as unused from the first call that finds it so."""


class AuditLog(Protocol):
    """Acts of people and programs: who did what to which event or person."""

    async def audit(self, entry: AuditEntry, *, tx: Transaction | None = None) -> int:
        """Append an act to the audit log and return its id; ignores `id` and `at` of the entry."""

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
        """Return an opaque name of a person for the audit log: a salted hash, always the same."""

    async def prune_audit(self, keep: timedelta) -> int:
        """Delete audit entries older than `keep` and return how many."""


class Store(
    EventQueue,
    JournalTable,
    History,
    ProcessTable,
    ActivityLog,
    SettingTable,
    AuditLog,
    Protocol,
):
    """The database of one installation. All methods are safe to call from many tasks.

    Times are aware datetimes in UTC. A list ends with the row that reaches `most_bytes`; without
    it, only rows are counted."""

    @property
    def engine(self) -> object:
        """The engine that does the work: the store itself, unless it wraps one."""

    async def vacuum(self, *, at_once: bool = True) -> None:
        """Free the bytes of deleted rows.

        SQLite rewrites its file, rebuilds the full-text index and empties the write-ahead log,
        while writers wait. PostgreSQL vacuums its tables, or leaves it to autovacuum."""

    async def close(self) -> None:
        """Close connections and threads, and end the sign of life."""

"""Pauses: agents, channels and queues that no process works until somebody resumes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from holdfast.queue.audit import AuditEntry
from holdfast.queue.event import INBOX, OUTBOX
from holdfast.queue.store import Store
from holdfast.store.payload import dump, storable_name
from holdfast.store.scoped import Dialect, dialect_of

PauseKind = Literal["agent", "channel", "queue"]
KINDS: tuple[PauseKind, ...] = get_args(PauseKind)
QUEUES: dict[PauseKind, str] = {"agent": INBOX, "channel": OUTBOX}
"""The queues whose targets are agents and channels."""
REASON_LENGTH = 500
NAME_LENGTH = 200
MOST_PAUSES = 1000
COLUMNS = "kind, name, reason, paused_by, paused_at"

WAKE = "pause"
"""Name by which processes are woken to read the pauses again; no queue has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """An agent, a channel or a queue that is paused, by whom, since when, and why."""

    kind: PauseKind
    name: str
    reason: str | None
    paused_by: str
    paused_at: datetime


@dataclass(frozen=True, slots=True)
class ActivePauses:
    """The pauses of a store, with the questions that consumers ask."""

    pauses: Sequence[Pause] = ()

    def find(self, kind: PauseKind, name: str) -> Pause | None:
        return next((one for one in self.pauses if (one.kind, one.name) == (kind, name)), None)

    def has_queue(self, queue: str) -> bool:
        """Return whether a whole queue is paused."""
        return self.find("queue", queue) is not None

    def targets(self, queue: str) -> frozenset[str]:
        """Return the paused targets of a queue: agents of the inbox, channels of the outbox."""
        return frozenset(one.name for one in self.pauses if QUEUES.get(one.kind) == queue)


class Pauses:
    """The pauses in a store's database."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._dialect: Dialect = dialect_of(store)

    async def all(self) -> ActivePauses:
        """Return all pauses, by kind and name."""
        rows = await self._dialect.rows(
            f"select {COLUMNS} from {self._table} order by kind, name limit {MOST_PAUSES}",
            {},
        )
        return ActivePauses([self._pause(row) for row in rows])

    async def pause(self, kind: PauseKind, name: str, reason: str | None, *, actor: str) -> Pause:
        """Pause something for all processes. If it is paused already, only its reason changes."""
        values = {
            "kind": kind,
            "name": storable_name(name),
            "reason": None if reason is None else storable_name(reason),
            "paused_by": actor,
            "paused_at": self._dialect.moment(await self._store.now()),
        }
        marks = ", ".join(self._dialect.mark.format(column) for column in values)
        [row] = await self._dialect.write(
            f"insert into {self._table} ({', '.join(values)}) values ({marks})"
            " on conflict (kind, name) do update set reason = excluded.reason"
            f" returning {COLUMNS}",
            values,
        )
        pause = self._pause(row)
        await self._publish("paused", pause, actor)
        return pause

    async def resume(self, kind: PauseKind, name: str, *, actor: str) -> bool:
        """End a pause, so that all processes work again. Returns False if there was none."""
        marks = [f"{one} = {self._dialect.mark.format(one)}" for one in ("kind", "name")]
        where, values = " and ".join(marks), {"kind": kind, "name": storable_name(name)}
        found = await self._dialect.rows(
            f"select {COLUMNS} from {self._table} where {where}", values
        )
        for row in found:
            # While the pause lasts: a sweep after its end would expire old events at once.
            await self._forgive_wait(self._pause(row))
        rows = await self._dialect.write(
            f"delete from {self._table} where {where} returning {COLUMNS}", values
        )
        for row in rows:
            await self._publish("resumed", self._pause(row), actor)
            await self._store.wake(QUEUES.get(kind, name))
        return bool(rows)

    async def _forgive_wait(self, pause: Pause) -> None:
        """Restart the waiting time of events; otherwise the next sweep would expire old ones."""
        mark = self._dialect.mark.format
        values: dict[str, Any] = {
            "queue": QUEUES.get(pause.kind, pause.name),
            "now": self._dialect.moment(await self._store.now()),
        }
        which = ""
        if pause.kind != "queue":
            routing = await self._store.setting("routing") or {}
            is_default = pause.kind == "agent" and routing.get("default") == pause.name
            values["targets"] = self._dialect.array([pause.name, *([""] if is_default else [])])
            each = self._dialect.each.format("targets")
            which = f" and target in (select targets.value from {each})"
        await self._dialect.write(
            f"update {self._dialect.schema}event set vt = {mark('now')}"
            f" where queue = {mark('queue')}"
            f" and head and fence = 0 and vt < {mark('now')}{which} returning id",
            values,
        )

    async def _publish(
        self, action: Literal["paused", "resumed"], pause: Pause, actor: str
    ) -> None:
        """Record the act, show it to the streams, and wake all processes."""
        subject = f"{pause.kind}:{pause.name}"
        await self._store.audit(AuditEntry(actor=actor, action=action, subject=subject))
        if await self._store.setting("activity"):
            frame = {"type": action, "kind": pause.kind, "name": pause.name, "reason": pause.reason}
            # Streams are filtered by the keys `agent` and `channel`.
            frame |= {} if pause.kind == "queue" else {pause.kind: pause.name}
            await self._dialect.write(
                f"insert into {self._dialect.schema}activity (frames)"
                f" values ({self._dialect.mark.format('frames')}) returning id",
                {"frames": dump([frame])},
            )
        await self._store.wake(WAKE)

    def _pause(self, row: Sequence[Any]) -> Pause:
        kind, name, reason, paused_by, at = row
        return Pause(
            kind=kind,
            name=name,
            reason=reason,
            paused_by=paused_by,
            paused_at=self._dialect.to_datetime(at),
        )

    @property
    def _table(self) -> str:
        return f"{self._dialect.schema}pause"


def describe_pause(pause: Pause) -> str:
    """Return a pause as one line for people."""
    why = f" ({pause.reason})" if pause.reason else ""
    since = pause.paused_at.strftime("%Y-%m-%d %H:%M UTC")
    resume = f"`holdfast resume {pause.kind} {pause.name}` ends it"
    return f"{pause.kind} {pause.name} is paused by {pause.paused_by} since {since}{why}; {resume}"

"""Schedules in the database: messages that are put at certain times, on every engine alike."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal

from holdfast.chat import AgentMessage, ChatStore
from holdfast.errors import Unknown, WrongUsage
from holdfast.message import SCHEDULE, Payload, conversation_of, subject_of, written_of
from holdfast.queue.audit import Action, AuditEntry
from holdfast.queue.event import NewEvent
from holdfast.queue.pages import Measure, Page
from holdfast.queue.store import Store
from holdfast.settings import Settings
from holdfast.settings.timing import Interval, Once, Timing, parse_timing
from holdfast.store.chain import read_chain
from holdfast.store.conversations import Conversations
from holdfast.store.payload import dump, parse
from holdfast.store.scoped import Dialect, dialect_of

SENDER = "Schedule"
HEARTBEAT = "heartbeat"
"""The channel of heartbeats, which are schedules, too."""

ON_TIME = timedelta(minutes=1)
"""Delay up to which a run counts as on time, not as missed."""
MOST_MISSED = 100
"""Missed runs that the policy "all" makes up for; the latest ones."""
UPCOMING = 100
"""Schedules that `upcoming` reads."""
SHORTEST = timedelta(seconds=1)
"""Shortest time between two runs."""
SEARCHED_LINES = 1000
"""Lines of a conversation that are searched for runs."""

Source = Literal["person", "agent", "file"]
Missed = Literal["skip", "once", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A message for an agent, and the times at which it is put."""

    id: str
    source: Source
    """Its author: a person, an agent with its tool, or a file. Only processes with that file run
    the last kind."""
    agent: str
    timing: str
    zone: str = "UTC"
    missed: Missed = "once"
    event: Payload
    """The payload of the message. Its channel and conversation get the answer."""
    starts_at: datetime
    """Intervals are counted from here."""
    next_at: datetime | None = None
    """The next run; None after the last one."""
    last_at: datetime | None = None
    paused_at: datetime | None = None
    created_at: datetime

    @property
    def times(self) -> Timing:
        """The times at which it runs. Raises ValueError for a row that was damaged by hand."""
        return parse_timing(self.timing, self.zone, self.starts_at)

    @property
    def text(self) -> str:
        return written_of(self.event)

    @property
    def to(self) -> str | None:
        """The conversation that gets the answers; None if they stay in history."""
        own = self.event["channel"] in (SCHEDULE, HEARTBEAT)
        return None if own else conversation_of(self.event)

    @property
    def state(self) -> Literal["waiting", "paused", "ended"]:
        if self.next_at is None:
            return "ended"
        return "waiting" if self.paused_at is None else "paused"

    @property
    def interval(self) -> timedelta:
        """Return the time between two runs; 0 for all but intervals."""
        times = self.times
        return times.every if isinstance(times, Interval) else timedelta(0)

    @property
    def is_heartbeat(self) -> bool:
        return bool(self.event["channel"] == HEARTBEAT)

    @property
    def prefix(self) -> str:
        """The beginning of the ids of its messages."""
        return f"{HEARTBEAT}_{self.agent}_" if self.is_heartbeat else f"{SCHEDULE}_{self.id}_"

    def message(self, run: datetime, max_attempts: int) -> NewEvent:
        """Return the message of a run. The time is part of its id, so that it is put once."""
        return NewEvent(
            event=self.event,
            target=self.agent,
            message_id=f"{self.prefix}{run.isoformat()}",
            max_attempts=max_attempts,
        )

    def due(self, now: datetime) -> list[datetime]:
        """Return the runs due at `now`, oldest first; the policy decides about missed ones."""
        if self.next_at is None or self.next_at > now:
            return []
        most = MOST_MISSED if self.missed == "all" else 1
        first = self.next_at if self.missed != "skip" else max(self.next_at, now - ON_TIME)
        return self.times.between(first, now, most)


def describe_schedule(one: Schedule) -> dict[str, Any]:
    """Return a schedule as commands and the API show it; times in milliseconds since 1970."""
    return {
        "id": one.id,
        "agent": one.agent,
        "timing": one.timing,
        "zone": one.zone,
        "message": one.text,
        "to": one.to,
        "missed": one.missed,
        "state": one.state,
        "source": one.source,
        "nextAt": _millis(one.next_at),
        "lastAt": _millis(one.last_at),
        "createdAt": _millis(one.created_at),
    }


def _millis(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1000)


COLUMNS = tuple(field.name for field in fields(Schedule))
MOMENTS = frozenset({"starts_at", "next_at", "last_at", "paused_at", "created_at"})


class Schedules:
    """The schedules in a store's database."""

    def __init__(self, store: Store) -> None:
        self._dialect: Dialect = dialect_of(store)

    async def add(self, schedule: Schedule) -> bool:
        """Store a schedule. Returns False if its id is taken."""
        return bool(await self._insert(schedule, "on conflict (id) do nothing"))

    async def configure(self, schedule: Schedule) -> bool:
        """Store a schedule that a file defines. Returns False if another source has taken its id.

        The next run stays as it is unless the timing has changed; a pause always stays."""
        columns = ("agent", "timing", "zone", "missed", "event", "subject")
        times = "{0} = case when own.timing = excluded.timing and own.zone = excluded.zone"
        times += " then own.{0} else excluded.{0} end"
        update = [f"{name} = excluded.{name}" for name in columns]
        update += [times.format(name) for name in ("starts_at", "next_at")]
        update = [f"on conflict (id) do update set {', '.join(update)} where own.source = 'file'"]
        return bool(await self._insert(schedule, *update))

    async def find(self, id: str) -> Schedule:
        """Return a schedule. Raises Unknown."""
        rows = await self._rows(f"id = {self._mark('id')}", {"id": id})
        if not rows:
            raise Unknown(f"there is no schedule {id!r}; `holdfast schedule list` shows all")
        return rows[0]

    async def all(self, agent: str | None = None) -> list[Schedule]:
        """Return all schedules, or those of an agent, in the order of their ids."""
        which = "true" if agent is None else f"agent = {self._mark('agent')}"
        return await self._rows(f"{which} order by id", {} if agent is None else {"agent": agent})

    async def page(
        self, after: str | None, *, limit: int, most_bytes: int | None = None
    ) -> Page[Schedule]:
        """List schedules in the order of their ids; only those after `after`."""
        found = await self._dialect.page(
            f"select {', '.join(COLUMNS)} from {self._table} where id > {self._mark('after')}"
            f" order by id limit {self._mark('limit')}",
            {"after": after or "", "limit": limit},
            limit,
            most_bytes,
        )
        return found.map(self._schedule)

    async def upcoming(self, files: Sequence[str]) -> list[Schedule]:
        """Return the schedules that run next, soonest first.

        Of those that files define, only the ones whose ids are in `files`."""
        each = self._dialect.each.format("files")
        where = (
            "paused_at is null and next_at is not null"
            f" and (source <> 'file' or id in (select files.value from {each}))"
            f" order by next_at, id limit {UPCOMING}"
        )
        return await self._rows(where, {"files": self._dialect.array(list(files))})

    async def advance(
        self, seen: Schedule, next_at: datetime | None, last_at: datetime | None
    ) -> bool:
        """Move a schedule on to its next run. Returns False if another process did so before."""
        found = await self._update(
            "next_at = {next_at}, last_at = {last_at}",
            "next_at = {seen} and paused_at is null",
            {"id": seen.id, "seen": seen.next_at, "next_at": next_at, "last_at": last_at},
        )
        return bool(found)

    async def set_paused(
        self, id: str, paused_at: datetime | None, next_at: datetime | None
    ) -> None:
        """Pause a schedule, or let it run again."""
        values = {"id": id, "paused_at": paused_at, "next_at": next_at}
        await self._update("paused_at = {paused_at}, next_at = {next_at}", "true", values)

    async def remove(self, id: str) -> bool:
        """Delete a schedule. Returns False if there is none."""
        return bool(await self._delete("id = {id}", {"id": id}))

    async def forget(self, subject: str) -> int:
        """Delete the schedules of a person. Returns how many."""
        return await self._delete("subject = {subject}", {"subject": subject})

    async def prune(self, before: datetime) -> int:
        """Delete the schedules whose last run was before a moment. Returns how many."""
        where = "source <> 'file' and next_at is null and coalesce(last_at, created_at) < {before}"
        return await self._delete(where, {"before": before})

    async def _insert(self, schedule: Schedule, *conflict: str) -> Sequence[Any]:
        values = {name: getattr(schedule, name) for name in COLUMNS}
        values |= {"event": dump(schedule.event), "subject": subject_of(schedule.event)}
        marks = ", ".join(self._mark(name) for name in values)
        return await self._write(
            f"insert into {self._table} as own ({', '.join(values)}) values ({marks})"
            f" {' '.join(conflict)} returning id",
            values,
        )

    async def _update(self, change: str, where: str, values: dict[str, Any]) -> Sequence[Any]:
        marks = {name: self._mark(name) for name in values}
        return await self._write(
            f"update {self._table} set {change.format(**marks)}"
            f" where id = {marks['id']} and {where.format(**marks)} returning id",
            values,
        )

    async def _delete(self, where: str, values: dict[str, Any]) -> int:
        condition = where.format(**{name: self._mark(name) for name in values})
        return len(
            await self._write(f"delete from {self._table} where {condition} returning id", values)
        )

    async def _write(self, statement: str, values: dict[str, Any]) -> Sequence[Any]:
        stored = {
            name: self._dialect.moment(value) if isinstance(value, datetime) else value
            for name, value in values.items()
        }
        return await self._dialect.write(statement, stored)

    async def _rows(self, where: str, values: dict[str, Any]) -> list[Schedule]:
        rows = await self._dialect.rows(
            f"select {', '.join(COLUMNS)} from {self._table} where {where}", values
        )
        return [self._schedule(row) for row in rows]

    def _schedule(self, row: Sequence[Any]) -> Schedule:
        values = dict(zip(COLUMNS, row, strict=True))
        moments = {
            name: self._dialect.to_datetime(values[name])
            for name in MOMENTS
            if values[name] is not None
        }
        return Schedule(**values | moments | {"event": parse(values["event"])})

    @property
    def _table(self) -> str:
        return f"{self._dialect.schema}schedule"

    def _mark(self, name: str) -> str:
        return self._dialect.mark.format(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A schedule as somebody asks for it."""

    timing: str
    text: str
    agent: str
    zone: str = "UTC"
    missed: Missed = "once"
    to: str | None = None
    """The conversation that gets the answers, such as slack:C123."""


def build(draft: Draft, id: str, source: Source, now: datetime, **event: Any) -> Schedule:
    """Return a new schedule; `event` replaces fields of its payload. Raises WrongUsage."""
    if not draft.text.strip():
        raise WrongUsage("a schedule needs a text")
    schedule = Schedule(
        id=id,
        source=source,
        agent=draft.agent,
        timing=draft.timing.strip(),
        zone=draft.zone,
        missed=draft.missed,
        event=_payload(draft, id) | event,
        starts_at=now,
        created_at=now,
    )
    try:
        if shortest_pause(schedule.times, now) < SHORTEST:
            raise ValueError(f"a schedule runs at most every {SHORTEST.total_seconds():g} s")
        return replace(schedule, next_at=schedule.times.after(now))
    except (ValueError, OverflowError) as error:
        raise WrongUsage(str(error)) from None


def shortest_pause(times: Timing, now: datetime) -> timedelta:
    """Return the time between the next two runs; the longest possible if there is only one."""
    first = times.after(now)
    second = None if first is None else times.after(first)
    return timedelta.max if first is None or second is None else second - first


def _payload(draft: Draft, id: str) -> Payload:
    channel, _, name = (draft.to or f"{SCHEDULE}:{id}").partition(":")
    if not (channel and name):
        raise WrongUsage(f"{draft.to!r} is not a conversation; give CHANNEL:CONVERSATION")
    return {
        "kind": "message",
        "channel": channel,
        "sender": SENDER,
        "sender_id": None,
        "message": draft.text,
        "conversation": f"{channel}:{name}",
        SCHEDULE: id,
    }


def configured_schedules(settings: Settings, default: str, now: datetime) -> list[Schedule]:
    """Return the schedules of holdfast.toml; `default` is the agent of those that name none."""
    return [
        build(
            Draft(
                timing=table.timing,
                text=table.message,
                agent=table.agent or default,
                zone=table.zone,
                missed=table.missed,
                to=table.to,
            ),
            table.id,
            "file",
            now,
        )
        for table in settings.schedules
    ]


async def add_schedule(store: Store, draft: Draft, *, actor: str) -> Schedule:
    """Store a schedule of a person, and wake the processes. Raises WrongUsage."""
    schedules, now = Schedules(store), await store.now()
    while True:
        schedule = build(draft, secrets.token_hex(4), "person", now)
        if schedule.next_at is None:
            raise WrongUsage(f"{draft.timing} is over; a schedule runs in the future")
        # Draw again if a generated id is taken.
        if await schedules.add(schedule):
            await note_change(store, actor, "schedule_added", schedule)
            return schedule


async def pause_schedule(store: Store, id: str, *, actor: str) -> Schedule:
    """Pause a schedule until somebody resumes it, even over restarts. Raises Unknown."""
    schedules = Schedules(store)
    schedule = await schedules.find(id)
    if schedule.paused_at is None:
        await schedules.set_paused(id, await store.now(), schedule.next_at)
        await note_change(store, actor, "schedule_paused", schedule)
    return await schedules.find(id)


async def resume_schedule(store: Store, id: str, *, actor: str) -> Schedule:
    """Let a paused schedule run again. Raises Unknown.

    Its runs during the pause are not made up for, except that of a one-time schedule."""
    schedules = Schedules(store)
    schedule = await schedules.find(id)
    if schedule.paused_at is not None:
        times, next_at = schedule.times, schedule.next_at
        if not isinstance(times, Once):
            next_at = times.after(await store.now())
        await schedules.set_paused(id, None, next_at)
        await note_change(store, actor, "schedule_resumed", schedule)
    return await schedules.find(id)


async def remove_schedule(store: Store, id: str, *, actor: str) -> Schedule:
    """Delete a schedule. Messages that it has put stay. Raises Unknown."""
    schedules = Schedules(store)
    schedule = await schedules.find(id)
    if await schedules.remove(id):
        await note_change(store, actor, "schedule_removed", schedule)
    return schedule


async def note_change(store: Store, actor: str, action: Action, schedule: Schedule) -> None:
    """Write to the audit log, and wake the processes that run schedules."""
    entry = AuditEntry(
        actor=actor,
        action=action,
        subject=f"{SCHEDULE}:{schedule.id}",
        details={"agent": schedule.agent},
    )
    await store.audit(entry)
    await store.wake(SCHEDULE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run of a schedule, as history has it."""

    message_id: str
    ran_at: datetime
    status: str
    """pending, processing, waiting, completed or dead."""
    answer: str | None = None
    event_id: int | None = None
    """None once the event is pruned; its lines stay longer."""
    line_id: int = 0
    """Its line in the history, for paging."""


def describe_run(one: Run) -> dict[str, Any]:
    """Return a run as commands and the API show it."""
    return {
        "messageId": one.message_id,
        "ranAt": _millis(one.ran_at),
        "status": one.status,
        "answer": one.answer,
        "eventId": one.event_id,
    }


async def runs_of(
    store: ChatStore,
    schedule: Schedule,
    limit: int = 20,
    *,
    before_id: int | None = None,
    most_bytes: int | None = None,
) -> Page[Run]:
    """Return the latest runs of a schedule, newest first, as its agent's history has them.

    `before_id` is the line of a run: only older ones are returned."""
    lines = await _lines_of_runs(store, schedule, before_id, most_bytes)
    answers = {line.message_id: line.content for line in lines if line.role == "assistant"}
    measure, runs = Measure(limit, most_bytes), Page[Run]()
    for line in (line for line in lines if line.role == "user"):
        answer = answers.get(line.message_id)
        if answer is None and before_id is not None:
            # Runs that waited for one another have their answers behind the next beginnings.
            answer = await _late_answer(store, schedule, line.message_id)
        runs.append(await _run(store, line, line.created_at or schedule.created_at, answer))
        measure.add((answer,))
        if measure.is_full:
            runs.has_more = True
            return runs
    runs.has_more = lines.has_more
    return runs


async def _late_answer(store: ChatStore, schedule: Schedule, message_id: str) -> str | None:
    lines = await Conversations(store).lines(
        conversation_of(schedule.event), agents=[schedule.agent], message_ids=[message_id]
    )
    answers = [line.content for line in lines if line.role == "assistant"]
    return answers[-1] if answers else None


async def _lines_of_runs(
    store: ChatStore, schedule: Schedule, before_id: int | None, most_bytes: int | None
) -> Page[AgentMessage]:
    """Read lines until one is the beginning of a run: its answer alone may fill a page."""
    found, searched, most = Page[AgentMessage](), 0, SEARCHED_LINES
    read = partial(
        store.agent_messages, schedule.agent, conversation=conversation_of(schedule.event)
    )
    while searched < most:
        lines = await read(limit=most, before_id=before_id, most_bytes=most_bytes)
        found += [line for line in lines if line.message_id.startswith(schedule.prefix)]
        found.has_more = lines.has_more
        if not lines.has_more or any(line.role == "user" for line in found):
            break
        searched, before_id = searched + len(lines), lines[-1].id
    return found


async def _run(store: ChatStore, line: AgentMessage, ran_at: datetime, answer: str | None) -> Run:
    chain = await read_chain(store, line.message_id)
    # Events are pruned before the lines of history.
    status, event_id = ("completed", None) if chain is None else (chain.status, chain.message.id)
    return Run(
        message_id=line.message_id,
        ran_at=ran_at,
        status=status,
        answer=answer,
        event_id=event_id,
        line_id=line.id or 0,
    )

"""`holdfast status`: the queues, what waits in them, and the processes that work."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import (
    AsJson,
    Config,
    Database,
    Home,
    load_settings,
    open_existing,
    parse_duration,
)
from holdfast.cli.printing import console, is_wide, print_json, short, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from holdfast.memory.knowledge import IndexStatus
    from holdfast.queue.store import Count, Process
    from holdfast.routing.directory import Directory
    from holdfast.settings import Settings
    from holdfast.store import Store
    from holdfast.store.pauses import Pause

LIVE = ("ready", "delayed", "queued", "leased")
COLUMNS: Mapping[str, str] = {
    **{name: name for name in ("queue", *LIVE)},
    "to_fetch": "to fetch",
    **{name: name for name in ("dead", "finished", "oldest")},
    "oldest_pending": "oldest pending",
    "arriving": "arriving/s",
    "finishing": "finishing/s",
}
"""Fields of a queue and the headings of their columns."""
NARROW_COLUMNS: Mapping[str, str] = {
    **COLUMNS,
    "to_fetch": "to\nfetch",
    "oldest_pending": "oldest\npending",
    "arriving": "in/s",
    "finishing": "out/s",
}
RATES = ("arriving", "finishing")
MOST_RUNNING = 20
NO_TEXT = 2**31 - 1
SHORTEST_INTERVAL = timedelta(milliseconds=10)
"""Shortest interval of --watch; without one it would keep the database busy."""
"""Offset behind the end of every text."""
NO_PROCESS = "no process works on this database: start `holdfast up`"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """One queue. Responses that only clients can fetch count as `to_fetch`, not as live."""

    queue: str
    ready: int
    delayed: int
    queued: int
    leased: int
    to_fetch: int
    dead: int
    finished: int
    oldest: timedelta | None = None
    """Longest time that a ready event has waited."""
    oldest_pending: timedelta | None = None
    """Age of the oldest live event, ready or not; of `memory`, how far the index lags."""
    arriving: float | None = None
    """Events per second since the reading before; None in the first."""
    finishing: float | None = None

    @property
    def total(self) -> int:
        """The number of events, live and finished."""
        live = self.ready + self.delayed + self.queued + self.leased
        return live + self.to_fetch + self.finished


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningTurn:
    """A message that an agent works on, and what the agent says about it."""

    id: int
    message_id: str | None
    agent: str
    started_at: datetime
    progress: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One reading of queues and processes."""

    at: datetime
    queues: list[QueueState]
    processes: list[Process]
    running: list[RunningTurn]
    """Messages that agents work on now."""
    unserved: dict[str, int]
    """Messages of agents that no running process serves."""
    paused: list[Pause] = field(default_factory=list)
    """Agents, channels and queues that are paused."""
    index: IndexStatus | None = None
    """Progress of reindexing for another embedding model; None if there is none."""


def status(
    watch: Annotated[
        bool, typer.Option("--watch", help="Repeat, with rates, until interrupted.")
    ] = False,
    every: Annotated[
        timedelta,
        typer.Option(parser=parse_duration, metavar="DURATION", help="Interval of --watch"),
    ] = "1s",  # type: ignore[assignment]
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Show queues and processes."""
    if every < SHORTEST_INTERVAL:
        raise typer.BadParameter("--every is at least 0.01 s")
    settings = load_settings(config, database=database, home=home)
    try:
        asyncio.run(_status(settings, every if watch else None, as_json))
    except KeyboardInterrupt:
        # Ctrl-C is the way to end a watch.
        if not watch:
            raise


async def _status(settings: Settings, every: timedelta | None, as_json: bool) -> None:
    async with open_existing(settings) as store:
        if every is None:
            state = await _read_state(store)
            print_json(state) if as_json else console().print(_render(state))
        elif as_json or not sys.stdout.isatty():
            async for state in _watch(store, every):
                print_json(state, indent=None) if as_json else console().print(_render(state))
                sys.stdout.flush()
        else:
            await _draw_live(store, every)


async def _draw_live(store: Store, every: timedelta) -> None:
    from rich.live import Live

    with Live(console=console(), screen=True, auto_refresh=False) as live:
        async for state in _watch(store, every):
            live.update(_render(state), refresh=True)


async def _watch(store: Store, every: timedelta) -> AsyncIterator[State]:
    """Yield readings for ever, from the second on with rates."""
    before, before_at = await _read_state(store), time.monotonic()
    yield before
    while True:
        await asyncio.sleep(every.total_seconds())
        state, at = await _read_state(store), time.monotonic()
        yield _with_rates(state, before, at - before_at)
        before, before_at = state, at


async def _read_state(store: Store) -> State:
    from holdfast.memory.maintenance import index_progress
    from holdfast.queue.event import INBOX, MEMORY, OUTBOX
    from holdfast.routing.directory import read
    from holdfast.store.memory import open_knowledge

    counts, directory = await store.counts(), await read(store)
    names = dict.fromkeys([INBOX, OUTBOX, MEMORY, *sorted(count.queue for count in counts)])
    now = await store.now()
    queues = [await _read_queue(store, name, counts, directory, now) for name in names]
    index = await index_progress(store, open_knowledge(store))
    if index is not None and not index.other_model:
        index = None
    return State(
        at=now,
        queues=queues,
        processes=await store.processes(),
        running=await _read_running(store, directory),
        unserved=_unserved_counts([count for count in counts if count.queue == INBOX], directory),
        paused=list(directory.paused.pauses),
        index=index,
    )


async def _read_running(store: Store, directory: Directory) -> list[RunningTurn]:
    """Read the newest turns of the inbox that are being worked, with their progress."""
    from holdfast.queue.event import INBOX

    return [
        RunningTurn(
            id=event.id,
            message_id=event.message_id,
            agent=event.target or directory.routing.default,
            started_at=event.claimed[-1] if event.claimed else event.updated_at,
            progress=(await store.journal(event.id, offset=NO_TEXT, results=False)).progress,
        )
        for event in await store.leased(INBOX, limit=MOST_RUNNING)
    ]


def _unserved_counts(counts: list[Count], directory: Directory) -> dict[str, int]:
    """Count the messages that wait for a process to serve their agent, by agent."""
    waiting: dict[str, int] = {}
    for count in counts:
        agent = count.target or directory.routing.default
        if not directory.is_served(agent):
            waiting[agent] = waiting.get(agent, 0) + count.ready + count.delayed + count.queued
    return {agent: number for agent, number in sorted(waiting.items()) if number}


async def _read_queue(
    store: Store, name: str, counts: list[Count], directory: Directory, now: datetime
) -> QueueState:
    from holdfast.queue.event import OUTBOX
    from holdfast.queue.store import DEAD_OUTCOMES

    ended = await store.outcomes(name)
    own = [count for count in counts if count.queue == name]
    # Nobody delivers the responses of a channel without a process: they are not a backlog.
    work = [one for one in own if name != OUTBOX or directory.is_delivered(one.target)]
    return QueueState(
        queue=name,
        to_fetch=sum(one.ready + one.delayed + one.queued for one in own if one not in work),
        dead=sum(ended.get(outcome, 0) for outcome in DEAD_OUTCOMES),
        finished=sum(ended.values()),
        oldest=_age((count.ready_since for count in work), now),
        oldest_pending=_age((count.pending_since for count in work), now),
        **{kind: sum(getattr(count, kind) for count in work) for kind in LIVE},
    )


def _age(moments: Iterable[datetime | None], now: datetime) -> timedelta | None:
    first = min((moment for moment in moments if moment is not None), default=None)
    return None if first is None else max(now - first, timedelta())


def _with_rates(state: State, before: State, seconds: float) -> State:
    last = {queue.queue: queue for queue in before.queues}
    queues = [
        # Retention deletes finished events; that is not a negative arrival.
        replace(
            queue,
            arriving=max(0.0, (queue.total - last[queue.queue].total) / seconds),
            finishing=max(0.0, (queue.finished - last[queue.queue].finished) / seconds),
        )
        if queue.queue in last
        else queue
        for queue in state.queues
    ]
    return replace(state, queues=queues)


def _render(state: State) -> RenderableType:
    from rich.console import Group

    from holdfast.store.pauses import describe_pause

    parts: list[RenderableType] = [
        _queue_table(state),
        _process_table(state) if state.processes else NO_PROCESS,
    ]
    if state.running:
        parts.append(_running_table(state))
    if state.unserved and state.processes:
        counts = state.unserved.items()
        waiting = ", ".join(
            f"{agent or 'the default agent'} ({number})" for agent, number in counts
        )
        parts.append(f"waiting for a server: {waiting}; no running process serves these agents")
    parts += [describe_pause(pause) for pause in state.paused]
    if state.index is not None:
        parts.append(describe_reindexing(state.index))
    return Group(*parts)


def _queue_table(state: State) -> RenderableType:
    columns = COLUMNS if is_wide() else NARROW_COLUMNS
    has_rates = any(queue.arriving is not None for queue in state.queues)
    names = [name for name in columns if has_rates or name not in RATES]
    # At 80 columns rates take the place of ages.
    if has_rates and not is_wide():
        names = [name for name in names if name not in ("oldest_pending", "delayed")]
    rows = [[getattr(queue, name) for name in names] for queue in state.queues]
    return table([columns[name] for name in names], rows)


def _process_table(state: State) -> RenderableType:
    if is_wide():
        wide = [
            (one.id, one.host, one.started_at, one.seen_at, one.last_wake_reason, one.turns)
            for one in state.processes
        ]
        return table(("process", "host", "started", "seen", "last wake", "turns"), wide)
    narrow = [(one.id, one.started_at, one.seen_at, one.turns) for one in state.processes]
    return table(("process", "started", "seen", "turns"), narrow)


def _running_table(state: State) -> RenderableType:
    rows = [
        (one.id, one.message_id, one.agent, one.started_at, short(one.progress or ""))
        for one in state.running
    ]
    return table(("running", "message", "agent", "since", "progress"), rows)


def describe_reindexing(index: IndexStatus) -> str:
    """Say how far the change to another embedding model is."""
    done = index.documents - index.other_model
    return f"memory is being reindexed for {index.model}: {done} of {index.documents} documents"

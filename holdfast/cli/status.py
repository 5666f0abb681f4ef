"""`holdfast status`: what waits, what is worked, and by whom."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
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
from holdfast.cli.printing import console, print_json, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from holdfast.memory.knowledge import IndexStatus
    from holdfast.queue.store import Count, Process
    from holdfast.settings import Settings
    from holdfast.store import Store

LIVE = ("ready", "delayed", "queued", "leased")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """One queue; the rates are events per second since the look before, None at the first."""

    queue: str
    ready: int
    delayed: int
    queued: int
    leased: int
    dead: int
    finished: int
    oldest: timedelta | None = None
    """How long the longest waiting of the ready ones has waited."""
    oldest_pending: timedelta | None = None
    """Age of the oldest that is there, also of one that is held or due later: of memory, how far the index lags."""
    arriving: float | None = None
    finishing: float | None = None

    @property
    def stored(self) -> int:
        return self.ready + self.delayed + self.queued + self.leased + self.finished


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    at: datetime
    queues: list[QueueState]
    processes: list[Process]
    unserved: dict[str, int]
    """Live messages of agents that no running process serves: they wait for a server."""
    index: IndexStatus | None = None
    """Where memory is being indexed anew by another model: how far that is."""


def status(
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep looking, and show rates, until interrupted.")
    ] = False,
    every: Annotated[
        timedelta,
        typer.Option(parser=parse_duration, metavar="DURATION", help="How often --watch looks"),
    ] = "1s",  # type: ignore[assignment]
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Show queues and processes."""
    settings = load_settings(config, database=database, home=home)
    try:
        asyncio.run(_status(settings, every if watch else None, as_json))
    except KeyboardInterrupt:
        # The only way to end a watch is no failure.
        if not watch:
            raise


async def _status(settings: Settings, every: timedelta | None, as_json: bool) -> None:
    async with open_existing(settings) as store:
        if every is None:
            state = await _look(store)
            print_json(state) if as_json else console().print(_drawn(state))
        elif as_json or not sys.stdout.isatty():
            async for state in _looks(store, every):
                print_json(state, indent=None) if as_json else console().print(_drawn(state))
                sys.stdout.flush()
        else:
            await _draw_live(store, every)


async def _draw_live(store: Store, every: timedelta) -> None:
    from rich.live import Live

    with Live(console=console(), screen=True, auto_refresh=False) as live:
        async for state in _looks(store, every):
            live.update(_drawn(state), refresh=True)


async def _looks(store: Store, every: timedelta) -> AsyncIterator[State]:
    before, before_at = await _look(store), time.monotonic()
    yield before
    while True:
        await asyncio.sleep(every.total_seconds())
        state, at = await _look(store), time.monotonic()
        yield _with_rates(state, before, at - before_at)
        before, before_at = state, at


async def _look(store: Store) -> State:
    from holdfast.memory.maintenance import index_progress
    from holdfast.queue.event import INBOX, MEMORY, OUTBOX
    from holdfast.store.memory import open_knowledge

    counts = await store.counts()
    unserved = await _unserved(store, [count for count in counts if count.queue == INBOX])
    names = dict.fromkeys([INBOX, OUTBOX, MEMORY, *sorted(count.queue for count in counts)])
    now = await store.now()
    queues = [
        await _queue(store, name, [count for count in counts if count.queue == name], now)
        for name in names
    ]
    index = await index_progress(store, open_knowledge(store))
    if index is not None and not index.other_model:
        index = None
    return State(
        at=now, queues=queues, processes=await store.processes(), unserved=unserved, index=index
    )


async def _unserved(store: Store, counts: list[Count]) -> dict[str, int]:
    from holdfast.routing.directory import read

    directory = await read(store)
    waiting: dict[str, int] = {}
    for count in counts:
        agent = count.target or directory.routing.default
        if not directory.is_served(agent):
            waiting[agent] = waiting.get(agent, 0) + count.ready + count.delayed + count.queued
    return {agent: number for agent, number in sorted(waiting.items()) if number}


async def _queue(store: Store, name: str, counts: list[Count], now: datetime) -> QueueState:
    from holdfast.queue.store import DEAD_OUTCOMES

    ended = await store.outcomes(name)
    live = {kind: sum(getattr(count, kind) for count in counts) for kind in LIVE}
    dead = sum(ended.get(outcome, 0) for outcome in DEAD_OUTCOMES)
    return QueueState(
        queue=name,
        dead=dead,
        finished=sum(ended.values()),
        oldest=_age((count.ready_since for count in counts), now),
        oldest_pending=_age((count.pending_since for count in counts), now),
        **live,
    )


def _age(moments: Iterable[datetime | None], now: datetime) -> timedelta | None:
    first = min((moment for moment in moments if moment is not None), default=None)
    return None if first is None else max(now - first, timedelta())


def _with_rates(state: State, before: State, seconds: float) -> State:
    from dataclasses import replace

    last = {queue.queue: queue for queue in before.queues}
    queues = [
        # Retention takes finished events away, which is no arrival turned round.
        replace(
            queue,
            arriving=max(0.0, (queue.stored - last[queue.queue].stored) / seconds),
            finishing=max(0.0, (queue.finished - last[queue.queue].finished) / seconds),
        )
        if queue.queue in last
        else queue
        for queue in state.queues
    ]
    return replace(state, queues=queues)


def _drawn(state: State) -> RenderableType:
    from rich.console import Group

    columns = ["queue", *LIVE, "dead", "finished", "oldest", "oldest_pending"]
    rates = (
        ["arriving", "finishing"]
        if any(queue.arriving is not None for queue in state.queues)
        else []
    )
    rows = [[getattr(queue, name) for name in (*columns, *rates)] for queue in state.queues]
    heads = [*(name.replace("_", " ") for name in columns), *(f"{name}/s" for name in rates)]
    processes = [
        (one.id, one.host, one.started_at, state.at - one.seen_at, one.last_wake_reason, one.turns)
        for one in state.processes
    ]
    named = ("process", "host", "started", "seen ago", "last wake", "turns")
    nobody = "no process works on this database: start `holdfast up`"
    parts: list[RenderableType] = [
        table(heads, rows),
        table(named, processes) if processes else nobody,
    ]
    if state.unserved and processes:
        waiting = ", ".join(
            f"{agent or 'the default agent'} ({number})" for agent, number in state.unserved.items()
        )
        parts.append(f"waiting for a server: {waiting}; no running process serves these agents")
    if state.index is not None:
        parts.append(describe_reindexing(state.index))
    return Group(*parts)


def describe_reindexing(index: IndexStatus) -> str:
    """How far the change to another model is."""
    done = index.documents - index.other_model
    return (
        f"memory is indexed anew by the model {index.model}: {done} of {index.documents} documents"
    )

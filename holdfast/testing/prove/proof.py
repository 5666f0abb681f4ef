"""A proof: one undisturbed run of an app, then one with faults for each seed, compared."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psycopg
from psycopg import sql

from holdfast.migrations.runner import migrate
from holdfast.queue.event import INBOX, NewEvent, new_id
from holdfast.queue.store import Store
from holdfast.routing.router import Address, Routing, message, receive
from holdfast.store import open_store
from holdfast.testing.prove.faults import Faults
from holdfast.testing.prove.history import (
    RunHistory,
    Violations,
    compare,
    dead_letters,
    read_history,
    unknown_effects,
)
from holdfast.testing.prove.plan import ATTEMPTS, Input, Plan
from holdfast.testing.prove.worker import load_alone
from holdfast.testing.prove.workers import Workers
from holdfast.testing.servers import url_of

UNDISTURBED = -1
"""The seed of the run without faults."""
DUPLICATE_EVERY = 5
QUIET_FOR = timedelta(seconds=3)
"""A run has ended when nothing has been ready or changed for this long."""
END_WITHIN = timedelta(seconds=90)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedReport:
    """The result of one seed."""

    seed: int
    faults: dict[str, int]
    messages: int
    dead: int
    unknown: int
    violations: Violations


async def prove(plan: Plan, seeds: Sequence[int]) -> AsyncIterator[SeedReport]:
    """Run the app undisturbed, then with the faults of each seed. Yields a report for each run."""
    undisturbed, report = await _run(plan, UNDISTURBED, None)
    yield report
    for seed in seeds:
        _, report = await _run(plan, seed, undisturbed)
        yield report


async def _run(
    plan: Plan, seed: int, undisturbed: RunHistory | None
) -> tuple[RunHistory, SeedReport]:
    inputs = list(plan.inputs())
    async with _open_run(plan) as (store, routing, url, workers), workers.running(plan.workers):
        faults = Faults(seed, url, store, workers)
        async with asyncio.TaskGroup() as group:
            group.create_task(_send(store, routing, plan, inputs, seed))
            if undisturbed is not None:
                group.create_task(faults.run(plan.duration))
        await _await_end(store)
        history = await read_history(store, inputs)
    report = SeedReport(
        seed=seed,
        faults=dict(faults.counts),
        messages=len(inputs),
        dead=dead_letters(history),
        unknown=unknown_effects(history),
        violations=compare(history, undisturbed or history),
    )
    return history, report


@asynccontextmanager
async def _open_run(plan: Plan) -> AsyncIterator[tuple[Store, Routing, str, Workers]]:
    """Open a temporary store for one run."""
    async with AsyncExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-prove-"))
        url = stack.enter_context(_temporary_database(plan.database, Path(home)))
        migrate(url)
        os.environ.update(plan.environment({}))
        harness, _ = load_alone(plan.app, plan.config, url, Path(home))
        store = await stack.enter_async_context(open_store(url))
        arguments = [plan.app, str(plan.config or ""), url, home]
        yield store, harness.routing, url, Workers(arguments, plan.environment(dict(os.environ)))


@contextmanager
def _temporary_database(server: str, home: Path) -> Iterator[str]:
    if not server:
        yield f"sqlite:///{home}/prove.db"
        return
    name = sql.Identifier(database := new_id("holdfast_prove"))
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(name))
        try:
            yield url_of(server, database)
        finally:
            admin.execute(sql.SQL("drop database {} with (force)").format(name))


async def _send(
    store: Store, routing: Routing, plan: Plan, inputs: Sequence[Input], seed: int
) -> None:
    """Send the messages, spread over the time of the faults. Some come late, some come twice."""
    pause = plan.duration.total_seconds() / max(1, len(inputs))
    for one in inputs:
        now = await store.now()
        new = NewEvent(
            event=message(one.text, Address(channel="api", sender=one.sender)),
            message_id=one.message_id,
            event_ts=now - one.lateness(seed),
            max_attempts=ATTEMPTS,
        )
        for _ in range(2 if one.number % DUPLICATE_EVERY == 0 else 1):
            await receive(store, routing, new, one.text, agent=plan.agent)
        await asyncio.sleep(0 if seed == UNDISTURBED else pause)


async def _await_end(store: Store) -> None:
    """Wait until nothing is worked or ready any more. Turns that sleep for long stay."""
    until = time.monotonic() + END_WITHIN.total_seconds()
    quiet_since, before = time.monotonic(), None
    while time.monotonic() < until:
        counts = [count for count in await store.counts() if count.queue == INBOX]
        is_busy = any(count.ready or count.leased for count in counts)
        if not counts:
            return
        if is_busy or counts != before:
            quiet_since, before = time.monotonic(), counts
        elif time.monotonic() - quiet_since > QUIET_FOR.total_seconds():
            return
        await asyncio.sleep(0.05)

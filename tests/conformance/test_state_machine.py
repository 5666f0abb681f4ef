"""Hypothesis drives each store beside the model; no sequence of steps may tell them apart."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast.queue.store import Store
from holdfast.store import open_store
from holdfast.testing.clock import Clock
from tests.conformance.machine import StoreMachine
from tests.conformance.peek import peek


@contextmanager
def opened(url: str, clock: Clock, runner: asyncio.Runner) -> Iterator[Store]:
    """A store that stays open between runs of the loop; one task opens and closes it."""
    store: asyncio.Future[Store] = runner.get_loop().create_future()
    stop = asyncio.Event()

    async def keep_open() -> None:
        async with open_store(url, clock=clock) as opened:
            store.set_result(opened)
            await stop.wait()

    keeper = runner.get_loop().create_task(keep_open())
    try:
        yield runner.get_loop().run_until_complete(store)
    finally:
        stop.set()
        runner.get_loop().run_until_complete(keeper)


def drive(url: str, clock: Clock, examples: int, steps: int) -> None:
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
        database=None,
    )
    with asyncio.Runner() as runner, opened(url, clock, runner) as store, peek(url) as tables:

        class Beside(StoreMachine):
            def __init__(self) -> None:
                super().__init__(store, clock, tables, runner)

        run_state_machine_as_test(Beside, settings=chosen)


EXAMPLES = {"sqlite": 40, "postgres": 40, "postgres15": 20, "timescale": 20}
"""Fewer where the code is the same and only the server is another."""


def test_a_store_and_the_model_never_differ(database_url: str, clock: Clock, engine: str) -> None:
    drive(database_url, clock, EXAMPLES[engine], steps=40)


@pytest.mark.chaos
def test_a_store_and_the_model_do_not_differ_in_a_thousand_examples(
    database_url: str, clock: Clock
) -> None:
    drive(database_url, clock, examples=int(os.environ.get("HOLDFAST_EXAMPLES", "1000")), steps=50)

"""The watchdog reports blocks of the event loop in the log and in a metric."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest
import uvloop

from holdfast import AgentHarness, Turn
from holdfast.settings import Settings
from holdfast.telemetry import (
    LOOP_BLOCKED,
    LOOP_BLOCKED_SECONDS,
    LOOP_IS_BLOCKED,
    LOOP_RUNS_AGAIN,
    prometheus,
)
from holdfast.telemetry.logs import Entry
from holdfast.telemetry.watchdog import watch_loop
from tests.steps import finished, running

QUOTED = "holdfast.telemetry.logs._quote"


class Slow:
    """An object whose conversion to text takes a while."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __str__(self) -> str:
        time.sleep(self._seconds)
        return "slow"


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[Entry]:
    entries = [record.msg for record in caplog.records if isinstance(record.msg, Entry)]
    return [entry for entry in entries if entry.event == event]


async def wait_counted(where: str, more_than: float) -> None:
    # Metrics offer nothing to await.
    while LOOP_BLOCKED.values.get((where,), 0) <= more_than:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_issue_13_2_log_and_metric_name_the_function_that_blocked_the_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before, seconds = (
        LOOP_BLOCKED.values.get((QUOTED,), 0),
        LOOP_BLOCKED_SECONDS.values.get((QUOTED,), 0),
    )
    with watch_loop(timedelta(milliseconds=200)):
        await asyncio.sleep(0)
        str(Entry("x", slow=Slow(1.3)))
        await wait_counted(QUOTED, before)
    [line] = lines(caplog, LOOP_IS_BLOCKED)
    assert line.fields["where"] == QUOTED
    assert "__str__" in str(line.fields["at"])
    [end] = lines(caplog, LOOP_RUNS_AGAIN)
    assert end.fields["where"] == QUOTED
    assert LOOP_BLOCKED.values[QUOTED,] == before + 1
    assert LOOP_BLOCKED_SECONDS.values[QUOTED,] >= seconds + 1
    page, _ = prometheus.exposition([])
    assert f'holdfast_loop_blocked_total{{where="{QUOTED}"}}' in page.decode()


def test_blocks_of_uvloop_are_found_and_short_callbacks_are_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def block() -> None:
        before = LOOP_BLOCKED.values.get((QUOTED,), 0)
        with watch_loop(timedelta(milliseconds=200)):
            until = time.monotonic() + 0.5
            while time.monotonic() < until:  # noqa: ASYNC110 - many short callbacks
                await asyncio.sleep(0)
            assert not lines(caplog, LOOP_IS_BLOCKED)
            str(Entry("x", slow=Slow(0.6)))
            await wait_counted(QUOTED, before)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(block())
    [line] = lines(caplog, LOOP_IS_BLOCKED)
    assert line.fields["where"] == QUOTED


async def test_a_loop_that_waits_or_runs_short_callbacks_is_not_blocked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with watch_loop(timedelta(milliseconds=200)):
        await asyncio.sleep(0.5)
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            time.sleep(0.01)  # noqa: ASYNC251 - a short callback
            await asyncio.sleep(0)
    assert lines(caplog, LOOP_IS_BLOCKED) == []


async def test_an_agent_that_blocks_the_loop_is_reported_while_the_app_runs(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(turn: Turn) -> str:
        time.sleep(0.6)  # noqa: ASYNC251 - this is the fault
        return "late"

    app = AgentHarness(answer)
    with caplog.at_level(logging.WARNING):
        async with running(app, settings):
            assert any(thread.name == "holdfast-watchdog" for thread in threading.enumerate())
            await app.put("hi")
            await finished(app.store)
    assert any(
        "test_watchdog.py" in str(line.fields["at"]) for line in lines(caplog, LOOP_IS_BLOCKED)
    )
    assert all(
        str(line.fields["where"]).startswith("holdfast.") for line in lines(caplog, LOOP_IS_BLOCKED)
    )
    assert not any(thread.name == "holdfast-watchdog" for thread in threading.enumerate())


async def test_a_limit_of_0_turns_the_watchdog_off(settings: Settings) -> None:
    async with running(
        AgentHarness(lambda turn: "hi"), settings.model_copy(update={"blocked_after": timedelta(0)})
    ):
        assert not any(thread.name == "holdfast-watchdog" for thread in threading.enumerate())


STRESS = """
import gc, threading, time
from holdfast.telemetry import watchdog

stop = threading.Event()

class Closing:
    def __del__(self):
        time.sleep(0.0001)  # gives up the GIL, as closing a connection does

def look():
    while not stop.is_set():
        watchdog._frame_of(threading.main_thread().ident)

def deep(levels):
    return deep(levels - 1) if levels else time.sleep(0.0005)

def start_threads():
    while not stop.is_set():
        cycle = Closing()
        cycle.itself = cycle
        del cycle
        thread = threading.Thread(target=deep, args=(30,))
        thread.start()
        thread.join()

gc.set_threshold(5)
threads = [threading.Thread(target=target, daemon=True) for target in (look, *[start_threads] * 4)]
for thread in threads:
    thread.start()
time.sleep(2)
stop.set()
for thread in threads:
    thread.join()
print("done")
"""


def test_sampling_the_loop_never_deadlocks_the_process() -> None:
    """On 3.11.7, a collection in `sys._current_frames` and a starting thread block each other."""
    done = subprocess.run(
        [sys.executable, "-c", STRESS], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "done\n", done.stderr

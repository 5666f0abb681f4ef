"""Command agents cancelled at their start, and killed supervisors: nothing is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast import AgentHarness
from holdfast.agents.command import END_WITHIN, CommandAgent
from holdfast.agents.supervisor import supervised_command
from holdfast.agents.turn import Turn
from holdfast.queue.event import INBOX
from holdfast.testing.trial import trial
from tests.agents.commands import TIMEOUT_SECONDS, Scripts

pytestmark = pytest.mark.skipif(
    not Path("/proc").exists(), reason="looks at processes as Linux shows them"
)

FAMILY = (
    "sleep 1000 & (setsid sleep 1001 &) ; "
    "(setsid sh -c 'trap \"\" TERM; sleep 1002 & sleep 1003' &) ; sleep 1004"
)
"""A command with a child, a double fork in a session of its own, and one that ignores SIGTERM."""
MEMBERS = ("sleep 1000 ", "sleep 1001 ", "sleep 1002 ", "sleep 1003 ", "sleep 1004 ")
WINDOW = 0.05
AT_ONCE = 25


@pytest_asyncio.fixture
async def turn() -> AsyncIterator[Turn]:
    app = AgentHarness()
    app.add("coder", lambda turn: turn.text)
    async with trial(app) as at_work:
        await at_work.say("hello")
        [leased] = await at_work.store.claim(
            INBOX, ["coder", ""], limit=1, lease=timedelta(minutes=1), max_attempts=3
        )
        yield Turn(leased, "coder")


def agent_of(scripts: Scripts, script: str = FAMILY) -> CommandAgent:
    return CommandAgent(
        [scripts.write(script)], scripts.folder.parent / "workspace", variables=["MARK"]
    )


def grown(left: dict[int, str]) -> bool:
    return set(MEMBERS) <= set(left.values())


async def test_a_cancellation_while_pipes_are_connected_ends_the_turn(
    scripts: Scripts, turn: Turn
) -> None:
    agent = agent_of(scripts)
    async with asyncio.TaskGroup() as group:
        working = group.create_task(agent.answer(turn))
        while not scripts.left():  # noqa: ASYNC110 - one round of the loop at a time
            await asyncio.sleep(0)
        # The process has just been started, and the loop has had no time yet to connect its pipes.
        assert scripts.until(grown)
        working.cancel()
        async with asyncio.timeout(END_WITHIN + TIMEOUT_SECONDS):
            await asyncio.wait([working])
        assert working.cancelled()
        assert scripts.left() == {}


async def test_a_second_cancellation_does_not_stop_the_cleaning_up(
    scripts: Scripts, turn: Turn
) -> None:
    agent = agent_of(scripts)
    async with asyncio.TaskGroup() as group:
        working = group.create_task(agent.answer(turn))
        assert await asyncio.to_thread(scripts.until, grown)
        for _ in range(5):
            working.cancel()
            await asyncio.sleep(0.05)
        await asyncio.wait([working])
        assert scripts.left() == {}
        assert working.cancelled()


@pytest.mark.parametrize("which", ["supervisor", "guardian"])
async def test_a_supervisor_that_is_killed_leaves_nothing(
    scripts: Scripts, turn: Turn, which: str
) -> None:
    agent = agent_of(scripts)
    async with asyncio.TaskGroup() as group:
        working = group.create_task(agent.answer(turn))
        assert await asyncio.to_thread(scripts.until, grown)
        pids = sorted(pid for pid, line in scripts.left().items() if "supervisor.py" in line)
        os.kill(pids[0] if which == "guardian" else pids[-1], signal.SIGKILL)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await asyncio.wait([working])
        assert await asyncio.to_thread(scripts.until, lambda left: not left), scripts.left()


def test_a_killed_worker_leaves_nothing_even_with_its_supervisor_killed(scripts: Scripts) -> None:
    with subprocess.Popen(
        supervised_command(0, [scripts.write(FAMILY)]), stdin=subprocess.PIPE
    ) as process:
        assert scripts.until(grown)
        process.kill()
        assert scripts.until(lambda left: not left), scripts.left()


async def test_cancellations_spread_over_a_start_leave_no_process_and_no_task(
    scripts: Scripts, turn: Turn
) -> None:
    await cancelled_starts(scripts, turn, 60)


@pytest.mark.chaos
async def test_a_thousand_cancellations_spread_over_a_start_under_load(
    scripts: Scripts, turn: Turn
) -> None:
    with load():
        await cancelled_starts(scripts, turn, 1000)


async def cancelled_starts(scripts: Scripts, turn: Turn, times: int) -> None:
    """Cancel many starts at different moments of their first 50 ms; all must end."""
    agent = agent_of(scripts)
    before = asyncio.all_tasks()
    delays = [WINDOW * number / times for number in range(times)]
    batches = -(-times // AT_ONCE)
    for first in range(batches):
        # Each batch takes delays from the whole window.
        await asyncio.gather(*(_cancelled(agent, turn, delay) for delay in delays[first::batches]))
    assert asyncio.all_tasks() == before
    assert await asyncio.to_thread(scripts.until, lambda left: not left), scripts.left()


async def _cancelled(agent: CommandAgent, turn: Turn, delay: float) -> None:
    working = asyncio.ensure_future(agent.answer(turn))
    await asyncio.sleep(delay)
    working.cancel()
    done, _ = await asyncio.wait([working], timeout=END_WITHIN + TIMEOUT_SECONDS)
    assert done, f"cancelled after {delay * 1000:.1f} ms, it never ended"
    assert working.cancelled()


@contextmanager
def load() -> Iterator[None]:
    """Keep every core busy twice over."""
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], env={})
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()

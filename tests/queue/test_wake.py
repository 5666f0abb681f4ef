"""A wake-up is never lost, and it returns its reason."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from holdfast.queue.wake import Wake
from tests.steps import NEVER

SOON = timedelta(milliseconds=20)


async def test_a_signal_wakes_a_waiting_consumer() -> None:
    wake = Wake()
    asyncio.get_running_loop().call_soon(wake.set)
    assert await wake.wait(poll=NEVER) == "triggered"


async def test_a_signal_without_a_waiter_is_kept_and_used_once() -> None:
    wake = Wake()
    wake.set()
    wake.set()
    assert await wake.wait(poll=NEVER) == "triggered"
    assert await wake.wait(poll=SOON) == "timeout"


async def test_a_signal_wins_over_an_overdue_timer() -> None:
    wake = Wake()
    wake.set()
    assert await wake.wait(poll=NEVER, due_in=-NEVER) == "triggered"
    assert await wake.wait(poll=NEVER, due_in=-NEVER) == "due"


async def test_the_earliest_timer_wakes_first() -> None:
    wake = Wake()
    assert await wake.wait(poll=NEVER, due_in=SOON) == "due"
    assert await wake.wait(poll=SOON, due_in=NEVER) == "timeout"


async def test_the_poll_interval_varies_only_by_the_jitter() -> None:
    wake = Wake()
    spent = []
    for _ in range(10):
        started = time.monotonic()
        assert await wake.wait(poll=SOON, jitter=SOON / 2) == "timeout"
        spent.append(time.monotonic() - started)
    assert min(spent) >= SOON.total_seconds() / 2
    assert max(spent) - min(spent) > 0.0005

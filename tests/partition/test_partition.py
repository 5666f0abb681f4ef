"""Hosts that lose their database, in one direction or both, and find it again."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.queue.store import Store
from tests.crash.pool import check_history, wait_until
from tests.partition.conftest import RELAY_PORT, HostPool
from tests.partition.hosts import Network
from tests.partition.relay import Relay

BACKLOG = 40
NOTICED_WITHIN = 45.0
"""Seconds until a host that was cut off is given up, on a busy machine; far below its lease.

After a cut of one direction, 21 to 22 s were measured."""
LONG_RUN = 60.0


async def test_the_turn_of_a_host_that_is_cut_off_goes_to_another(
    pool: HostPool, store: Store, hosts: Network, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    cut_off = pool.start_on(1, lease=120, workers=1)
    pool.wait_ready(cut_off)
    [held] = await pool.put(store, 1, gates=[str(gate)])
    await asyncio.to_thread(wait_until, lambda: pool.leased_by(cut_off))
    pool.wait_ready(pool.start_on(2, lease=120))
    hosts.cut(1)
    await pool.put(store, BACKLOG)
    # Long before the lease ends, the server misses the session of the host.
    await pool.wait_drained(store, NOTICED_WITHIN)
    # Its handler ends while it hears nothing, so its settle is the first call that the server sees.
    gate.touch()
    await asyncio.to_thread(
        wait_until, lambda: [run for run in pool.runs() if run.process == cut_off and run.ended_at]
    )
    hosts.heal(1)
    await asyncio.to_thread(
        wait_until, lambda: [run for run in pool.runs() if run.id == held and run.ended == "lost"]
    )
    pool.stop()
    report = await check_history(pool, leases_may_end=True)
    assert len(report.reruns) == 1


@pytest.mark.chaos
async def test_answers_that_never_arrive_strand_no_message(
    pool: HostPool, store: Store, hosts: Network
) -> None:
    cut_off = pool.start_on(1, lease=120, slowness=0.3)
    pool.wait_ready(cut_off, pool.start_on(2, lease=120, slowness=0.3))
    await pool.put(store, BACKLOG)
    await asyncio.to_thread(wait_until, lambda: pool.leased_by(cut_off))
    hosts.cut_answers(1)
    await pool.put(store, BACKLOG)
    await pool.wait_drained(store, NOTICED_WITHIN)
    hosts.heal(1)
    await pool.put(store, BACKLOG)
    await pool.wait_drained(store, NOTICED_WITHIN)
    pool.stop()
    await check_history(pool, leases_may_end=True)


async def test_delays_and_dropped_connections_lose_nothing(
    pool: HostPool, store: Store, relay: Relay
) -> None:
    relay.delay = 0.01
    pool.wait_ready(pool.start_on(1, port=RELAY_PORT, lease=120))
    relay.drop = 0.05
    await pool.put(store, BACKLOG)
    await pool.wait_drained(store, NOTICED_WITHIN)
    dropped, relay.drop = relay.dropped, 0.0
    pool.stop()
    await check_history(pool, leases_may_end=True)
    assert dropped


@pytest.mark.chaos
async def test_random_partitions_lose_nothing(
    pool: HostPool,
    store: Store,
    hosts: Network,
    relay: Relay,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for host in hosts.hosts:
        pool.wait_ready(pool.start_on(host, lease=15))
    pool.wait_ready(pool.start_on(1, port=RELAY_PORT, lease=15))
    relay.delay, relay.drop = 0.01, 0.02
    cuts: list[Callable[[int], None]] = [hosts.cut, hosts.cut_answers, hosts.cut_requests]
    until, faults = time.monotonic() + LONG_RUN, 0
    while time.monotonic() < until:
        host = random.choice(hosts.hosts)
        random.choice(cuts)(host)
        faults += 1
        for _ in range(random.randint(1, 10)):
            await pool.put(store, 5)
            await asyncio.sleep(random.random())
        hosts.heal(host)
    relay.drop = 0.0
    await pool.wait_drained(store, 120)
    pool.stop()
    report = await check_history(pool, leases_may_end=True)
    with capsys.disabled():
        print(
            f"\n{faults} cuts, {relay.dropped} dropped connections, {len(pool.stored)} messages,"
            f" {len(report.reruns)} runs again, 0 violations"
        )

"""Seeds of the simulation: fifty in `make test`, ten thousand in `make chaos`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.queue.consumer import Consumer
from holdfast.queue.store import DEFAULT_MAX_ATTEMPTS, SweepPolicy
from tests.conformance.model import Model
from tests.conformance.tables import Held, Tables
from tests.simulation.run import Result, simulate
from tests.simulation.store import SimulatedStore

SEEDS = int(os.environ.get("HOLDFAST_SEEDS", "10000"))
FLEET = 1000
FLEETS_EVERY = 1000
"""Of so many seeds in `make chaos`, one has a fleet of a thousand processes."""


def assert_sound(result: Result) -> None:
    assert not result.violations, (
        f"seed {result.seed} fails\n{result.report}\nrepeat it: {result.command}"
    )


@pytest.mark.parametrize("first", range(0, 50, 10))
def test_the_guarantees_hold_in_a_simulated_fleet(first: int) -> None:
    for seed in range(first, first + 10):
        assert_sound(simulate(seed, processes=2 + seed % 9))


@pytest.mark.chaos
def test_the_guarantees_hold_with_a_thousand_processes() -> None:
    result = simulate(1, processes=FLEET)
    assert_sound(result)
    assert result.history.runs


def test_a_seed_gives_the_same_history_again() -> None:
    assert simulate(3).summary == simulate(3).summary


@pytest.mark.chaos
@pytest.mark.timeout(4 * 3600)
def test_the_guarantees_hold_for_many_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    events = runs = faults = 0
    for seed in range(SEEDS):
        result = simulate(seed, FLEET if seed % FLEETS_EVERY == 1 else None)
        assert_sound(result)
        events += len(result.history.rows)
        runs += len(result.history.runs)
        faults += sum(result.faults.values())
    with capsys.disabled():
        print(f"\n{SEEDS} seeds: {events} events, {runs} runs, {faults} faults, 0 violations")


def settle_without_fence(model: Tables, turn: Held) -> bool:
    """A fault: the id alone is enough to settle."""
    return all(id in model.live for id in turn.ids)


def promote_nothing(model: Tables) -> None:
    """A fault: the next event of a lane gets no head once its first one has ended."""
    lanes = {(row.queue, row.lane) for row in (*model.live.values(), *model.history.values())}
    started = {(row.queue, row.lane) for row in model.history.values()}
    for lane in lanes - started:
        rows = [row for row in model.live.values() if (row.queue, row.lane) == lane]
        if lane[1] is not None and not any(row.head for row in rows):
            min(rows, key=lambda row: row.id).head = True


def sweep_everything(model: Model, policy: SweepPolicy) -> int:
    """A fault: an event in its last attempt is swept, although its lease is live."""
    over = [
        row
        for row in model.live.values()
        if row.queue == policy.queue and not model.has_attempts(row, policy.max_attempts)
    ]
    return len([model.finish(row, "dead") for row in over])


async def never_renew(consumer: Consumer, *_: Any) -> None:
    """A fault: leases of running turns are not renewed."""


def reap_for_nothing(model: Model, holder: str, _: int = DEFAULT_MAX_ATTEMPTS) -> None:
    """A fault: the turns of a dead process keep their fence, and its attempts come back."""
    for row in model.live.values():
        if row.holder == holder:
            row.vt, row.attempts = model.clock(), row.attempts - 1


async def lack_journals(*_: Any) -> None:
    """A fault of the simulation: it lacks a call that the code under test needs."""
    raise AttributeError("journal")


@pytest.mark.parametrize(
    ("owner", "name", "fault"),
    [
        (Tables, "holds", settle_without_fence),
        (Tables, "promote", promote_nothing),
        (Model, "_sweep_dead", sweep_everything),
        (Model, "reap", reap_for_nothing),
        (Consumer, "_renew_group", never_renew),
        (SimulatedStore, "journal", lack_journals),
    ],
)
def test_the_simulation_notices_a_fault(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, fault: Callable[..., Any]
) -> None:
    monkeypatch.setattr(owner, name, fault)
    results = (simulate(seed, processes=4) for seed in range(30))
    assert any(result.violations for result in results)

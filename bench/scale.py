"""Sizes of a run: a small one shows that the benchmark works, a full one measures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Size of a run. Only a binding one fails if a required ratio is missed."""

    rounds: int
    puts: int
    turns: int
    bulk: int
    batches: int
    backlogs: tuple[int, ...]
    drained: int
    busy: int
    """Number of events that keep a worker busy while others are put."""
    watched: int
    """Seconds of puts at a steady rate."""
    idle: int
    """Seconds of idling."""
    kills: int
    observations: int
    """Number of observations in memory."""
    history: int
    """Number of finished events behind the operators' console."""
    fleet: int
    """Number of workers of a fleet."""
    binding: bool


SCALES = {
    "small": Scale(
        rounds=3,
        puts=200,
        turns=50,
        bulk=2_000,
        batches=4,
        backlogs=(1_000, 10_000),
        drained=20_000,
        busy=20_000,
        watched=10,
        idle=10,
        kills=1,
        observations=2_000,
        history=20_000,
        fleet=200,
        binding=False,
    ),
    "full": Scale(
        rounds=5,
        puts=2_000,
        turns=200,
        bulk=10_000,
        batches=20,
        backlogs=(1_000, 10_000, 100_000, 1_000_000),
        drained=1_000_000,
        busy=200_000,
        # A thousand samples, so that p99.9 means something.
        watched=50,
        idle=20,
        kills=3,
        observations=50_000,
        history=1_000_000,
        fleet=1_000,
        binding=True,
    ),
}

"""How much is measured: a small run shows that it works, a full one what it reaches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The size of a run. Only a binding one fails when a required ratio is missed."""

    rounds: int
    puts: int
    turns: int
    bulk: int
    batches: int
    backlogs: tuple[int, ...]
    drained: int
    busy: int
    """Events that keep a worker busy while it is put more."""
    watched: int
    """Seconds of putting at a steady rate."""
    idle: int
    """Seconds of doing nothing."""
    kills: int
    observations: int
    """What memory holds."""
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
        # A thousand samples, so that one in a thousand means something.
        watched=50,
        idle=20,
        kills=3,
        observations=50_000,
        binding=True,
    ),
}

"""A measured value of one queue in one case, and the sizes of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from bench.peers.catalogue import Peer
from bench.row import EVENTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Samples of a case, one per round; a case without a value says why."""

    case: str
    peer: str
    store: str
    samples: Sequence[float] = ()
    unit: str = EVENTS
    series: dict[int, float] = field(default_factory=dict)
    reason: str = ""

    @property
    def value(self) -> float | None:
        """The median, None if there is none."""
        return median(self.samples) if self.samples else None

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"value": self.value}


def measured(case: str, peer: Peer, samples: Sequence[float], unit: str = EVENTS) -> Measured:
    """Return the samples of a case."""
    return Measured(case=case, peer=peer.name, store=peer.store, samples=samples, unit=unit)


def missing(case: str, peer: Peer, reason: str) -> Measured:
    """Return a case without a value, and why."""
    return Measured(case=case, peer=peer.name, store=peer.store, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Size of a run."""

    rounds: int
    puts: int
    bulk: int
    drained: int
    slow: int
    """Events to drain where 20,000 would take minutes."""
    backlogs: tuple[int, ...]
    pings: int
    idle: int
    give_up_after: int
    """Seconds to wait for the recovery of a killed worker's event."""


SIZES = {
    "small": Size(
        rounds=1,
        puts=40,
        bulk=200,
        drained=2_000,
        slow=1_000,
        backlogs=(3_000,),
        pings=10,
        idle=2,
        give_up_after=5,
    ),
    "medium": Size(
        rounds=2,
        puts=500,
        bulk=5_000,
        drained=10_000,
        slow=1_000,
        backlogs=(10_000, 100_000),
        pings=100,
        idle=10,
        give_up_after=60,
    ),
    "full": Size(
        rounds=3,
        puts=1_000,
        bulk=10_000,
        drained=20_000,
        slow=2_000,
        backlogs=(10_000, 100_000, 1_000_000),
        pings=200,
        idle=20,
        give_up_after=150,
    ),
}

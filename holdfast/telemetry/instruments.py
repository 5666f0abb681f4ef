"""Counters, histograms and gauges that cost a fraction of a microsecond.

Only the event loop's thread writes them, so that they need no locks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from holdfast.telemetry.printable import printable

Labels = tuple[str, ...]

OTHER = "other"
MAX_LABEL_SETS = 500
"""Maximum number of label sets per instrument: error classes come from users' code."""
MAX_LABEL_LENGTH = 100

SECONDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
    300,
    600,
    1800,
    3600,
    86400,
)
"""Bucket bounds: from a claim on the same machine to a message that waited for a day."""


@dataclass(frozen=True, slots=True)
class Counter:
    """A count since the start of the process; it never decreases."""

    name: str
    help: str
    labels: tuple[str, ...]
    values: dict[Labels, float] = field(default_factory=dict)

    def add(self, *labels: str, by: float = 1) -> None:
        try:
            self.values[labels] += by
        except KeyError:
            labels = limit_labels(labels, len(self.values))
            self.values[labels] = self.values.get(labels, 0) + by


@dataclass(slots=True)
class Buckets:
    """The number of values between each bound and the one before."""

    bounds: Sequence[float]
    counts: list[int]
    sum: float = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Yield each upper bound with the number of values up to it, as Prometheus counts."""
        total = 0
        for bound, count in zip((*map(_text, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            yield bound, total


@dataclass(frozen=True, slots=True)
class Histogram:
    """Durations in this process, in buckets."""

    name: str
    help: str
    labels: tuple[str, ...]
    bounds: Sequence[float] = SECONDS
    values: dict[Labels, Buckets] = field(default_factory=dict)

    def of(self, *labels: str) -> Buckets:
        """Return the buckets of a label set; frequent callers keep them."""
        try:
            return self.values[labels]
        except KeyError:
            labels = limit_labels(labels, len(self.values))
            return self.values.setdefault(
                labels, Buckets(self.bounds, [0] * (len(self.bounds) + 1))
            )


@dataclass(frozen=True, slots=True)
class Gauge:
    """A value that is read when metrics are collected."""

    name: str
    help: str
    labels: tuple[str, ...]
    old_name: str | None = None
    """Name before this release, under which the value is exported for one more release."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,) if self.old_name is None else (self.name, self.old_name)


Reading = tuple[Gauge, Labels, float]
Instrument = Counter | Histogram | Gauge


def limit_labels(labels: Labels, known: int) -> Labels:
    """Return the labels of a new series; all are `other` if `known` series are too many.

    Labels come from users' code and clients, so unprintable characters are replaced."""
    if known >= MAX_LABEL_SETS:
        return (OTHER,) * len(labels)
    return tuple([printable(str(label))[:MAX_LABEL_LENGTH] for label in labels])


def _text(bound: float) -> str:
    return str(float(bound))

"""Export the metrics by OpenTelemetry, under their Prometheus names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from holdfast.telemetry import INSTRUMENTS
from holdfast.telemetry.instruments import Counter, Gauge, Histogram, Instrument, Labels, Reading

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation

Series = Callable[[], Iterable[tuple[Labels, float]]]

latest: list[Reading] = []
"""Last readings of the gauges; the export thread cannot query the store."""


def start() -> None:
    """Register every instrument with the configured provider."""
    from opentelemetry.metrics import get_meter

    meter = get_meter("holdfast")
    for instrument in INSTRUMENTS:
        gauge = isinstance(instrument, Gauge)
        create = meter.create_observable_gauge if gauge else meter.create_observable_counter
        for name, labels, series in _parts(instrument):
            create(name, [_callback(labels, series)], description=instrument.help)


def _parts(instrument: Instrument) -> Iterator[tuple[str, Labels, Series]]:
    name, labels = instrument.name, instrument.labels
    match instrument:
        case Counter(values=counted):
            yield name, labels, lambda: list(counted.items())
        case Gauge():
            for name in instrument.names:
                yield (
                    name,
                    labels,
                    lambda: [(key, value) for read, key, value in latest if read is instrument],
                )
        case Histogram(values=observed):
            # OpenTelemetry has no observable histogram: export the parts as counters.
            yield (
                f"{name}_bucket",
                (*labels, "le"),
                lambda: [
                    ((*key, bound), count)
                    for key, buckets in list(observed.items())
                    for bound, count in buckets.cumulative()
                ],
            )
            yield (
                f"{name}_sum",
                labels,
                lambda: [(key, buckets.sum) for key, buckets in list(observed.items())],
            )
            yield (
                f"{name}_count",
                labels,
                lambda: [(key, sum(buckets.counts)) for key, buckets in list(observed.items())],
            )


def _callback(labels: Labels, series: Series) -> Callable[[CallbackOptions], list[Observation]]:
    from opentelemetry.metrics import Observation

    return lambda _: [
        Observation(value, dict(zip(labels, key, strict=True))) for key, value in series()
    ]

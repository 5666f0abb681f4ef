"""The page of metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast.telemetry import INSTRUMENTS
from holdfast.telemetry.instruments import Counter, Gauge, Histogram, Instrument, Reading

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


def exposition(readings: Sequence[Reading], accept: str = "") -> tuple[bytes, str]:
    """Return all metrics with these readings, and the content type for the header `accept`."""
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    families = [family for one in INSTRUMENTS for family in _families(one, readings)]
    registry.register(_Collector(families))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _Collector:
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _families(instrument: Instrument, readings: Sequence[Reading]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    name, text, labels = instrument.name, instrument.help, instrument.labels
    match instrument:
        case Counter():
            counter = CounterMetricFamily(name, text, labels=labels)
            for key, value in instrument.values.items() or ([((), 0.0)] if not labels else ()):
                counter.add_metric(key, value)
            yield counter
        case Histogram():
            histogram = HistogramMetricFamily(name, text, labels=labels)
            for key, buckets in instrument.values.items():
                histogram.add_metric(key, list(buckets.cumulative()), buckets.sum)
            yield histogram
        case Gauge():
            for name in instrument.names:
                gauge = GaugeMetricFamily(name, text, labels=labels)
                for read, key, value in readings:
                    if read is instrument:
                        gauge.add_metric(key, value)
                yield gauge

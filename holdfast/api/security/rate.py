"""Rate limits per client: token buckets."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

MOST_CLIENTS = 10_000
"""Maximum number of buckets. The least recently used one is dropped, which refills it."""


class Rate:
    """A number of requests per second for each client; bursts of up to `seconds` are allowed."""

    def __init__(
        self, per_second: float, seconds: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_second = per_second
        self._most = per_second * seconds
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> bool:
        """Whether the client may ask now; if so, it counts."""
        left = self._remaining(client)
        if left < 1:
            return False
        self._put(client, left - 1)
        return True

    def may_ask(self, client: str) -> bool:
        """Whether the client could ask now, without counting it."""
        return self._remaining(client) >= 1

    def _remaining(self, client: str) -> float:
        left, at = self._buckets.get(client, (self._most, 0.0))
        return min(self._most, left + (self._clock() - at) * self._per_second)

    def _put(self, client: str, left: float) -> None:
        self._buckets[client] = (left, self._clock())
        self._buckets.move_to_end(client)
        if len(self._buckets) > MOST_CLIENTS:
            self._buckets.popitem(last=False)

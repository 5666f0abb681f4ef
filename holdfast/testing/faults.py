"""Faults and rate limits of loopback servers, set by tests, and counts of calls."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Literal

How = Literal["ratelimited", "error", "status", "drop_before", "drop_after", "slow"]


@dataclass
class Fault:
    """A fault of the next `times` calls of a method."""

    how: How
    times: int = 1
    code: str = ""
    status: int = 500
    seconds: float = 0.0


@dataclass
class Limit:
    """At most `most` calls in `seconds`, counted by the argument `by`, or all together if it is
    None."""

    most: int
    seconds: float
    by: str | None = None


@dataclass
class Faults:
    """Planned faults, rate limits, and counts; `impatient` counts calls during a Retry-After."""

    planned: dict[str, deque[Fault]] = field(default_factory=dict)
    limits: dict[str, Limit] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    impatient: Counter[str] = field(default_factory=Counter)
    under_way: float = 0.0
    """Seconds after a refusal during which requests that began before it may still arrive."""
    lose_acks: int = 0
    _seen: dict[tuple[str, str], deque[float]] = field(default_factory=dict)
    _wait_until: dict[tuple[str, str], float] = field(default_factory=dict)

    def plan(self, method: str, how: How, *, times: int = 1, **more: object) -> None:
        fault = Fault(how, times, **more)  # type: ignore[arg-type]
        self.planned.setdefault(method, deque()).append(fault)

    def next(self, method: str) -> Fault | None:
        waiting = self.planned.get(method)
        if not waiting:
            return None
        fault = waiting[0]
        fault.times -= 1
        if fault.times <= 0:
            waiting.popleft()
        return fault

    def retry_after(self, method: str, arguments: dict[str, object]) -> int | None:
        """Return the seconds to wait if the call exceeds its limit, else None."""
        limit = self.limits.get(method)
        if limit is None:
            return None
        now = time.monotonic()
        key = (method, str(arguments.get(limit.by, "")) if limit.by else "")
        seen = self._seen.setdefault(key, deque())
        while seen and seen[0] <= now - limit.seconds:
            seen.popleft()
        wait_until = self._wait_until.get(key, 0.0)
        if now < wait_until:
            self.impatient[method] += now > wait_until - limit.seconds + self.under_way
        elif len(seen) < limit.most:
            seen.append(now)
            return None
        self.refused[method] += 1
        wait = max(1, round(limit.seconds))
        self._wait_until[key] = max(wait_until, now + wait)
        return wait

    def loses_ack(self) -> bool:
        lost = self.lose_acks > 0
        self.lose_acks -= lost
        return lost

"""What goes wrong at the fake Slack when a test asks for it, and what it counts meanwhile."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Literal

How = Literal["ratelimited", "error", "status", "drop_before", "drop_after", "slow"]


@dataclass
class Fault:
    """For the next so many calls of a method."""

    how: How
    times: int = 1
    code: str = ""
    status: int = 500
    seconds: float = 0.0


@dataclass
class Limit:
    """At most so many calls in a window of so many seconds; None counts all calls of the method as one."""

    most: int
    seconds: float
    by: str | None = None


@dataclass
class Faults:
    """Methods that fail, limits that are enforced, and calls that came although they had been told to wait."""

    planned: dict[str, deque[Fault]] = field(default_factory=dict)
    limits: dict[str, Limit] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    impatient: Counter[str] = field(default_factory=Counter)
    lose_acks: int = 0
    _seen: dict[tuple[str, str], deque[float]] = field(default_factory=dict)
    _closed_until: dict[tuple[str, str], float] = field(default_factory=dict)

    def plan(self, method: str, how: How, *, times: int = 1, **more: object) -> None:
        self.planned.setdefault(method, deque()).append(Fault(how, times, **more))  # type: ignore[arg-type]

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
        """Whole seconds to wait, where the call is one too many."""
        limit = self.limits.get(method)
        if limit is None:
            return None
        now = time.monotonic()
        key = (method, str(arguments.get(limit.by, "")) if limit.by else "")
        seen = self._seen.setdefault(key, deque())
        while seen and seen[0] <= now - limit.seconds:
            seen.popleft()
        closed_until = self._closed_until.get(key, 0.0)
        if now < closed_until:
            self.impatient[method] += 1
        elif len(seen) < limit.most:
            seen.append(now)
            return None
        self.refused[method] += 1
        wait = max(1, round(limit.seconds))
        self._closed_until[key] = max(closed_until, now + wait)
        return wait

    def loses_ack(self) -> bool:
        lost = self.lose_acks > 0
        self.lose_acks -= lost
        return lost

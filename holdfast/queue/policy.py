"""How a queue is consumed: its leases, slots, back-off and patience."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import timedelta

from holdfast.errors import Unreadable
from holdfast.queue.outcome import Dead, Outcome, Retry, trace_of
from holdfast.queue.store import DEFAULT_MAX_ATTEMPTS
from holdfast.queue.turn import LeasedTurn


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Doubling from `first` to `most`, spread at random so that what failed together does not come back together."""

    first: timedelta = timedelta(seconds=2)
    most: timedelta = timedelta(minutes=5)

    def delay(self, attempt: int) -> timedelta:
        longest: timedelta = min(self.first * 2 ** min(attempt, 30), self.most)
        return self.first + (longest - self.first) * random.random()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TargetGroup:
    """Targets of a queue that are claimed alike."""

    targets: tuple[str, ...]
    lease: timedelta
    collect_limit: int = 1
    max_attempts: int = DEFAULT_MAX_ATTEMPTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How one queue is consumed by one process."""

    queue: str
    target_groups: tuple[TargetGroup, ...]
    at_once: int
    """Turns at once, over all targets."""
    each: int | None = None
    """Turns at once of one target; None: all of `at_once`."""
    unnamed: str = ""
    """The target whose consumer also takes messages without one, stored as ''; '' if another process takes them."""
    backoff: Backoff = Backoff()
    poll: timedelta = timedelta(seconds=60)
    jitter: timedelta = timedelta(seconds=15)
    start_stagger: timedelta = timedelta(0)

    def timed(self, turn: LeasedTurn, outcome: Outcome) -> Outcome:
        """A retry that names no delay gets one by its attempt; several that failed together are tried apart at once."""
        if isinstance(outcome, Retry) and outcome.delay is None and len(turn.events) == 1:
            return replace(outcome, delay=self.backoff.delay(turn.attempt))
        return outcome


def failed(error: BaseException) -> Retry | Dead:
    """Turn an exception of a handler into an outcome; an event that cannot be read is not tried again."""
    if isinstance(error, Unreadable):
        return Dead(str(error), type(error).__name__)
    kind = type(error).__name__
    return Retry(f"{kind}: {error}", error_class=kind, traceback=trace_of(error))

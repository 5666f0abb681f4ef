"""The policy of a queue: its leases, slots, back-off and poll interval."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import timedelta

from holdfast.errors import StoreUnavailable, Unreadable
from holdfast.queue.outcome import Dead, Outcome, Retry, Snooze, trace_of
from holdfast.queue.store import DEFAULT_MAX_ATTEMPTS
from holdfast.queue.turn import LeasedTurn

LET_GO_WITHIN = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Delays that double from `first` to `most`, spread at random.

    So events that failed together are not retried together."""

    first: timedelta = timedelta(seconds=2)
    most: timedelta = timedelta(minutes=5)

    def delay(self, attempt: int) -> timedelta:
        """Return the delay after this attempt."""
        longest: timedelta = min(self.first * 2 ** min(attempt, 30), self.most)
        return self.first + (longest - self.first) * random.random()


AFTER_OUTAGE = Backoff(first=timedelta(seconds=1), most=timedelta(seconds=3))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TargetGroup:
    """Targets of a queue that are claimed with the same lease, limits and attempts."""

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
    """Turns at once of one target; None means `at_once`."""
    unnamed: str = ""
    """The target that also gets messages without one, stored as ''.

    '' leaves them to another process."""
    backoff: Backoff = Backoff()
    poll: timedelta = timedelta(seconds=60)
    jitter: timedelta = timedelta(seconds=15)
    start_stagger: timedelta = timedelta(0)
    wait_for_slot: timedelta = timedelta(seconds=1)
    """Longest wait of a turn that was claimed ahead; then it is released for any process."""
    busy_after: timedelta = timedelta(seconds=1)
    """Time with all slots taken after which a process asks for no more wake-ups."""
    let_go_within: timedelta = LET_GO_WITHIN
    """Time after the grace period for handlers to stop, and for outcomes to be stored."""

    def with_backoff(self, turn: LeasedTurn, outcome: Outcome) -> Outcome:
        """Return the outcome; a retry without a delay gets the back-off of its attempt.

        A turn of several events gets none: its events are retried at once, one by one."""
        if isinstance(outcome, Retry) and outcome.delay is None and len(turn.events) == 1:
            return replace(outcome, delay=self.backoff.delay(turn.attempt))
        return outcome


def outcome_of(error: BaseException) -> Retry | Dead | Snooze:
    """Turn an exception of a handler into an outcome. Unreadable events are not retried.

    An outage of the database is not the fault of the event: it uses no attempt."""
    if isinstance(error, Unreadable):
        return Dead(str(error), type(error).__name__)
    if isinstance(error, StoreUnavailable):
        return Snooze(AFTER_OUTAGE.delay(1))
    kind = type(error).__name__
    text = f"{kind}: {error}" if str(error) else kind
    return Retry(text, error_class=kind, traceback=trace_of(error))

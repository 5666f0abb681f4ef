"""Outcomes: how a turn ends, as values and not as exceptions."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from datetime import timedelta

from holdfast.message import Payload
from holdfast.queue.event import NewEvent
from holdfast.queue.record import Record
from holdfast.queue.turn import LeasedTurn
from holdfast.settings import DurationLike, duration


# Not frozen: each turn creates one, and a frozen one takes three times as long to create.
@dataclass(slots=True, unsafe_hash=True)
class Done:
    """The turn is over. What it emits and records is stored in the transaction that settles it."""

    emits: tuple[NewEvent, ...] = ()
    records: tuple[Record, ...] = ()
    state: Payload | None = None


@dataclass(frozen=True, slots=True, init=False)
class Retry:
    """Try again after a delay; with no attempts left it is a dead letter instead.

    The delay is a timedelta, a number of seconds, or a text such as "5 min". Without one it grows
    with the attempts."""

    error: str | None
    delay: timedelta | None
    error_class: str | None
    traceback: str | None = field(repr=False, compare=False)

    def __init__(
        self,
        error: str | None = None,
        delay: DurationLike | None = None,
        error_class: str | None = None,
        traceback: str | None = None,
    ) -> None:
        # The only way to set the fields of a frozen dataclass.
        object.__setattr__(self, "error", error)
        object.__setattr__(self, "delay", None if delay is None else duration(delay))
        object.__setattr__(self, "error_class", error_class)
        object.__setattr__(self, "traceback", traceback)


@dataclass(frozen=True, slots=True, init=False)
class Snooze:
    """Not now: come back after the delay without using an attempt.

    The delay is a timedelta, a number of seconds, or a text such as "5 min". A snoozed event holds
    its lane, unless `leave_lane` takes it out for good: later events of the lane then go on, and
    it comes back beside them. A turn of several events never leaves its lane."""

    delay: timedelta
    leave_lane: bool = False

    def __init__(self, delay: DurationLike, *, leave_lane: bool = False) -> None:
        object.__setattr__(self, "delay", duration(delay))
        object.__setattr__(self, "leave_lane", leave_lane)


@dataclass(frozen=True, slots=True)
class Dead:
    """End as a dead letter: no further attempt until a person asks for one."""

    reason: str
    error_class: str | None = None
    traceback: str | None = field(default=None, repr=False, compare=False)


Outcome = Done | Retry | Snooze | Dead


def trace_of(error: BaseException) -> str:
    """Return the traceback of an exception as text."""
    return "".join(traceback.format_exception(error))


# Not frozen, for the same reason as Done.
@dataclass(slots=True)
class Settled:
    """The turn was ours and has ended: completed, dead, or back (to be worked again)."""

    turn: LeasedTurn
    ended: str = field(default="completed", compare=False)


@dataclass(frozen=True, slots=True)
class Lost:
    """The turn was no longer ours; nothing of its outcome was stored."""

    turn: LeasedTurn

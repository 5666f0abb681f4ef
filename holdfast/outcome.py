"""How a turn ends: a value, not an exception."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from holdfast.event import NewEvent, Payload, Record, Turn


# Not frozen: each turn makes one, and a frozen one takes three times as long to make.
@dataclass(slots=True, unsafe_hash=True)
class Done:
    """The turn is over. What it emits and records is stored in the transaction that settles it."""

    emits: tuple[NewEvent, ...] = ()
    records: tuple[Record, ...] = ()
    state: Payload | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after a delay; with no attempts left it is a dead letter instead."""

    error: str | None = None
    delay: timedelta | None = None
    error_class: str | None = None


@dataclass(frozen=True, slots=True)
class Snooze:
    """Not now: come back after the delay without using an attempt."""

    delay: timedelta


@dataclass(frozen=True, slots=True)
class Dead:
    """Never again, until a person says so."""

    reason: str
    error_class: str | None = None


Outcome = Done | Retry | Snooze | Dead


# Not frozen either.
@dataclass(slots=True)
class Settled:
    """The turn was ours and has ended; `ended` says how: completed, dead, or back (to be worked again)."""

    turn: Turn
    ended: str = field(default="completed", compare=False)


@dataclass(frozen=True, slots=True)
class Lost:
    """The turn was no longer ours; nothing of its outcome was stored."""

    turn: Turn

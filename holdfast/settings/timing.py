"""Times of a schedule: cron with a time zone, an interval such as "every 10 min", or one moment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from holdfast.settings.duration import duration

EVERY = "every "
CRON_FIELDS = 5
LONGEST_FOLD = timedelta(hours=3)
"""More than any clock is ever set back."""
EXPECTED = (
    'a schedule is a cron expression like "0 9 * * mon-fri", an interval like "every 10 min",'
    ' or a time like "2027-01-31T09:00"'
)


class Timing(ABC):
    """The moments at which a schedule runs, in UTC."""

    @abstractmethod
    def after(self, moment: datetime) -> datetime | None:
        """Return the first run after a moment; None if there is none."""

    @abstractmethod
    def latest(self, moment: datetime) -> Iterator[datetime]:
        """Yield the runs up to a moment, the latest first."""

    def between(self, first: datetime, last: datetime, most: int) -> list[datetime]:
        """Return the runs from `first` to `last`, in order; the latest ones if there are more."""
        runs = takewhile(lambda run: run >= first, self.latest(last))
        return list(islice(runs, most))[::-1]


@dataclass(frozen=True, slots=True)
class Once(Timing):
    """One moment."""

    at: datetime

    def after(self, moment: datetime) -> datetime | None:
        return self.at if self.at > moment else None

    def latest(self, moment: datetime) -> Iterator[datetime]:
        if self.at <= moment:
            yield self.at


@dataclass(frozen=True, slots=True)
class Interval(Timing):
    """A fixed interval, counted from a start. Clock changes do not affect it."""

    every: timedelta
    starts_at: datetime

    def after(self, moment: datetime) -> datetime:
        return self.starts_at + max((moment - self.starts_at) // self.every + 1, 1) * self.every

    def latest(self, moment: datetime) -> Iterator[datetime]:
        run = self.after(moment) - self.every
        while run > self.starts_at and run <= moment:
            yield run
            run -= self.every


@dataclass(frozen=True, slots=True)
class Cron(Timing):
    """A cron expression of five fields, in the local time of a zone.

    Where the clock is set forward, a run at a fixed time inside the gap comes right after it. Where
    it is set back, such a run comes in the first of the two equal hours. Expressions whose minute
    or hour begins with `*` follow the clock instead: no run in the gap, and runs in both hours."""

    expression: str
    zone: tzinfo

    def after(self, moment: datetime) -> datetime | None:
        # Inside of a repeated hour the library may return a run of the first one, which is over.
        runs = _in_utc(CronSim(self.expression, moment.astimezone(self.zone)))
        return next((run for run in runs if run > moment), None)

    def latest(self, moment: datetime) -> Iterator[datetime]:
        # Begin later: inside of a repeated hour the library would miss runs of the first one.
        begin = (moment + LONGEST_FOLD).astimezone(self.zone)
        runs = _in_utc(CronSim(self.expression, begin, reverse=True))
        return (run for run in runs if run <= moment)


def _in_utc(runs: CronSim) -> Iterator[datetime]:
    return (run.astimezone(UTC) for run in runs)


def parse_timing(text: str, zone: str, starts_at: datetime) -> Timing:
    """Parse the times of a schedule; intervals begin at `starts_at`. Raises ValueError."""
    tz, words = parse_zone(zone), text.strip()
    if words.lower().startswith(EVERY):
        return _interval(words[len(EVERY) :], starts_at)
    if len(words.split()) == CRON_FIELDS:
        return _cron(words, tz, starts_at)
    try:
        at = datetime.fromisoformat(words)
    except ValueError:
        raise ValueError(f"{EXPECTED}, not {text!r}") from None
    return Once((at if at.tzinfo else at.replace(tzinfo=tz)).astimezone(UTC))


def parse_zone(name: str) -> tzinfo:
    """Return the time zone of an IANA name such as Europe/Berlin. Raises ValueError."""
    try:
        return UTC if name.upper() == "UTC" else ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        # Also a file without read permission, or a folder such as "Europe".
        raise ValueError(
            f"there is no time zone {name!r} on this machine; name one like Europe/Berlin"
            " (the package tzdata has them all)"
        ) from None


def _interval(text: str, starts_at: datetime) -> Interval:
    every = duration(text)
    if every <= timedelta(0):
        raise ValueError("an interval is longer than 0 s")
    return Interval(every, starts_at)


def _cron(expression: str, zone: tzinfo, starts_at: datetime) -> Cron:
    try:
        CronSim(expression, starts_at)
    except CronSimError as error:
        raise ValueError(f"{expression!r} is not a cron expression: {error}") from None
    return Cron(expression, zone)

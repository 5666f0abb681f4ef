"""A clock that stands still until a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """A clock. Call it for the time; only `tick` and `set` change it."""

    def __init__(self, start: datetime = START) -> None:
        self._now = _utc(start)

    def __call__(self) -> datetime:
        return self._now

    @property
    def now(self) -> datetime:
        return self._now

    def tick(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
        microseconds: float = 0,
    ) -> datetime:
        """Move the clock forward. Returns the new time."""
        self._now += timedelta(
            days=days,
            hours=hours,
            minutes=minutes,
            seconds=seconds,
            milliseconds=milliseconds,
            microseconds=microseconds,
        )
        return self._now

    def set(self, now: datetime) -> None:
        self._now = _utc(now)


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError(
            "a clock needs a datetime with a time zone, such as datetime(2026, 1, 1, tzinfo=UTC)"
        )
    return moment.astimezone(UTC)

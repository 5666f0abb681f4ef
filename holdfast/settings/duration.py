"""Parse and print durations such as "10 min"."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator

FOREVER = "forever"

_UNITS = {
    "ms": 0.001,
    "s": 1,
    "sec": 1,
    "second": 1,
    "m": 60,
    "min": 60,
    "minute": 60,
    "h": 3600,
    "hour": 3600,
}
_UNITS |= {"d": 86_400, "day": 86_400, "w": 604_800, "week": 604_800}
_NUMBER = r"[0-9]{1,20}+(?:\.[0-9]{1,20}+)?"
_AMOUNT = re.compile(rf"({_NUMBER}) *([a-z]+)")
_DURATION = re.compile(rf"{_NUMBER}|{_AMOUNT.pattern}(?: *{_AMOUNT.pattern})*")


def duration(value: object) -> timedelta:
    """Parse "30s", "10 min", "1h 30min" or a number of seconds; raise ValueError for others."""
    if isinstance(value, timedelta):
        return value
    text = "" if isinstance(value, bool) else str(value).strip().lower()
    try:
        if not _DURATION.fullmatch(text):
            raise ValueError
        amounts = _AMOUNT.findall(text) or [(text, "s")]
        return timedelta(seconds=sum(float(number) * _unit(unit) for number, unit in amounts))
    except (ValueError, KeyError, OverflowError):
        raise ValueError(
            'a duration is a text like "30s", "10 min" or "24h", or a number of seconds'
        ) from None


def duration_text(value: timedelta) -> str:
    """Return the shortest text that `duration` parses to this value."""
    units = (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("min", timedelta(minutes=1)))
    for unit, one in units:
        # A single day reads better as 24h.
        if value and value % one == timedelta(0) and (unit != "d" or value > one):
            return f"{value // one}{unit}"
    return f"{value.total_seconds():.6f}".rstrip("0").rstrip(".") + "s"


def _unit(name: str) -> float:
    return _UNITS[name if name in _UNITS else name.removesuffix("s")]


def _or_forever(value: object) -> timedelta | None:
    return None if value is None or value == FOREVER else duration(value)


DurationLike = timedelta | float | str
"""A duration as an argument: a timedelta, a number of seconds, or a text such as "5 min"."""

Duration = Annotated[timedelta, BeforeValidator(duration)]
OrForever = Annotated[timedelta | None, BeforeValidator(_or_forever)]

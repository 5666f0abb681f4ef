"""Whether an index can be reached; one that cannot is left alone for a while, longer each time."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import OrderedDict
from datetime import timedelta

from holdfast.errors import StoreUnavailable
from holdfast.memory.knowledge import IndexUnavailable

FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=60)
TIMEOUTS_KNOWN = 10_000

_AWAY = (IndexUnavailable, StoreUnavailable, ConnectionError, socket.gaierror)
_UNREACHABLE = {errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH}


def is_unreachable(error: Exception) -> bool:
    """Whether an error means that nobody can reach the index: no name, no route, no connection.

    Any other error of the system, such as a missing file, is that of a document; for time-outs see `Timeouts`."""
    return isinstance(error, _AWAY) or (isinstance(error, OSError) and error.errno in _UNREACHABLE)


class Timeouts:
    """Tells an event that the index never answers from an index that answers nobody."""

    def __init__(self) -> None:
        self.answers = 0
        """How often the index answered."""
        self._answers_at: OrderedDict[int, int] = OrderedDict()
        """How often it had answered at the last time-out of an event."""

    def is_own(self, event_id: int, began: int) -> bool:
        """Note a time-out of a try that began after so many answers.

        Returns whether others were answered meanwhile, or since the time-out before."""
        before = self._answers_at.pop(event_id, began)
        self._answers_at[event_id] = self.answers
        if len(self._answers_at) > TIMEOUTS_KNOWN:
            self._answers_at.popitem(last=False)
        return self.answers > before

    def answered(self, event_id: int) -> None:
        self.answers += 1
        self._answers_at.pop(event_id, None)


class Breaker:
    """Open for a while after the index was away, longer each time."""

    def __init__(self) -> None:
        self._pause = FIRST_PAUSE
        self._until = 0.0

    @property
    def is_open(self) -> bool:
        return asyncio.get_running_loop().time() < self._until

    def open(self) -> timedelta:
        """Return how long to pause. Turns that fail at the same time share a pause."""
        pause, now = self._pause, asyncio.get_running_loop().time()
        if now < self._until:
            return timedelta(seconds=self._until - now)
        self._until = now + pause.total_seconds()
        self._pause = min(pause * 2, LONGEST_PAUSE)
        return pause

    def close(self) -> None:
        self._pause, self._until = FIRST_PAUSE, 0.0

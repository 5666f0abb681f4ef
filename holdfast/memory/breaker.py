"""Circuit breaker of the relay: pause while the index is unreachable, longer each time."""

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
MAX_TIMEOUTS = 10_000
"""Maximum number of events whose time-outs are remembered."""

_CONNECTION_ERRORS = (IndexUnavailable, StoreUnavailable, ConnectionError, socket.gaierror)
_UNREACHABLE = {errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH}


def is_unreachable(error: Exception) -> bool:
    """Return whether an error means that nobody can reach the index: no name, route or connection.

    Any other error of the system, such as a missing file, belongs to a document. For time-outs see
    `Timeouts`."""
    return isinstance(error, _CONNECTION_ERRORS) or (
        isinstance(error, OSError) and error.errno in _UNREACHABLE
    )


class Timeouts:
    """Tells apart an event that always times out and an index that answers nobody."""

    def __init__(self) -> None:
        self.answers = 0
        """Number of answers of the index."""
        self._answers_at: OrderedDict[int, int] = OrderedDict()
        """By event, the number of answers at its last time-out."""

    def note_timeout(self, event_id: int, answers_before: int) -> bool:
        """Note a time-out of a try that began after `answers_before` answers.

        Returns whether the event is to blame: the index answered others meanwhile, or since the
        event's previous time-out."""
        before = self._answers_at.pop(event_id, answers_before)
        self._answers_at[event_id] = self.answers
        if len(self._answers_at) > MAX_TIMEOUTS:
            self._answers_at.popitem(last=False)
        return self.answers > before

    def note_answer(self, event_id: int) -> None:
        self.answers += 1
        self._answers_at.pop(event_id, None)


class Breaker:
    """Open for a while after the index was unreachable, longer each time."""

    def __init__(self) -> None:
        self._pause = FIRST_PAUSE
        self._until = 0.0

    @property
    def is_open(self) -> bool:
        return asyncio.get_running_loop().time() < self._until

    def open(self) -> timedelta:
        """Open the breaker. Returns how long to pause; turns that fail together share a pause."""
        pause, now = self._pause, asyncio.get_running_loop().time()
        if now < self._until:
            return timedelta(seconds=self._until - now)
        self._until = now + pause.total_seconds()
        self._pause = min(pause * 2, LONGEST_PAUSE)
        return pause

    def close(self) -> None:
        self._pause, self._until = FIRST_PAUSE, 0.0

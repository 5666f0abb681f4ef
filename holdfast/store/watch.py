"""Who counts as dead: a process whose sign of life was missing in two looks, some time apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import timedelta

BETWEEN_LOOKS = timedelta(seconds=2)


class Watch:
    """Remembers since when which process is silent. One look is not enough: a process may just be reconnecting."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._silent_since: dict[str, float] = {}

    def look(self, silent: Iterable[str]) -> list[str]:
        """Those that were silent in an earlier look already, and in every one since."""
        now = self._monotonic()
        self._silent_since = {process: self._silent_since.get(process, now) for process in silent}
        patience = BETWEEN_LOOKS.total_seconds()
        return [process for process, since in self._silent_since.items() if now - since >= patience]

    def forget(self) -> None:
        """Start over: what was seen before may say nothing about now."""
        self._silent_since.clear()

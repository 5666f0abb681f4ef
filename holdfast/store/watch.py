"""Finds dead processes: those whose sign of life was missing in two checks, 2 s apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import timedelta

BETWEEN_LOOKS = timedelta(seconds=2)


class Watch:
    """Remembers since when each process has been silent.

    One check is not enough: a process may just be reconnecting."""

    def __init__(
        self,
        between_looks: timedelta = BETWEEN_LOOKS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._between_looks = between_looks
        self._monotonic = monotonic
        self._silent_since: dict[str, float] = {}

    def look(self, silent: Iterable[str]) -> list[str]:
        """Note the processes that are silent now. Returns those silent for `between_looks`."""
        now = self._monotonic()
        self._silent_since = {process: self._silent_since.get(process, now) for process in silent}
        least = self._between_looks.total_seconds()
        return [process for process, since in self._silent_since.items() if now - since >= least]

    def forget(self) -> None:
        """Start over, for example after a reconnect: earlier checks no longer count."""
        self._silent_since.clear()

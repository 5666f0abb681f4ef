"""Slots for running turns: some for each target, and a total that is divided fairly if scarce."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

UNSETTLED = 2
"""Maximum number of turns held per slot: one that runs, and one that waits to be settled."""

AHEAD_SECONDS = 0.05
"""Amount of work to claim ahead of free slots: as long as a slow claim takes."""
MOST_AHEAD = 200
"""Maximum turns of a name claimed ahead. Each uses an attempt if the process is killed."""
UNKNOWN_SECONDS = 1.0
"""Assumed length of a name's first turns, so long that nothing is claimed ahead of them."""
SMOOTHING = 1 / 8
"""Weight of a turn in the mean length. A single turn of one second ends claiming ahead."""


class Round(Enum):
    """The agents that a claim asks for."""

    ALL = auto()
    """Nothing is scarce: every agent, up to its free slots."""
    IDLE = auto()
    """The total is scarce: agents without a running turn go first, one turn each."""
    REST = auto()
    """Then every agent, in the slots that remain after reserving one for each idle agent."""


@dataclass(frozen=True, slots=True)
class Request:
    """Targets of one claim, in order; `at_most` is as in Store.claim."""

    targets: list[str]
    limit: int
    at_most: list[int | None] | None = None


class Slots:
    """Counts turns by agent or channel: claimed, running, and held until their end is stored.

    Turns that wait to be settled take no slot. While turns end at once, some are claimed ahead:
    they wait for a slot here, so that no slot waits for a claim."""

    def __init__(self, names: Sequence[str], *, each: int, total: int) -> None:
        self.each = min(each, total)
        self.total = min(total, self.each * max(len(names), 1))
        self._can_reserve = len(names) <= total
        self._may_be_scarce = self.each * len(names) > self.total
        self._working = dict.fromkeys(names, 0)
        self._running = dict.fromkeys(names, 0)
        self._held = dict.fromkeys(names, 0)
        self._seconds = dict.fromkeys(names, UNKNOWN_SECONDS)
        self._ahead = dict.fromkeys(names, 0)
        self._all_working = self._all_running = self._all_held = self._all_ahead = 0

    @property
    def most_claimed(self) -> int:
        """Turns that may be claimed and unfinished at once."""
        return self.total + self._all_ahead

    def take(self, name: str) -> None:
        """Count a claimed turn."""
        self._working[name] += 1
        self._held[name] += 1
        self._all_working += 1
        self._all_held += 1

    def begin(self, name: str) -> bool:
        """Give a claimed turn a slot to run in. Returns False if none is free."""
        if self._running[name] >= self.each or self._all_running >= self.total:
            return False
        self._running[name] += 1
        self._all_running += 1
        return True

    def finish(self, name: str, seconds: float) -> None:
        """Free the slot of a turn that has its outcome. It is held until the outcome is stored."""
        self._stop(name, is_running=True)
        self._seconds[name] += (seconds - self._seconds[name]) * SMOOTHING
        self._allow_ahead(name, int(self.each * AHEAD_SECONDS / max(self._seconds[name], 1e-6)))

    def be_cautious(self, name: str) -> None:
        """Claim nothing ahead until further turns have ended quickly."""
        self._seconds[name] = UNKNOWN_SECONDS
        self._allow_ahead(name, 0)

    def leave(self, name: str, *, is_running: bool, is_finished: bool) -> None:
        """Forget a turn; one that never finished frees its slot now."""
        if not is_finished:
            self._stop(name, is_running=is_running)
        self._held[name] -= 1
        self._all_held -= 1

    def _stop(self, name: str, *, is_running: bool) -> None:
        self._working[name] -= 1
        self._all_working -= 1
        self._running[name] -= is_running
        self._all_running -= is_running

    def _allow_ahead(self, name: str, turns: int) -> None:
        # While the total may be scarce, turns claimed ahead would keep other names waiting.
        turns = 0 if self._may_be_scarce else min(turns, MOST_AHEAD)
        if turns != self._ahead[name]:
            self._all_ahead += turns - self._ahead[name]
            self._ahead[name] = turns

    def free(self, name: str) -> int:
        """Return how many turns of a name may be claimed now, regardless of the total."""
        most = self.each + self._ahead[name]
        return min(most - self._working[name], UNSETTLED * most - self._held[name])

    @property
    def all_free(self) -> int:
        most = self.most_claimed
        return min(most - self._all_working, UNSETTLED * most - self._all_held)

    @property
    def is_short(self) -> bool:
        """Whether there may be work that cannot be claimed here now."""
        return self._spare <= 0 or any(self.free(name) <= 0 for name in self._working)

    @property
    def _is_scarce(self) -> bool:
        return (
            self._may_be_scarce
            and sum(max(self.free(name), 0) for name in self._working) > self.all_free
        )

    @property
    def _spare(self) -> int:
        """Free slots less one for each idle name. With more names than slots, none is reserved."""
        if not (self._can_reserve and self._may_be_scarce):
            return self.all_free
        return self.all_free - list(self._working.values()).count(0)

    def rounds(self) -> tuple[Round, ...]:
        return (Round.IDLE, Round.REST) if self._is_scarce else (Round.ALL,)

    def request(
        self, groups: Mapping[str, Sequence[str]], which: Round, batch: int
    ) -> Request | None:
        """Build the claim of one round for these names and their targets.

        Returns None if nothing may be claimed."""
        limit = min(self._spare if which is Round.REST else self.all_free, batch)
        free = {name: self.free(name) for name in random.sample(list(groups), len(groups))}
        if which is Round.IDLE:
            free = {
                name: 1 for name, slots in free.items() if slots > 0 and not self._working[name]
            }
        elif which is Round.REST:
            free = {name: free[name] for name in sorted(free, key=self._working.__getitem__)}
        free = {name: slots for name, slots in free.items() if slots > 0}
        if limit <= 0 or not free:
            return None
        if len(self._working) == 1:
            [name] = free
            return Request(list(groups[name]), min(limit, free[name]))
        return _request(groups, free, limit)

    def open(self, groups: Mapping[str, Sequence[str]]) -> list[str]:
        """Return the targets that a claim could ask for now."""
        if self.all_free <= 0:
            return []
        return [
            target for name, targets in groups.items() if self.free(name) > 0 for target in targets
        ]


def _request(groups: Mapping[str, Sequence[str]], free: Mapping[str, int], limit: int) -> Request:
    targets: list[str] = []
    at_most: list[int | None] = []
    for name, slots in free.items():
        # In random order: a backlog of one target must not hide the other.
        targets += random.sample(groups[name], len(groups[name]))
        at_most += [slots, *[None] * (len(groups[name]) - 1)]
    return Request(targets, limit, at_most)

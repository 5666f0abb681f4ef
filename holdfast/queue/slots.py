"""Slots for running turns: some for each target, and a total that is divided fairly if scarce."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

UNSETTLED = 2
"""Turns held per slot: one that runs, and one whose end waits to be stored."""


class Round(Enum):
    """The agents that a claim asks for."""

    ALL = auto()
    """Nothing is scarce: every agent, up to its free slots."""
    IDLE = auto()
    """The total is scarce: agents without a running turn go first, one turn each."""
    REST = auto()
    """Then the others, with what is left beside one slot for each idle agent."""


@dataclass(frozen=True, slots=True)
class Request:
    """Targets of one claim, in order; `at_most` is as in Store.claim."""

    targets: list[str]
    limit: int
    at_most: list[int | None] | None = None


class Slots:
    """Counts running turns by agent or channel. Turns that wait to be settled take no slot."""

    def __init__(self, names: Sequence[str], *, each: int, total: int) -> None:
        self.each = min(each, total)
        self.total = min(total, self.each * max(len(names), 1))
        self._can_reserve = len(names) <= total
        self._may_be_scarce = self.each * len(names) > self.total
        self._working = dict.fromkeys(names, 0)
        self._held = dict.fromkeys(names, 0)
        self._all_working = self._all_held = 0

    def take(self, name: str) -> None:
        self._working[name] += 1
        self._held[name] += 1
        self._all_working += 1
        self._all_held += 1

    def finish(self, name: str) -> None:
        """Free the slot of a turn that has its outcome. It is held until the outcome is stored."""
        self._working[name] -= 1
        self._all_working -= 1

    def leave(self, name: str, *, finished: bool) -> None:
        """Forget a turn; one that never finished frees its slot now."""
        if not finished:
            self.finish(name)
        self._held[name] -= 1
        self._all_held -= 1

    def free(self, name: str) -> int:
        """Return the free slots of a name, regardless of the total."""
        return min(self.each - self._working[name], UNSETTLED * self.each - self._held[name])

    @property
    def all_free(self) -> int:
        return min(self.total - self._all_working, UNSETTLED * self.total - self._all_held)

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
        """Slots beside one for each idle name. With more names than slots, none is kept free."""
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

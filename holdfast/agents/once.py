"""Calls of once-steps, matched with those that earlier attempts recorded."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.agents.call import Call, key_of, use_of
from holdfast.queue.journal import Step


class OnceUses:
    """The recorded uses of once-steps, each of which one call of this attempt may repeat.

    Arguments identify a call, since calls may come in another order than before. A call with new
    arguments may run, unless a use with other arguments is recorded in its place and no person has
    decided about that one."""

    def __init__(self, recorded: Iterable[Step]) -> None:
        self._uses: dict[str, dict[int, Step]] = {}
        for step in recorded:
            if step.kind == "once":
                name, number = use_of(step.key)
                self._uses.setdefault(name, {})[number] = step
        self._taken: set[str] = set()

    def take(self, call: Call) -> Step | None:
        """Return the recorded use that this call repeats, and set the call's key. None if it is
        new."""
        found = self._find_repeated(call)
        call.key = self._free_key(call) if found is None else found.key
        self._taken.add(call.key)
        return found

    def rival(self, call: Call) -> Step | None:
        """Return a recorded use in the place of this new call. None if there is none: the call may
        run."""
        own = self._uses.get(call.name, {}).get(call.number)
        if own is None:
            return None
        return own if own.key not in self._taken else next(iter(self._open(call)), None)

    def _find_repeated(self, call: Call) -> Step | None:
        rival, uses = self.rival(call), self._open(call)
        same = [step for step in uses if step.digest == call.digest]
        decided = [step for step in uses if step.attempt == 0 or step.digest is None]
        candidates = same or (decided if rival else [])
        return min(candidates, key=lambda step: step is not rival, default=None)

    def _open(self, call: Call) -> list[Step]:
        """Return the recorded uses of the call's name that no other call repeats."""
        uses = self._uses.get(call.name, {}).values()
        return [step for step in uses if step.key not in self._taken]

    def _free_key(self, call: Call) -> str:
        number, uses = call.number, self._uses.get(call.name, {})
        while number in uses or key_of(call.name, number) in self._taken:
            number += 1
        return key_of(call.name, number)

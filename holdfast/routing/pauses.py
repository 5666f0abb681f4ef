"""Checks before a pause: the name must exist, and the pause must have an effect."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.routing.directory import Directory
from holdfast.store.pauses import PauseKind


@dataclass(frozen=True, slots=True)
class PauseProblem:
    """The reason why a name cannot be paused; a conflict if a pause of it would have no effect."""

    text: str
    is_conflict: bool = False


def check_pause(kind: PauseKind, name: str, directory: Directory) -> PauseProblem | None:
    """Return why a name cannot be paused, None if it can. Any queue can: users add their own."""
    if kind == "agent" and name not in directory.routing.lanes:
        return PauseProblem(f"there is no agent {name!r}; {_known_names(directory.routing.lanes)}")
    if kind == "channel" and not directory.is_delivered(name):
        return PauseProblem(
            f"no process delivers to the channel {name!r}: its clients fetch their responses"
            " themselves, so there is nothing to pause",
            is_conflict=True,
        )
    return None


def _known_names(names: Iterable[str]) -> str:
    found = ", ".join(sorted(names))
    return f"there are {found}" if found else "no agent is known yet"

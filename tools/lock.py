"""Reads the lock: requirements files in which every version is pinned and has its hashes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCKS = (
    "requirements",
    "requirements-core",
    "requirements-dev",
    "requirements-docs",
    "requirements-peers",
    "requirements-synapse",
)

_HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})(?=\s|$)")


@dataclass(frozen=True, slots=True)
class Pin:
    """One line of a lock, with the lines that continue it."""

    requirement: Requirement
    hashes: tuple[str, ...]

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> str | None:
        """The one version that it allows, None if it allows several."""
        specifiers = list(self.requirement.specifier)
        is_exact = (
            len(specifiers) == 1
            and specifiers[0].operator == "=="
            and "*" not in specifiers[0].version
        )
        return specifiers[0].version if is_exact else None


def pins(path: Path) -> list[Pin]:
    """Read a lock."""
    lines = [line for line in _join_lines(path) if not line.startswith("-")]
    return [
        Pin(Requirement(line.partition("--hash=")[0].strip()), tuple(_HASH.findall(line)))
        for line in lines
    ]


def read_requirements(path: Path) -> list[Requirement]:
    """Read the requirements that a lock was made from."""
    return [Requirement(line) for line in _join_lines(path) if not line.startswith("-")]


def _join_lines(path: Path) -> list[str]:
    text = path.read_text().replace("\\\n", " ")
    return [
        line
        for raw in text.splitlines()
        if (line := raw.partition(" #")[0].strip()) and not line.startswith("#")
    ]

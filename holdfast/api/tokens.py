"""A token per role, each in a file of its owner's alone, made by whoever starts first."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from holdfast.errors import HoldfastError
from holdfast.telemetry.logs import hide

Role = Literal["read", "send", "admin"]
ROLES: tuple[Role, ...] = ("read", "send", "admin")
"""Each may do what those before it may."""
SHORTEST = 16


def allows(role: Role, needed: Role) -> bool:
    return ROLES.index(role) >= ROLES.index(needed)


def tokens_in(home: Path) -> dict[Role, str]:
    return {role: token_in(home, role) for role in ROLES}


def token_in(home: Path, role: Role) -> str:
    """The token of a role; made if it is not there yet. From now on no log line shows it."""
    path = home / f"token-{role}"
    try:
        if not path.exists():
            _make(path)
        token = path.read_text().strip()
    except (OSError, ValueError) as error:
        raise HoldfastError(f"the token file {path} cannot be made or read: {error}") from error
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable():
        raise HoldfastError(f"{path} holds no token: remove it, and the next start makes one")
    hide(token)
    return token


def _make(path: Path) -> None:
    """Written in full beside its place, then given its name, which only one of several processes can do."""
    draft = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{secrets.token_urlsafe(32)}\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        pass  # Another process was quicker, and its token counts.
    finally:
        draft.unlink()


class Tokens:
    """Finds the role of a token in a time that says nothing about how much of it was right."""

    def __init__(self, tokens: Mapping[Role, str]) -> None:
        self._digests = [(role, _digest(tokens[role])) for role in ROLES]

    def role_of(self, given: str) -> Role | None:
        found: Role | None = None
        digest = _digest(given)
        for role, known in self._digests:
            if hmac.compare_digest(digest, known):
                found = role
        return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()

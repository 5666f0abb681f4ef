"""The bootstrap tokens: one per role, each in a file that only its owner may read."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.store.credentials import Role as Role
from holdfast.telemetry.redaction import hide

ROLES: tuple[Role, ...] = ("read", "send", "admin")
"""Each may do what those before it may."""
SHORTEST = 16
CHECKED_EVERY = 0.02
"""Seconds between looks at a token file. A look takes a tenth of the time of a request."""

Version = tuple[int, int]
"""Inode and time of change of a file: a rotated token has another."""


def allows(role: Role, needed: Role) -> bool:
    return ROLES.index(role) >= ROLES.index(needed)


def digest_of(secret: str) -> str:
    """The SHA-256 digest by which a secret is stored and found."""
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()


def bootstrap_tokens(home: Path) -> dict[Role, str]:
    return {role: bootstrap_token(home, role) for role in ROLES}


def bootstrap_token(home: Path, role: Role) -> str:
    """Return the token of a role, created if there is none. Hides it from logs."""
    path = _path(home, role)
    try:
        if not path.exists():
            _make(path)
        return _read(path)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise HoldfastError(f"the token file {path} cannot be created or read: {reason}") from error


def rotate(home: Path, role: Role) -> str:
    """Replace the token of a role and return the new one. Running servers refuse the old one."""
    path = _path(home, role)
    try:
        os.replace(_draft(path), path)
        return _read(path)
    except (OSError, ValueError) as error:
        raise HoldfastError(f"the token file {path} cannot be replaced: {error}") from error


def _path(home: Path, role: Role) -> Path:
    return home / f"token-{role}"


def _read(path: Path) -> str:
    token = path.read_text().strip()
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable():
        raise HoldfastError(f"{path} holds no token; run `holdfast token rotate` to write one")
    hide(token)
    return token


def _draft(path: Path) -> Path:
    """Write a new token to a temporary file, so that nobody reads half of it."""
    draft = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{secrets.token_urlsafe(32)}\n")
        file.flush()
        os.fsync(file.fileno())
    return draft


def _make(path: Path) -> None:
    """Write a token unless there is one."""
    draft = _draft(path)
    # Several processes may start at once; the first to link its draft wins.
    with suppress(FileExistsError):
        os.link(draft, path)
    draft.unlink()


class Tokens:
    """Finds the role of a bootstrap token. Reads a token file again once it has changed."""

    def __init__(self, home: Path) -> None:
        self._paths = {role: _path(home, role) for role in ROLES}
        for role in ROLES:
            bootstrap_token(home, role)
        self._versions: dict[Role, Version | None] = dict.fromkeys(ROLES)
        self._digests: dict[Role, str] = dict.fromkeys(ROLES, "")
        self._current_until: dict[Role, float] = dict.fromkeys(ROLES, 0.0)
        self._reload()

    def role_of(self, given: str) -> Role | None:
        digest = digest_of(given)
        found = self._match(digest)
        if found is not None and self._is_current(found):
            return found
        self._reload()
        return self._match(digest)

    def _is_current(self, role: Role) -> bool:
        """Whether the file of a token is unchanged. Looks at most every CHECKED_EVERY seconds."""
        now = time.monotonic()
        if now < self._current_until[role]:
            return True
        is_current = _version(self._paths[role]) == self._versions[role]
        self._current_until[role] = now + CHECKED_EVERY if is_current else 0.0
        return is_current

    def _match(self, digest: str) -> Role | None:
        """Compare with every token in constant time."""
        found: Role | None = None
        for role, known in self._digests.items():
            if hmac.compare_digest(digest, known):
                found = role
        return found

    def _reload(self) -> None:
        for role, path in self._paths.items():
            version = _version(path)
            if version != self._versions[role]:
                self._versions[role] = version
                self._digests[role] = _digest_in(path)


def _version(path: Path) -> Version | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _digest_in(path: Path) -> str:
    """The digest of the token in a file; if it cannot be read, one that matches no secret."""
    try:
        return digest_of(_read(path))
    except (OSError, ValueError, HoldfastError):
        return ""

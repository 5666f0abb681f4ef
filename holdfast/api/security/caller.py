"""The caller of a request: what it may do, and how it is found by its token or session."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from holdfast.api.security.bootstrap_tokens import digest_of
from holdfast.queue.store import Store
from holdfast.store.credentials import Credential, Kind, Role, open_credentials

if TYPE_CHECKING:
    from starlette.requests import Request

PREFIXES: dict[Kind, str] = {"token": "hft_", "session": "hfs_", "code": "hfc_"}
"""Prefixes of secrets; only secrets with the right prefix are looked up."""
MAX_CACHED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller of a request.

    `credential` is None for bootstrap tokens, and for everybody if no token is needed."""

    role: Role
    name: str
    credential: Credential | None = None

    @classmethod
    def of(cls, credential: Credential) -> Caller:
        return cls(role=credential.role, name=credential.name, credential=credential)

    @property
    def is_session(self) -> bool:
        return self.credential is not None and self.credential.kind == "session"

    @property
    def owner(self) -> str | None:
        """The owner of the caller's events; None for bootstrap tokens and their sessions."""
        return None if self.credential is None else self.credential.owner

    @property
    def actor(self) -> str:
        """The caller's name in the audit log."""
        return f"api:{self.role}" if self.credential is None else actor_name(self.credential)

    def is_same_credential(self, other: Caller) -> bool:
        mine, theirs = self.credential, other.credential
        ids = (None if mine is None else mine.id, None if theirs is None else theirs.id)
        return self.role == other.role and ids[0] == ids[1]

    def is_same_person(self, other: Credential) -> bool:
        """Whether a session opened with `other` would have this caller's rights."""
        mine = self.credential
        return mine is not None and (mine.name, mine.role, mine.owner) == (
            other.name,
            other.role,
            other.owner,
        )


def actor_name(credential: Credential) -> str:
    """The name of a credential in the audit log: `token:ci`, `session:ada`."""
    return f"{credential.kind}:{credential.name}"


ANYBODY = Caller(role="admin", name="no-auth")


@cache
def bootstrap(role: Role) -> Caller:
    return Caller(role=role, name=f"bootstrap {role} token")


def caller_of(request: Request) -> Caller:
    caller: Caller = request.scope["holdfast.caller"]
    return caller


def actor_of(request: Request) -> str:
    """Return the actor of a request for the audit log."""
    return caller_of(request).actor


class Callers:
    """Finds callers in the database and caches them."""

    def __init__(
        self,
        store: Callable[[], Store],
        cache_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._cache_seconds = cache_seconds
        self._clock = clock
        self._cache: dict[tuple[Kind, str], tuple[float, Caller]] = {}

    def find_cached(self, kind: Kind, secret: str) -> Caller | None:
        good_until, caller = self._cache.get((kind, digest_of(secret)), (0.0, None))
        return caller if self._clock() < good_until else None

    async def find(self, kind: Kind, secret: str) -> Caller | None:
        if not secret.startswith(PREFIXES[kind]):
            return None
        digest = digest_of(secret)
        found = await open_credentials(self._store()).find(kind, digest)
        if found is None:
            return None
        if len(self._cache) >= MAX_CACHED:
            self._cache.clear()
        caller = Caller.of(found)
        self._cache[kind, digest] = (self._clock() + self._cache_seconds, caller)
        return caller

    def forget(self) -> None:
        """Empty the cache, after a credential has changed."""
        self._cache.clear()

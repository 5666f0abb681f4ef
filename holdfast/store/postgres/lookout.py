"""The lookout: one process of a fleet looks for dead ones, a deputy stands by, the rest wait."""

from __future__ import annotations

import asyncio
import math
import random
import time
from typing import Literal

from holdfast.store.postgres.session import Session
from holdfast.store.watch import Watch

Role = Literal["looker", "deputy", "none"]

LOOK_SECONDS = 1.0
"""Seconds between checks by the looker, and between role requests of the deputy."""
ROLE_REQUEST_SECONDS = 0.25
"""Mean seconds between role requests of all other processes together. They replace a looker that
died together with its deputy."""
SLACK = 0.1
"""Seconds that a periodic call may come early."""

TAKE_LOOKOUT = "select role, has_lock, processes from agent.take_lookout(%s)"
LOOK = "select silent, up_for, grace from agent.look(%s, %s)"


class Lookout:
    """Chooses the role of this process by session locks; the looker looks for dead processes."""

    def __init__(self, session: Session, watch: Watch, name: str) -> None:
        self._session = session
        self._watch = watch
        self._name = name
        self._connection = 0
        self._role: Role = "none"
        self._has_lock = False
        self._next_at = 0.0
        """When the deputy requests a role again; 0 to do so at once."""
        self._considered_at = 0.0

    @property
    def role(self) -> Role:
        """The role of this process, as last known."""
        return self._role

    async def find_dead(self) -> list[str]:
        """Check for dead processes if this one is the looker. Returns those that are dead."""
        if self._connection != self._session.connections or not self._session.is_up:
            # The locks of the last connection are gone.
            self._watch.forget()
            self._connection, self._role, self._next_at = self._session.connections, "none", 0.0
        if self._role != "looker" and self._is_time_to_ask():
            await self._ask()
        return await self._find_dead() if self._role == "looker" else []

    def _is_time_to_ask(self) -> bool:
        """Return whether to request a role now: the deputy every second, others at random.

        With fixed pauses, processes that started or reconnected together would ask all at once,
        and would all be silent in between."""
        now = time.monotonic()
        passed, self._considered_at = now - self._considered_at, now
        if self._role == "deputy" or self._next_at == 0.0:
            return now >= self._next_at
        others = max(self._session.processes - 2, 1)
        return random.random() < 1 - math.exp(-passed / (ROLE_REQUEST_SECONDS * others))

    async def _ask(self) -> None:
        row = await self._session.fetch(TAKE_LOOKOUT, (self._role == "deputy",))
        if row is None:
            return
        self._role, self._has_lock, self._session.processes = row
        if self._role == "looker":
            self._watch.forget()
        self._next_at = time.monotonic() + LOOK_SECONDS - SLACK

    async def _find_dead(self) -> list[str]:
        row = await self._session.fetch(LOOK, (self._name, self._has_lock))
        if row is None:
            return []
        silent, up_for, grace = row
        if silent is None:
            # The looker was only suspended, and is back.
            self._role = "none"
            return []
        dead = self._watch.look(silent)
        left = (grace - min(up_for, self._session.reconnected_for)).total_seconds()
        if silent and 0 < left < LOOK_SECONDS:
            # The grace period ends before the next check is due: check again as soon as it ends.
            await asyncio.sleep(left)
            return await self._find_dead()
        return dead if left <= 0 else []

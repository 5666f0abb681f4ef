"""What the routes answer for: a harness, its store, and the agents that all processes have announced."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from starlette.requests import Request

from holdfast.api.shared import Shared
from holdfast.consumer import Consumer
from holdfast.event import INBOX
from holdfast.memory.embedder import Embedder
from holdfast.memory.knowledge import KnowledgeStore
from holdfast.router import Routing
from holdfast.settings import Settings
from holdfast.store.base import Store

REMEMBERED = 1.0
"""Seconds for which the agents are taken to be the same: processes announce them as they start."""


class Harness(Protocol):
    """What the routes need of the harness that they answer for."""

    @property
    def settings(self) -> Settings | None:
        """Loaded once it runs."""

    @property
    def store(self) -> Store:
        """Raises HoldfastError unless the harness runs."""

    @property
    def embedder(self) -> Embedder:
        """What makes texts comparable, for memory."""

    @property
    def stopping(self) -> bool:
        """Whether a stop was asked for."""

    @property
    def channels(self) -> Mapping[str, object]:
        """What it serves beside the API."""

    @property
    def consumers(self) -> Sequence[Consumer]:
        """What it works with, if it works."""


class Served:
    """One per application."""

    def __init__(self, harness: Harness) -> None:
        assert harness.settings is not None, "a harness that runs has its settings"
        self.harness = harness
        self.settings = harness.settings
        self.knowledge: KnowledgeStore | None = None
        self.counts = Shared(lambda: self.store.counts())
        self.outcomes = Shared(lambda: self.store.outcomes(INBOX))
        self._routing = Routing()
        self._read_at = -REMEMBERED

    @property
    def store(self) -> Store:
        return self.harness.store

    async def routing(self) -> Routing:
        """From the store and not from our own harness, which may have other agents than those that work, or none."""
        now = time.monotonic()
        if now - self._read_at >= REMEMBERED:
            self._routing = await Routing.read(self.store)
            self._read_at = now
        return self._routing


def served_by(request: Request) -> Served:
    served: Served = request.app.state.served
    return served

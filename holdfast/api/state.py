"""State shared by all routes: the harness, its store, and the agents of all processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from starlette.requests import Request

from holdfast.agents.base import LanePolicy
from holdfast.api.cached_read import CachedRead
from holdfast.api.limits import Limits
from holdfast.channels.base import Channel
from holdfast.chat import ChatStore
from holdfast.memory.embedder import Embedder
from holdfast.memory.knowledge import KnowledgeStore
from holdfast.queue.consumer import Consumer
from holdfast.queue.event import INBOX
from holdfast.routing.directory import Current, Directory, configured_routing
from holdfast.routing.router import Routing
from holdfast.settings import Settings
from holdfast.store.conversations import ConversationNotes


class Harness(Protocol):
    """The part of a harness that the routes use."""

    @property
    def settings(self) -> Settings | None:
        """The settings; None until the harness runs."""

    @property
    def store(self) -> ChatStore:
        """The store. Raises HoldfastError unless the harness runs."""

    @property
    def embedder(self) -> Embedder:
        """The embedder of memory."""

    @property
    def stopping(self) -> bool:
        """Whether the harness is stopping."""

    @property
    def channels(self) -> Mapping[str, Channel]:
        """The channels of this process, by name."""

    @property
    def consumers(self) -> Sequence[Consumer]:
        """The consumers of this process; empty if it only serves."""


class ApiState:
    """State of one application, created once."""

    def __init__(self, harness: Harness, limits: Limits) -> None:
        assert harness.settings is not None, "a harness that runs has its settings"
        self.harness = harness
        self.settings = harness.settings
        self.limits = limits
        self.started_at = time.monotonic()
        self.knowledge: KnowledgeStore | None = None
        self.overview: CachedRead[Any] | None = None
        self.conversation_notes = ConversationNotes(limits.conversation_interval)
        self.counts = CachedRead(lambda: self.store.counts(), quick=limits.quick_query)
        self.outcomes = CachedRead(lambda: self.store.outcomes(INBOX), quick=limits.quick_query)
        self.current = Current(lambda: self.store, lambda: configured_routing(self.settings))
        self.uploads = asyncio.Lock()
        """Held while an upload is stored and counted."""
        self.known_lanes: dict[str, LanePolicy] = {}
        """Lane policies of all agents seen so far, including those that no process serves now."""

    @property
    def store(self) -> ChatStore:
        return self.harness.store

    async def directory(self) -> Directory:
        """Return the agents of all live processes and of the configuration.

        The harness of this process may have others, or none."""
        return await self.current.get()

    async def routing(self) -> Routing:
        routing = (await self.directory()).routing
        self.known_lanes |= routing.lanes
        return routing


def state_of(request: Request) -> ApiState:
    state: ApiState = request.app.state.api
    return state

"""What the routes answer for: a harness, its store, and the agents that all processes have announced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from starlette.requests import Request

from holdfast.api.cached_read import CachedRead
from holdfast.channels.base import Channel
from holdfast.memory.embedder import Embedder
from holdfast.memory.knowledge import KnowledgeStore
from holdfast.queue.consumer import Consumer
from holdfast.queue.event import INBOX
from holdfast.queue.store import Store
from holdfast.routing.directory import Current, Directory, configured
from holdfast.routing.router import Routing
from holdfast.settings import Settings
from holdfast.store.conversations import ConversationNotes


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
    def channels(self) -> Mapping[str, Channel]:
        """What it serves beside the API."""

    @property
    def consumers(self) -> Sequence[Consumer]:
        """What it works with, if it works."""


class ApiState:
    """One per application."""

    def __init__(self, harness: Harness) -> None:
        assert harness.settings is not None, "a harness that runs has its settings"
        self.harness = harness
        self.settings = harness.settings
        self.knowledge: KnowledgeStore | None = None
        self.conversation_notes = ConversationNotes()
        self.counts = CachedRead(lambda: self.store.counts())
        self.outcomes = CachedRead(lambda: self.store.outcomes(INBOX))
        self.current = Current(lambda: self.store, lambda: configured(self.settings))

    @property
    def store(self) -> Store:
        return self.harness.store

    async def directory(self) -> Directory:
        """The agents of all live processes and of the configuration; our own harness may have others, or none."""
        return await self.current.get()

    async def routing(self) -> Routing:
        return (await self.directory()).routing


def state_of(request: Request) -> ApiState:
    state: ApiState = request.app.state.api
    return state

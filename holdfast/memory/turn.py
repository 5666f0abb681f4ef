"""The memory of a turn, as an agent sees it: `turn.memory`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.errors import HoldfastError


class Memory(Protocol):
    """Memory of the agent that works a turn; holdfast.memory.recall implements it."""

    @property
    def relevant(self) -> Sequence[str]:
        """Observations that relate to the message, best first, within a budget of tokens."""

    async def search(self, query: str, *, max_results: int = 5) -> Sequence[str]:
        """Search for observations that relate to a question, best first."""

    async def recall(self, *, limit: int = 20) -> Sequence[str]:
        """Return the newest observations about the person who sent the message."""

    def observe(self, content: str, *, about: str = "USER") -> str:
        """Remember something. It is stored when the turn ends. Returns the observation's id."""


class NoMemory:
    """Memory of an agent that has none: every use raises an error that says what to do."""

    def __init__(
        self, reason: str = "this agent has no memory: register it with memory=True"
    ) -> None:
        self._reason = reason

    @property
    def relevant(self) -> Sequence[str]:
        raise HoldfastError(self._reason)

    async def search(self, query: str, *, max_results: int = 5) -> Sequence[str]:
        raise HoldfastError(self._reason)

    async def recall(self, *, limit: int = 20) -> Sequence[str]:
        raise HoldfastError(self._reason)

    def observe(self, content: str, *, about: str = "USER") -> str:
        raise HoldfastError(self._reason)


NO_MEMORY = NoMemory()

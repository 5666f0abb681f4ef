"""What agents remember: observations, and the index in which they are found again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Memory(Protocol):
    """What the agent of a turn remembers; see holdfast.recall."""

    relevant: Sequence[str]
    """What bears on the message, best first, within a budget."""

    async def search(self, query: str, *, max_results: int = 5) -> Sequence[str]:
        """What is known that bears on a question, best first."""

    async def recall(self, *, limit: int = 20) -> Sequence[str]:
        """What was observed last about the person who asks."""

    def observe(self, content: str, *, about: str = "USER") -> str:
        """Remember something; stored with the end of the turn. Returns its id."""

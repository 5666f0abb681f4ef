"""A knowledge store that fails when a test wants it."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.memory.knowledge import (
    KnowledgeScope,
    KnowledgeSource,
    KnowledgeStore,
)


class Moody:
    """A knowledge store that raises `error` while it is set."""

    def __init__(self, real: KnowledgeStore) -> None:
        self._real = real
        self.error: Exception | None = None
        self.upserts = 0

    async def upsert(self, scope: KnowledgeScope, documents: KnowledgeSource) -> int:
        if self.error is not None:
            raise self.error
        wanted = list(documents)
        self.upserts += len(wanted)
        return await self._real.upsert(scope, wanted)

    async def delete(
        self, scope: KnowledgeScope, ids: Iterable[str], *, version: int | None = None
    ) -> int:
        if self.error is not None:
            raise self.error
        return await self._real.delete(scope, ids, version=version)

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

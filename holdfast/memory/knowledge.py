"""The knowledge store: documents in scopes, searched by words and by meaning."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.errors import HoldfastError


class IndexUnavailable(HoldfastError):
    """The index cannot be reached right now; try again later."""


DEFAULT_AGENT_NAME = "memory.observation"
"""Agent name of the scopes that hold observations."""


@dataclass(frozen=True, slots=True)
class KnowledgeScope:
    """Owner of documents. A search never leaves its scope."""

    agent_name: str
    context_id: str

    def __post_init__(self) -> None:
        if not str(self.agent_name or "").strip() or not str(self.context_id or "").strip():
            raise ValueError("a scope needs an agent name and a context id")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeDocument:
    """A text to index. A lower version never replaces a higher one."""

    id: str
    content: str
    version: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", storable_text(self.id))
        object.__setattr__(self, "content", storable_text(self.content))

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.content.encode()).hexdigest()


def storable_text(text: str) -> str:
    """Replace characters that no engine can store: NUL and lone surrogates."""
    return (
        text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )


KnowledgeSource = Iterable[KnowledgeDocument]
"""Any iterable of documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOptions:
    """Options of `reindex`. `on_progress` is called with the number of documents done."""

    batch_size: int = 256
    on_progress: Callable[[int], None] | None = None

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError("batch_size must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A document that a search found; the score is between 0 and 1."""

    id: str
    content: str
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStatus:
    """Contents of an index, and its model."""

    documents: int
    model: str
    dimensions: int
    other_model: int = 0
    """Number of documents of another model; a working process indexes them anew."""
    vectors: bool = True
    scopes: tuple[KnowledgeScope, ...] = field(default=(), repr=False)


DEFAULT_OPTIONS = IndexOptions()


class KnowledgeStore(Protocol):
    """An index of documents. It may be outside the store's database, and unreachable."""

    async def upsert(self, scope: KnowledgeScope, documents: KnowledgeSource) -> int:
        """Index documents. Skips those that are unchanged or older. Returns the number written."""

    async def delete(
        self, scope: KnowledgeScope, ids: Iterable[str], *, version: int | None = None
    ) -> int:
        """Remove documents, except those with a newer version. Returns their number."""

    async def clear(self, scope: KnowledgeScope) -> int:
        """Remove a whole scope. Returns the number of documents."""

    async def reindex(
        self,
        scope: KnowledgeScope,
        source: KnowledgeSource,
        options: IndexOptions = DEFAULT_OPTIONS,
    ) -> int:
        """Replace the documents of a scope by those of a source, in one step for searches.

        Returns the number of documents."""

    async def search(
        self, scope: KnowledgeScope, query: str, max_results: int = 5, min_score: float = 0
    ) -> list[Hit]:
        """Return the best documents of the scope, best first."""

    async def documents(self, scope: KnowledgeScope) -> dict[str, str]:
        """Return the hash of every document of the scope, by id; `verify` compares them."""

    async def status(self) -> IndexStatus:
        """Return the contents of the index and its model."""

    async def close(self) -> None:
        """Release connections and other resources."""

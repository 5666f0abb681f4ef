"""The knowledge index: documents in scopes, found by words and by meaning."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.errors import HoldfastError


class IndexUnavailable(HoldfastError):
    """The index cannot be reached right now; what was asked may be tried again."""


DEFAULT_AGENT_NAME = "memory.observation"
"""The agent name under which observations are indexed."""


@dataclass(frozen=True, slots=True)
class KnowledgeScope:
    """Whose documents these are. A search never leaves its scope."""

    agent_name: str
    context_id: str

    def __post_init__(self) -> None:
        if not str(self.agent_name or "").strip() or not str(self.context_id or "").strip():
            raise ValueError("a scope needs the name of an agent and a context")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeDocument:
    """A text to be found. A lower version never replaces a higher one."""

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
    """The text without what no engine could store and no model read."""
    return (
        text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )


KnowledgeSource = Iterable[KnowledgeDocument]
"""Any iterable of documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOptions:
    """How documents are written; on_progress hears how many are done."""

    batch_size: int = 256
    on_progress: Callable[[int], None] | None = None

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError("batch_size must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A found document; the score is between 0 and 1."""

    id: str
    content: str
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStatus:
    """What an index holds and how it searches."""

    documents: int
    model: str
    dimensions: int
    other_model: int = 0
    """Documents of another model, which a process that works indexes anew by itself."""
    vectors: bool = True
    scopes: tuple[KnowledgeScope, ...] = field(default=(), repr=False)


DEFAULT_OPTIONS = IndexOptions()


class KnowledgeStore(Protocol):
    """Where documents are indexed; it may be elsewhere than the store, and away."""

    async def upsert(self, scope: KnowledgeScope, documents: KnowledgeSource) -> int:
        """Index documents; how many were written. One that is unchanged, or older than what is there, is left alone."""

    async def delete(
        self, scope: KnowledgeScope, ids: Iterable[str], *, version: int | None = None
    ) -> int:
        """Remove documents, unless theirs is a newer version; how many."""

    async def clear(self, scope: KnowledgeScope) -> int:
        """Remove a whole scope; how many documents."""

    async def reindex(
        self,
        scope: KnowledgeScope,
        source: KnowledgeSource,
        options: IndexOptions = DEFAULT_OPTIONS,
    ) -> int:
        """Make the scope hold what the source holds, in one step for those who search; how many."""

    async def search(
        self, scope: KnowledgeScope, query: str, max_results: int = 5, min_score: float = 0
    ) -> list[Hit]:
        """The best documents of the scope, best first."""

    async def documents(self, scope: KnowledgeScope) -> dict[str, str]:
        """The hash of every document of the scope, by id: what `verify` compares."""

    async def status(self) -> IndexStatus:
        """What is there."""

    async def close(self) -> None:
        """Let go of what is held."""

"""What agents remember, on whichever engine the store is: the ObservationStore protocol, and how to open it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, cast

from holdfast.memory.embedder import Embedder
from holdfast.memory.index import KnowledgeIndex
from holdfast.memory.knowledge import DEFAULT_AGENT_NAME as DEFAULT_AGENT_NAME
from holdfast.memory.observation import Observation, Subject
from holdfast.queue.pages import Page
from holdfast.queue.store import Store, Transaction


class ObservationStore(Protocol):
    """Where observations live. Every change writes its `memory` event in the same transaction, a caller's own too.

    What changes returns a position; `wait_indexed` of it gives read-your-writes."""

    @property
    def store(self) -> Store:
        """Where the observations and their events are."""

    async def save(self, observation: Observation, *, tx: Transaction | None = None) -> int:
        """Insert or replace; where the subject changed, the old one's index loses it."""

    async def delete(
        self, workspace_id: str, id: str, *, tx: Transaction | None = None
    ) -> int | None:
        """Gone for good; None where there is none."""

    async def soft_delete(
        self, workspace_id: str, id: str, *, tx: Transaction | None = None
    ) -> int | None:
        """Out of every search, kept until purged; None where there is none."""

    async def merge(
        self,
        winner: Observation | str,
        loser: Observation | str,
        merged: Observation,
        *,
        tx: Transaction | None = None,
    ) -> int:
        """Make one of two observations of a subject, named by themselves or their ids.

        The loser is deleted softly, the winner has the merged content. Refused for one and the same, for one that is
        not there, and where workspace or subject differ."""

    async def find_by_id(self, workspace_id: str, id: str) -> Observation | None:
        """One that is not deleted."""

    async def find_by_ids(self, workspace_id: str, ids: Sequence[str]) -> list[Observation]:
        """Those of them that are not deleted."""

    async def find_by_subject(
        self, workspace_id: str, subject_type: str, subject_id: str, *, limit: int | None = None
    ) -> list[Observation]:
        """All that are not deleted, newest first."""

    async def find_by_confidence_below(
        self, workspace_id: str, confidence: float, *, limit: int = 100
    ) -> list[Observation]:
        """The doubtful ones, most doubtful first."""

    async def find_subjects(
        self,
        workspace_id: str | None = None,
        *,
        after: tuple[str, str, str] | None = None,
        limit: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[Subject]:
        """List subjects with observations that are not deleted, by workspace, type and id; only those after `after`."""

    async def count(self, workspace_id: str | None = None) -> int:
        """How many are not deleted."""

    async def purge_soft_deleted_before(self, moment: datetime) -> int:
        """Remove what was soft-deleted earlier; how many."""

    async def delete_workspace(self, workspace_id: str) -> int:
        """Everything of a workspace; how many observations."""

    async def wait_indexed(self, position: int, *, within: float = 5.0) -> bool:
        """Whether the change at this position is in the index, waiting for it that many seconds."""

    async def has_pending(self, subject_key: str) -> bool:
        """Whether changes of a subject are on their way to the index."""

    async def tell_again(self, agent_name: str, model: str, *, limit: int = 1000) -> int:
        """Put a change for each document in this database's index that another model indexed, once; for how many."""

    async def forget(
        self, workspace_id: str, subject_type: str, subject_id: str, *, actor: str | None = None
    ) -> dict[str, int]:
        """Remove every trace of a subject, its own messages too, and return how many rows of each kind.

        An actor is recorded in the audit log, the subject there as a pseudonym."""


def open_observations(store: Store) -> ObservationStore:
    """The observations of a store."""
    if _is_sqlite(store):
        from holdfast.store.sqlite.observations import SqliteObservationStore
        from holdfast.store.sqlite.store import SqliteStore

        return SqliteObservationStore(cast(SqliteStore, store))
    from holdfast.store.postgres.observations import PostgresObservationStore
    from holdfast.store.postgres.store import PostgresStore

    return PostgresObservationStore(cast(PostgresStore, store))


def open_knowledge(store: Store, embedder: Embedder | None = None) -> KnowledgeIndex:
    """The knowledge index in a store's database."""
    if _is_sqlite(store):
        from holdfast.store.sqlite.knowledge import SqliteKnowledge
        from holdfast.store.sqlite.store import SqliteStore

        return KnowledgeIndex(SqliteKnowledge(cast(SqliteStore, store)), embedder)
    from holdfast.store.postgres.knowledge import PostgresKnowledge
    from holdfast.store.postgres.store import PostgresStore

    return KnowledgeIndex(PostgresKnowledge(cast(PostgresStore, store)), embedder)


def _is_sqlite(store: Store) -> bool:
    """By what it can do: a store may be wrapped."""
    return hasattr(store, "write")

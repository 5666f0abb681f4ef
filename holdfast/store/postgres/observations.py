"""Observations on PostgreSQL. SQL functions do the work, so that psql can do the same."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdfast.memory.observation import (
    MAX_LIMIT,
    Observation,
    Subject,
    check_limit,
    check_merge,
    subject_key,
)
from holdfast.queue.pages import Page
from holdfast.queue.store import Store, Transaction
from holdfast.store.engine import postgres_engine
from holdfast.store.memory import wait_settled
from holdfast.store.payload import dump, parse
from holdfast.store.postgres.rows import observation_row
from holdfast.store.readable import OBSERVATION, observation_of

_COLUMNS = ", ".join(OBSERVATION)
FIRST = ("", "", "")


class PostgresObservationStore:
    """The observations of a PostgreSQL store."""

    def __init__(self, store: Store) -> None:
        if store is None:
            raise ValueError("an observation store needs the store that holds it")
        self.store = store
        self._engine = postgres_engine(store)

    async def save(self, observation: Observation, *, tx: Transaction | None = None) -> int:
        return int(
            await self._engine.connections.value(
                "select agent.save_observation(%s)", (dump(observation_row(observation)),), tx
            )
        )

    async def delete(
        self, workspace_id: str, id: str, *, tx: Transaction | None = None
    ) -> int | None:
        position: int | None = await self._engine.connections.value(
            "select agent.remove_observation(%s, %s)", (workspace_id, id), tx
        )
        return position

    async def soft_delete(
        self, workspace_id: str, id: str, *, tx: Transaction | None = None
    ) -> int | None:
        statement = "select agent.remove_observation(%s, %s, true)"
        position: int | None = await self._engine.connections.value(
            statement, (workspace_id, id), tx
        )
        return position

    async def merge(
        self,
        winner: Observation | str,
        loser: Observation | str,
        merged: Observation,
        *,
        tx: Transaction | None = None,
    ) -> int:
        arguments = (*check_merge(winner, loser, merged), dump(observation_row(merged)))
        return int(
            await self._engine.connections.value(
                "select agent.merge_observations(%s, %s, %s)", arguments, tx
            )
        )

    async def find_by_id(self, workspace_id: str, id: str) -> Observation | None:
        found = await self.find_by_ids(workspace_id, [id])
        return found[0] if found else None

    async def find_by_ids(self, workspace_id: str, ids: Sequence[str]) -> list[Observation]:
        return await self._find(
            "workspace_id = %s and id = any (%s) order by id", (workspace_id, list(ids))
        )

    async def find_by_subject(
        self, workspace_id: str, subject_type: str, subject_id: str, *, limit: int | None = None
    ) -> list[Observation]:
        return await self._find(
            "workspace_id = %s and subject_type = %s and subject_id = %s"
            " order by version desc limit %s",
            (workspace_id, subject_type.upper(), subject_id, check_limit(limit)),
        )

    async def find_by_confidence_below(
        self, workspace_id: str, confidence: float, *, limit: int = 100
    ) -> list[Observation]:
        return await self._find(
            "workspace_id = %s and confidence < %s order by confidence, id limit %s",
            (workspace_id, confidence, check_limit(limit)),
        )

    async def _find(self, condition: str, arguments: tuple[Any, ...]) -> list[Observation]:
        rows = await self._engine.connections.rows(
            f"select {_COLUMNS} from agent.observation where deleted_at is null and {condition}",
            arguments,
        )
        return [_observation(row) for row in rows]

    async def find_subjects(
        self,
        workspace_id: str | None = None,
        *,
        after: tuple[str, str, str] | None = None,
        limit: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[Subject]:
        most = check_limit(limit) or MAX_LIMIT
        found = await self._engine.connections.page(
            "select workspace_id, subject_type, subject_id, count(*) from agent.observation"
            " where deleted_at is null and (%s::text is null or workspace_id = %s)"
            " and (workspace_id, subject_type, subject_id) > (%s, %s, %s)"
            " group by workspace_id, subject_type, subject_id"
            " order by workspace_id, subject_type, subject_id limit %s",
            (workspace_id, workspace_id, *(after or FIRST), most),
            most,
            most_bytes,
        )
        return found.map(lambda row: Subject(*row))

    async def count(self, workspace_id: str | None = None) -> int:
        return sum(subject.observations for subject in await self.find_subjects(workspace_id))

    async def purge_soft_deleted_before(self, moment: datetime) -> int:
        return int(
            await self._engine.connections.value("select agent.purge_observations(%s)", (moment,))
        )

    async def delete_workspace(self, workspace_id: str) -> int:
        return int(
            await self._engine.connections.value(
                "select count(agent.remove_observation(workspace_id, id)) from"
                " (select workspace_id, id from agent.observation"
                " where workspace_id = %s order by id for update) as observation",
                (workspace_id,),
            )
        )

    async def wait_indexed(self, position: int, *, within: float = 5.0) -> bool:
        return await wait_settled(self.store, position, within)

    async def has_pending(self, subject_key: str) -> bool:
        return bool(
            await self._engine.connections.value(
                "select exists (select from agent.event where queue = 'memory' and lane = %s)",
                (subject_key,),
            )
        )

    async def requeue_outdated(self, agent_name: str, model: str, *, limit: int = 1000) -> int:
        return int(
            await self._engine.connections.value(
                "select agent.tell_again(%s, %s, %s)", (agent_name, model, limit)
            )
        )

    async def forget(
        self, workspace_id: str, subject_type: str, subject_id: str, *, actor: str | None = None
    ) -> dict[str, int]:
        key = subject_key(workspace_id, subject_type, subject_id)
        rows = await self._engine.connections.rows(
            "select removed, agent.add_audit(%s, 'forgot', agent.pseudonym(%s), removed)"
            " from agent.forget_subject(%s, %s, %s) as removed",
            (actor, key, workspace_id, subject_type, subject_id),
        )
        return dict(parse(rows[0][0]))


async def save_unless_changed(store: Store, observation: Observation) -> bool:
    """Save an observation unless its stored version is another by now. Returns whether it did."""
    row = dump(observation_row(observation))
    saved = await postgres_engine(store).connections.rows(
        # Locked: of two callers with one version, the second sees the version of the first.
        "with known as materialized"
        " (select from agent.observation where workspace_id = %s and id = %s and version = %s"
        " and deleted_at is null for update)"
        " select agent.save_observation(%s) from known",
        (observation.workspace_id, observation.id, observation.version, row),
    )
    return bool(saved)


def _observation(row: tuple[Any, ...]) -> Observation:
    return observation_of(dict(zip(OBSERVATION, row, strict=True)))

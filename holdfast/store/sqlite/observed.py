"""An observation as a row, within a transaction of the caller's; its event is the caller's to write."""

from __future__ import annotations

from typing import Any

from holdfast.memory.observation import Observation
from holdfast.store.payload import dump, storable
from holdfast.store.sqlite.queries import load
from holdfast.store.sqlite.writer import Writing
from holdfast.telemetry.redaction import redact_prose

SQL = load()


def keep(db: Writing, observation: Observation) -> dict[str, Any]:
    """Insert or replace; the values that were written."""
    params = _params_of(observation) | {"now": db.now, "version": next_version(db)}
    db.connection.execute(SQL["save_observation"], params)
    return params


def next_version(db: Writing) -> int:
    version: int
    [version] = db.connection.execute(SQL["next_observation_version"]).fetchone()
    return version


def _params_of(observation: Observation) -> dict[str, Any]:
    return {
        "workspace_id": observation.workspace_id,
        "id": observation.id,
        "subject_type": observation.subject_type,
        "subject_id": observation.subject_id,
        "observer": observation.observer,
        "type": observation.type.value,
        "content": storable(redact_prose(observation.content)),
        "source_message_ids": dump(list(observation.source_message_ids)),
        "confidence": observation.confidence,
    }

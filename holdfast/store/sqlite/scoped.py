"""Conditions on events in SQLite, for callers who may not see everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.queue.pages import Measure, Page
from holdfast.store.payload import dump
from holdfast.store.scoped import Dialect
from holdfast.store.sqlite.rows import finished_of, listed_of, micros
from holdfast.store.sqlite.store import SqliteStore

# A payload that was changed by hand may be no JSON: it is in no channel and of no agent.
_CHANNEL = "iif(json_extract(event, '$.kind') is null, 'slack', coalesce(json_extract(event, '$.channel'), ''))"
_AGENT = "iif(queue = 'inbox', target, coalesce(json_extract(event, '$.agent'), ''))"
CONDITIONS = {
    "sent_by": "sent_by = :sent_by",
    "channels": f"json_valid(event) and {_CHANNEL} in (select value from json_each(:channels))",
    "agents": f"json_valid(event) and {_AGENT} in (select value from json_each(:agents))",
}


def sqlite_dialect(store: SqliteStore) -> Dialect:
    async def rows(statement: str, params: dict[str, Any]) -> Sequence[Any]:
        return await store.read(lambda connection: connection.execute(statement, params).fetchall())

    async def page(
        statement: str, params: dict[str, Any], limit: int, most_bytes: int | None
    ) -> Page[Any]:
        measure = Measure(limit, most_bytes)
        return await store.read(
            lambda connection: measure.page(connection.execute(statement, params))
        )

    return Dialect(
        schema="",
        mark=":{}",
        conditions=CONDITIONS,
        rows=rows,
        page=page,
        ids="id in (select value from json_each(:ids))",
        moment=micros,
        array=dump,
        event=listed_of,
        finished=finished_of,
    )

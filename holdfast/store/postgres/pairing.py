"""Pairings on PostgreSQL."""

from __future__ import annotations

from typing import Any

from holdfast.store.pairing import (
    EXPIRES_AFTER,
    MOST_REQUESTS,
    PAIRING,
    Pairing,
    PairingRequest,
    pairing_of,
)
from holdfast.store.postgres.store import PostgresStore

_COLUMNS = ", ".join(PAIRING)
_IS_LIVE = "(expires_at is null or expires_at > agent.now())"


class PostgresPairings:
    """The pairings of a PostgreSQL store."""

    def __init__(self, store: PostgresStore) -> None:
        self._connections = store.connections

    async def find(self, channel: str, sender_id: str) -> Pairing | None:
        where = f"where channel = %s and sender_id = %s and {_IS_LIVE}"
        return await self._one(f"from agent.pairing {where}", channel, sender_id)

    async def request(self, request: PairingRequest) -> Pairing | None:
        return await self._one(
            "from agent.request_pairing(%s, %s, %s, %s, %s, %s, %s)",
            request.channel,
            request.sender_id,
            request.sender,
            request.subject,
            request.code,
            EXPIRES_AFTER,
            MOST_REQUESTS,
        )

    async def requests(self) -> list[Pairing]:
        where = f"where code is not null and {_IS_LIVE}"
        return await self._all(f"from agent.pairing {where} order by requested_at, code")

    async def list_approved(self) -> list[Pairing]:
        where = "where approved_at is not null"
        return await self._all(f"from agent.pairing {where} order by channel, sender_id")

    async def approve(self, code: str, *, actor: str | None = None) -> Pairing | None:
        return await self._one("from agent.approve_pairing(%s, %s)", code, actor)

    async def revoke(self, channel: str, sender_id: str, *, actor: str | None = None) -> bool:
        rows = await self._connections.rows(
            "select agent.revoke_pairing(%s, %s, %s)", (channel, sender_id, actor)
        )
        return bool(rows[0][0])

    async def _one(self, source: str, *values: Any) -> Pairing | None:
        found = await self._all(source, *values)
        return found[0] if found else None

    async def _all(self, source: str, *values: Any) -> list[Pairing]:
        rows = await self._connections.rows(f"select {_COLUMNS} {source}", values)
        return [pairing_of(row) for row in rows]

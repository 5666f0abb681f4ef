"""Pairing: strangers on a channel wait with a code until somebody approves it."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from holdfast.message import subject_of
from holdfast.queue.pages import Page
from holdfast.queue.store import Store
from holdfast.store.engine import is_sqlite, postgres_engine, sqlite_engine
from holdfast.store.scoped import Dialect, dialect_of
from holdfast.telemetry.printable import printable
from holdfast.telemetry.redaction import redact

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EXPIRES_AFTER = timedelta(hours=1)
MOST_REQUESTS = 100
"""Open requests of one channel; further strangers get no code until one is settled or expires."""
NAME_LENGTH = 100
ID_LENGTH = 200

CODE_LENGTH = 8
CODE_SIGNS = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
"""Letters and digits that cannot be mistaken for one another."""

PAIRING = (
    *("channel", "sender_id", "sender", "code", "requested_at"),
    *("expires_at", "approved_at", "approved_by"),
)
"""Columns of a pairing, in the order in which both engines select them."""
MOMENTS = ("requested_at", "expires_at", "approved_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """A person on a channel: approved, or waiting with a code."""

    channel: str
    sender_id: str
    sender: str
    code: str | None
    requested_at: datetime
    expires_at: datetime | None
    approved_at: datetime | None
    approved_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingRequest:
    """A stranger who asks for access, with the code to approve."""

    channel: str
    sender_id: str
    sender: str
    subject: str
    code: str


class Pairings(Protocol):
    """The pairings of a store. Expired requests count as absent."""

    async def find(self, channel: str, sender_id: str) -> Pairing | None:
        """Return the pairing of a person, approved or requested; None if there is none."""

    async def request(self, request: PairingRequest) -> Pairing | None:
        """Store a request unless this person has a pairing, and return the person's pairing.

        Returns None if the channel has too many open requests, or the code is taken."""

    async def requests(self) -> list[Pairing]:
        """List open requests, oldest first."""

    async def list_approved(self) -> list[Pairing]:
        """List approved people, by channel and id."""

    async def approve(self, code: str, *, actor: str | None = None) -> Pairing | None:
        """Admit the person with this code. Returns None if it is unknown or has expired."""

    async def revoke(self, channel: str, sender_id: str, *, actor: str | None = None) -> bool:
        """Remove a person or a request. Returns whether there was one."""


def open_pairings(store: Store) -> Pairings:
    """Return the pairings in a store's database."""
    if is_sqlite(store):
        from holdfast.store.sqlite.access import SqlitePairings

        return SqlitePairings(sqlite_engine(store))
    from holdfast.store.postgres.pairing import PostgresPairings

    return PostgresPairings(postgres_engine(store))


async def page_of_approved(
    store: Store, after: tuple[str, str], *, limit: int, most_bytes: int | None = None
) -> Page[Pairing]:
    """List approved people by channel and id; only those after a channel and an id."""
    dialect = dialect_of(store)
    mark = dialect.mark.format
    params = {"channel": after[0], "sender_id": after[1], "limit": limit}
    found = await dialect.page(
        f"select {', '.join(PAIRING)} from {dialect.schema}pairing where approved_at is not null"
        f" and (channel, sender_id) > ({mark('channel')}, {mark('sender_id')})"
        f" order by channel, sender_id limit {mark('limit')}",
        params,
        limit,
        most_bytes,
    )
    return found.map(lambda row: pairing_of(_with_datetimes(row, dialect)))


def _with_datetimes(row: Iterable[Any], dialect: Dialect) -> Iterable[Any]:
    """Return the values of a row, with times as datetimes."""
    for name, value in zip(PAIRING, row, strict=True):
        is_moment = name in MOMENTS and value is not None
        yield dialect.to_datetime(value) if is_moment else value


async def request_pairing(
    pairings: Pairings, channel: str, sender_id: str, name: str
) -> Pairing | None:
    """Store a request with a new code unless this person has a pairing; return the pairing.

    Returns None if the channel has too many open requests."""
    about = {"kind": "message", "channel": channel, "sender_id": sender_id}
    request = PairingRequest(
        channel=channel,
        sender_id=sender_id,
        sender=clean_name(name),
        subject=subject_of(about),
        code=new_code(),
    )
    # If the code is taken, which happens once in a billion years, draw another one.
    return await pairings.request(request) or await pairings.request(
        replace(request, code=new_code())
    )


def new_code() -> str:
    return "".join(secrets.choice(CODE_SIGNS) for _ in range(CODE_LENGTH))


def parse_code(text: str) -> str:
    """Return a code as somebody typed it: in any case, with spaces or hyphens."""
    return text.translate({ord(sign): None for sign in " -"}).upper()


def clean_name(name: str) -> str:
    """Return the name that a stranger chose, on one short line without secrets."""
    return redact(" ".join(printable(name).split()))[:NAME_LENGTH]


def pairing_of(row: Iterable[Any]) -> Pairing:
    """Return the pairing of a row whose times are datetimes."""
    return Pairing(**dict(zip(PAIRING, row, strict=True)))


def describe_request(request: Pairing) -> dict[str, Any]:
    """Return an open request as commands and the API show it."""
    return {
        "code": request.code,
        **_describe_sender(request),
        "requestedAt": _millis(request.requested_at),
        "expiresAt": _millis(request.expires_at),
    }


def describe_person(person: Pairing) -> dict[str, Any]:
    """Return an approved person as commands and the API show them."""
    approved = {"approvedAt": _millis(person.approved_at), "approvedBy": person.approved_by}
    return _describe_sender(person) | approved


def _describe_sender(pairing: Pairing) -> dict[str, Any]:
    return {
        "channel": pairing.channel,
        "sender": pairing.sender,
        "senderId": pairing.sender_id,
    }


def _millis(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - EPOCH) // timedelta(milliseconds=1)

"""Many events at once: their keys and lanes by a call, the events by COPY, which the server reads while we write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from struct import Struct

from holdfast.event import INBOX, NewEvent, Record
from holdfast.store.activity import received_frame
from holdfast.store.payload import dump
from holdfast.store.postgres.connections import Connection, Connections
from holdfast.store.postgres.wire import Names, names, record

BULK = 200
"""So many events are quicker by COPY; fewer are quicker in one call."""

RESERVE = "select ids, heads, now, default_agent from agent.reserve(%b::text[], %b::text[], %b::text[])"
FIELDS = 13
COPY = """copy agent.event
( event_ts, vt, created_at, updated_at, id, root_id, head, queue, target, lane, message_id, max_attempts, event )
from stdin (format binary)"""
PART = 200
"""Rows that are written together."""

# COPY's binary format: a signature, no flags, no extension; each row as its number of fields, each field with its size.
_BEGIN = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = b"\xff\xff"
_NULL = b"\xff\xff\xff\xff"
_JSONB_VERSION = b"\1"
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_size = Struct(">i").pack
_start = Struct(">hiqiqiqiqiqiqi?").pack
_number = Struct(">ii").pack

_Row = tuple[int, bool, Names, NewEvent]


def is_bulk(events: Sequence[NewEvent]) -> bool:
    """What names a root, or times of its own, whose meaning the database's clock decides, goes another way."""
    return len(events) >= BULK and all(new.vt is new.event_ts is None and new.root_id is None for new in events)


async def put_bulk(connections: Connections, events: Sequence[NewEvent], records: Sequence[Record]) -> list[int | None]:
    """All or none, in one transaction; the ids in order, None where the message id is known already."""

    async def put() -> list[int | None]:
        async with connections.transaction() as connection:
            ids = await _put(connection, events)
            if records:
                await connection.execute("select agent.record(%s)", (dump([record(line) for line in records]),))
        return ids

    return await connections.again(put)


async def _put(connection: Connection, events: Sequence[NewEvent]) -> list[int | None]:
    named = [names(new) for new in events]
    queues, _, lanes, message_ids = map(list, zip(*named, strict=True))
    cursor = await connection.execute(RESERVE, (queues, lanes, message_ids))
    [(ids, heads, now, default_agent)] = await cursor.fetchall()
    new = [given for given in zip(ids, heads, named, events, strict=True) if given[0] is not None]
    frames: list[str] = []
    async with cursor.copy(COPY) as copy:
        await copy.write(_BEGIN)
        for start in range(0, len(new), PART):
            part = new[start : start + PART]
            await copy.write(b"".join(_fields(part, now)))
            if default_agent is not None:
                frames += _frames(part, default_agent)
        await copy.write(_END)
    if frames:
        await cursor.execute("select agent.tell(%s)", (f"[{','.join(frames)}]",))
    return list(ids)


def _frames(part: Iterable[_Row], default_agent: str) -> Iterator[str]:
    for id, _, (queue, target, _, message_id), new in part:
        if queue == INBOX:
            yield dump(received_frame(id, message_id, target or default_agent, new.event))


def _fields(part: Iterable[_Row], now: datetime) -> Iterator[bytes]:
    at = (now - _EPOCH) // timedelta(microseconds=1)
    for id, head, named, event in part:
        yield _start(FIELDS, 8, at, 8, at, 8, at, 8, at, 8, id, 8, id, 1, head)
        for name in named:
            if name is None:
                yield _NULL
            else:
                encoded = name.encode()
                yield _size(len(encoded))
                yield encoded
        yield _NULL if event.max_attempts is None else _number(4, event.max_attempts)
        payload = dump(event.event).encode()
        yield _size(len(payload) + 1)
        yield _JSONB_VERSION
        yield payload

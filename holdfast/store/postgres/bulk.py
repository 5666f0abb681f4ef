"""Many events at once: their keys and lanes by a call, the events by COPY, which the server reads while we write."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import chain, islice
from struct import Struct
from typing import NamedTuple

from holdfast.queue.event import INBOX, NewEvent
from holdfast.queue.record import Record
from holdfast.store.activity import received_frame
from holdfast.store.payload import dump, storable_name
from holdfast.store.postgres.connections import Connection, Connections
from holdfast.store.postgres.wire import TextArray, record

BULK = 200
"""So many events are quicker by COPY; fewer are quicker in one call."""

RESERVE = "select ids, heads, now, default_agent from agent.reserve(%b, %b, %b)"
FIELDS = 13
COPY = """copy agent.event
( event_ts, vt, created_at, updated_at, id, root_id, head, queue, target, lane, message_id, max_attempts, event )
from stdin (format binary)"""
PART = 200
"""Rows that are written together."""
AHEAD = 16 * 1024**2
"""Bytes of payloads that wait for the server's answer."""

# COPY's binary format: a signature, no flags, no extension; each row as its number of fields, each field with its size.
# An array has its elements as a row has its fields.
_BEGIN = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = b"\xff\xff"
_NULL = b"\xff\xff\xff\xff"
_JSONB_VERSION = b"\1"
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_size = Struct(">i").pack
_times = Struct(">hiqiqiqiqi").pack
_own = Struct(">qiqi?").pack
_number = Struct(">ii").pack


class _Names(NamedTuple):
    """Fields of a row that are texts, by column."""

    queues: list[bytes]
    targets: list[bytes]
    lanes: list[bytes]
    message_ids: list[bytes]


class _Reserved(NamedTuple):
    """What agent.reserve tells."""

    ids: list[int | None]
    heads: list[bool]
    now: datetime
    default_agent: str | None


def is_bulk(events: Sequence[NewEvent]) -> bool:
    """Whether events may go by COPY: many, without a root, a sender or times of their own."""
    if len(events) < BULK:
        return False
    return all(new.vt is new.event_ts is None and is_plain(new) for new in events)


def is_plain(new: NewEvent) -> bool:
    """Whether the event has none of the columns that only agent.put writes."""
    return (new.root_id or new.sent_by or new.routed_text or new.routed_team) is None


async def put_bulk(
    connections: Connections, events: Sequence[NewEvent], records: Sequence[Record]
) -> list[int | None]:
    """All or none, in one transaction; the ids in order, None where the message id is known already."""

    async def put() -> list[int | None]:
        async with connections.transaction() as connection:
            ids = await _put(connection, events)
            if records:
                await connection.execute(
                    "select agent.record(%s)", (dump([record(line) for line in records]),)
                )
        return ids

    return await connections.again(put)


async def _put(connection: Connection, events: Sequence[NewEvent]) -> list[int | None]:
    names = _names(events)
    # The server's time is the longer one: what can be made without its answer is made while it works. Both end before
    # one's error is told, or the transaction would end under the other.
    reserved, ahead = await asyncio.gather(
        _reserve(connection, names), _payloads(events), return_exceptions=True
    )
    if isinstance(reserved, BaseException):
        raise reserved
    if isinstance(ahead, BaseException):
        raise ahead
    rows = _rows(reserved, names, chain(ahead, map(_payload, events[len(ahead) :])))
    frames, told = _frames(reserved, events), list[str]()
    async with connection.cursor().copy(COPY) as copy:
        await copy.write(_BEGIN)
        while part := b"".join(chain.from_iterable(islice(rows, PART))):
            await copy.write(part)
            told += islice(frames, PART)
        await copy.write(_END)
    if told:
        await connection.execute("select agent.tell(%s)", (f"[{','.join(told)}]",))
    return reserved.ids


async def _reserve(connection: Connection, names: _Names) -> _Reserved:
    arrays = [TextArray.of(column) for column in (names.queues, names.lanes, names.message_ids)]
    cursor = await connection.execute(RESERVE, arrays, binary=True)
    [row] = await cursor.fetchall()
    return _Reserved(*row)


async def _payloads(events: Sequence[NewEvent]) -> list[bytes]:
    """Those of the first events."""
    payloads: list[bytes] = []
    size = 0
    for new in events:
        payloads.append(_payload(new))
        size += len(payloads[-1])
        if size > AHEAD:
            break
        if len(payloads) % PART == 0:
            await asyncio.sleep(0)
    return payloads


def _names(events: Sequence[NewEvent]) -> _Names:
    few = cache(_text)
    return _Names(
        [few(new.queue) for new in events],
        [few(new.target) for new in events],
        [_text(new.lane) for new in events],
        [_text(new.message_id) for new in events],
    )


def _text(name: str | None) -> bytes:
    stored = storable_name(name)
    if stored is None:
        return _NULL
    encoded = stored.encode()
    return _size(len(encoded)) + encoded


def _payload(new: NewEvent) -> bytes:
    """The last two fields."""
    attempts = _NULL if new.max_attempts is None else _number(4, new.max_attempts)
    payload = dump(new.event).encode()
    return b"".join((attempts, _size(len(payload) + 1), _JSONB_VERSION, payload))


def _rows(
    reserved: _Reserved, names: _Names, payloads: Iterator[bytes]
) -> Iterator[tuple[bytes, ...]]:
    """Each new event in pieces."""
    at = (reserved.now - _EPOCH) // timedelta(microseconds=1)
    times = _times(FIELDS, 8, at, 8, at, 8, at, 8, at, 8)
    given = zip(reserved.ids, reserved.heads, *names, payloads, strict=True)
    for id, head, queue, target, lane, message_id, payload in given:
        if id is not None:
            yield times, _own(id, 8, id, 1, head), queue, target, lane, message_id, payload


def _frames(reserved: _Reserved, events: Sequence[NewEvent]) -> Iterator[str]:
    if reserved.default_agent is None:
        return
    for id, new in zip(reserved.ids, events, strict=True):
        if id is not None and new.queue == INBOX:
            yield dump(
                received_frame(id, new.message_id, new.target or reserved.default_agent, new.event)
            )

"""Measure what a message and its response cost the server: transactions and bytes of WAL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg

from bench.engine import Engine
from bench.mention import PAYLOAD
from bench.process import run_process
from bench.row import Row
from bench.scale import Scale
from holdfast.message import Payload
from holdfast.queue.event import INBOX, NewEvent, new_id
from holdfast.store import Store, open_store

CALLERS = 64
SETTLING_SECONDS = 3.0
POLL_SECONDS = 0.01
ECHO = ("--workers", str(CALLERS))
WAL = "select pg_current_wal_insert_lsn() - '0/0'"


async def cost(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    """Compare a caller that waits for each answer with many of them at once."""
    if engine.name != "postgres":
        return
    with engine.fresh() as url, run_process("work", url, *ECHO):
        async with open_store(url) as store:
            # Do not count the start.
            await asyncio.sleep(SETTLING_SECONDS)
            alone = await _measure(engine, url, store, 1, scale.turns)
            together = await _measure(engine, url, store, CALLERS, scale.puts)
    for nth, what in enumerate(("transactions per message", "bytes of WAL per message")):
        yield Row(
            store=engine.name,
            what=f"{what}, {CALLERS} callers",
            measured=together[nth],
            against="one message at a time",
            beside=alone[nth],
            unit="",
        )


async def _measure(
    engine: Engine, url: str, store: Store, callers: int, messages: int
) -> tuple[float, float]:
    """Return the transactions and the bytes of WAL of each message."""
    share = messages // callers
    transactions, wal = engine.transactions(url) or 0, _wal(url)
    await asyncio.gather(*[_ask(store, share) for _ in range(callers)])
    # Servers count a session's transactions once a second.
    await asyncio.sleep(SETTLING_SECONDS)
    ended = (engine.transactions(url) or 0) - transactions
    return ended / (share * callers), (_wal(url) - wal) / (share * callers)


async def _ask(store: Store, count: int) -> None:
    """Put messages, each when the one before has ended."""
    for _ in range(count):
        name = new_id("cost")
        new = NewEvent(event=_message(name), queue=INBOX, lane=f"cost/{name}", message_id=name)
        [id] = await store.put([new])
        assert id is not None
        while await store.live(id) is not None:  # noqa: ASYNC110 - another process ends it
            await asyncio.sleep(POLL_SECONDS)


def _message(name: str) -> Payload:
    return {"kind": "message", "channel": "api", "message": PAYLOAD["text"], "message_id": name}


def _wal(url: str) -> int:
    with psycopg.connect(url) as connection:
        [position] = connection.execute(WAL).fetchone() or (0,)
    return int(position)

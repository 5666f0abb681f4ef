"""The pool under the PostgreSQL store."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from holdfast.store.postgres.connections import Connections, translate_errors
from holdfast.testing.databases import Databases


async def test_a_cancelled_wait_for_a_connection_stays_cancelled(databases: Databases) -> None:
    with databases.fresh("postgres") as url:
        async with Connections(url, clock=None, size=1) as connections:
            # The pool hands the connection over in a few turns of the loop: cancel in each of them.
            for turns in range(60):
                ended = await _cancelled_after(connections, turns)
                assert ended, (
                    f"the cancellation {turns} turns after the connection came free was swallowed"
                )


async def test_a_cancellation_that_meets_an_error_of_the_server_stays_one() -> None:
    async def ask() -> None:
        with translate_errors():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                # The driver does so if the server is gone before the cancellation reaches it.
                raise psycopg.OperationalError("terminating connection") from None

    task = asyncio.create_task(ask())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def _cancelled_after(connections: Connections, turns: int) -> bool:
    async def ask_and_stay() -> None:
        await connections.value("select 1")
        await asyncio.Event().wait()

    async with connections.transaction():
        task = asyncio.create_task(ask_and_stay())
        await asyncio.sleep(0.01)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    ended, _ = await asyncio.wait([task], timeout=1)
    task.cancel()
    return bool(ended)

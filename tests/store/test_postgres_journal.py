"""The journal on PostgreSQL: a record and the end of its turn wait for each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from holdfast.errors import LeaseLost
from holdfast.queue.journal import Journal, JournalEntry, Step, Write
from holdfast.queue.outcome import Done, Settled
from holdfast.queue.store import Store
from holdfast.store import open_store
from tests.conformance.steps import claim_one, end, put
from tests.steps import until

STEP = Step(key="a", state="done", attempt=1, result="1")
ENDS = {
    "completed": "select agent.delete_event(%s)",
    "cancelled": "select agent.cancel_event(%s)",
    "taken": "update agent.event set fence = fence + 1 where id = %s",
}
WAITING = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"


@pytest_asyncio.fixture
async def postgres(postgres_url: str) -> AsyncIterator[Store]:
    async with open_store(postgres_url) as store:
        yield store


async def is_waiting(connection: psycopg.AsyncConnection[tuple[Any, ...]]) -> bool:
    """Return whether another session waits for a lock of this one."""
    await connection.execute("select pg_stat_clear_snapshot()")
    return await (await connection.execute(WAITING)).fetchone() == (1,)


@pytest.mark.parametrize("alone", [True, False], ids=["one step", "a step and a text"])
@pytest.mark.parametrize("how", ENDS)
async def test_a_record_waits_for_the_end_of_its_turn_and_is_refused(
    postgres: Store, postgres_url: str, how: str, alone: bool
) -> None:
    await put(postgres)
    turn = await claim_one(postgres)
    entry = JournalEntry(turn=turn, steps=[STEP], write=None if alone else Write(1, 0, "late"))
    async with await psycopg.AsyncConnection.connect(postgres_url) as other:
        await other.execute(ENDS[how].encode(), [turn.primary.id])
        record = asyncio.ensure_future(postgres.record(entry))
        await until(lambda: is_waiting(other))
        assert not record.done()
        await other.commit()
        with pytest.raises(LeaseLost):
            await record
    assert await postgres.journal(turn.primary.id) == Journal()


async def test_the_end_of_a_turn_waits_for_a_record(postgres: Store, postgres_url: str) -> None:
    await put(postgres)
    turn = await claim_one(postgres)
    step = '{"key": "a", "kind": "step", "state": "done", "attempt": 1, "events": 1}'
    async with await psycopg.AsyncConnection.connect(postgres_url) as other:
        arguments = [turn.primary.id, turn.fence, step]
        await other.execute("select agent.record_step(%s, %s, %s)", arguments)
        settle = asyncio.ensure_future(end(postgres, turn, Done()))
        await until(lambda: is_waiting(other))
        assert not settle.done()
        await other.commit()
        assert await settle == Settled(turn)
    assert [*(await postgres.journal(turn.primary.id)).steps] == ["a"]


async def test_a_signal_waits_for_the_settle_of_the_turn(
    postgres: Store, postgres_url: str
) -> None:
    """A turn that snoozes just now is resumed by a signal that finds its wait."""
    await put(postgres)
    turn = await claim_one(postgres)
    wait = Step(key="paid", state="started", attempt=1, kind="signal", signal="paid")
    await postgres.record(JournalEntry(turn=turn, steps=[wait]))
    snooze = """select agent.settle(jsonb_build_array(jsonb_build_object(
        'ids', array[%s], 'fence', %s::int8, 'outcome', 'snooze', 'delay', '1 day')))"""
    async with await psycopg.AsyncConnection.connect(postgres_url) as other:
        await other.execute(snooze, [turn.primary.id, turn.fence])
        signal = asyncio.ensure_future(postgres.signal(turn.primary.id, "paid", 3))
        await until(lambda: is_waiting(other))
        await other.commit()
        assert await signal
    assert (await claim_one(postgres)).ids == turn.ids

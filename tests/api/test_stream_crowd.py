"""The event stream with many clients: all see the same frames in the same order.

Other processes work, clients reconnect, and a transaction commits late."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest

from bench.event_stream import Frame, watching
from holdfast import AgentHarness, NewEvent, Turn
from holdfast.settings import Settings
from holdfast.store import open_store
from tests.api.serving import LOOPBACK, serving, token_of

CROWD = 200
MESSAGES = 60
HELD_OPEN = 3.0
TIMEOUT = 240
SLACK = '{"type":"app_mention","channel":"C","ts":"1.5","user":"U","text":"late"}'
LATE = "slack_C_1.5"

both_engines = pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)


async def echo(turn: Turn) -> str:
    return turn.text


async def until_answered(
    port: int, count: int, begun: asyncio.Semaphore | None = None
) -> list[Frame]:
    """Return the frames that a client sees until `count` messages are answered."""
    frames: list[Frame] = []
    async with watching(port, headers=token_of(port, "read")) as stream:
        async for frame in stream.frames():
            if frame.event == "connected" and begun is not None:
                begun.release()
            elif frame.event:
                frames.append(frame)
                count -= frame.event == "response_ready"
            if not count:
                return frames
    raise AssertionError("the stream ended early")


@both_engines
async def test_two_hundred_clients_see_two_hundred_messages_answered_once(
    database_url: str, tmp_path: Path
) -> None:
    app = AgentHarness(echo, settings=Settings(home=tmp_path, database=database_url, workers=50))
    async with serving(app) as port, asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as group:
        begun = asyncio.Semaphore(0)
        clients = [group.create_task(until_answered(port, CROWD, begun)) for _ in range(CROWD)]
        for _ in clients:
            await begun.acquire()
        sent = await _post(port, CROWD)
        seen = [await client for client in clients]
    assert len(set(sent)) == CROWD
    ids = [frame.id for frame in seen[0]]
    assert len(set(ids)) == len(ids)
    assert all([frame.id for frame in frames] == ids for frames in seen)
    for kind in (
        "message_received",
        "agent_routed",
        "chain_step_start",
        "chain_step_done",
        "response_ready",
    ):
        assert sorted(
            frame.data["messageId"] for frame in seen[0] if frame.event == kind
        ) == sorted(sent), kind
    for message_id in sent[:20]:
        about = [frame.event for frame in seen[0] if frame.data["messageId"] == message_id]
        assert (
            about.index("chain_step_start")
            < about.index("chain_step_done")
            < about.index("response_ready")
        )


async def _post(port: int, count: int) -> list[str]:
    url = f"http://{LOOPBACK}:{port}/api/message"
    async with httpx.AsyncClient(headers=token_of(port, "send"), timeout=60) as client:
        bodies = [
            {"message": f"hello {number}", "senderId": str(number)} for number in range(count)
        ]
        answers = await asyncio.gather(*(client.post(url, json=body) for body in bodies))
    assert {answer.status_code for answer in answers} == {200}
    return [answer.json()["messageId"] for answer in answers]


@both_engines
async def test_a_client_that_reconnects_ten_times_misses_and_repeats_nothing(
    database_url: str, tmp_path: Path, engine: str
) -> None:
    """Workers run in other processes, and a transaction with an insert stays open for 3 s."""
    server = AgentHarness(settings=Settings(home=tmp_path, database=database_url))
    async with serving(server) as port, asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as group:
        begun = asyncio.Semaphore(0)
        steady = [group.create_task(until_answered(port, MESSAGES + 1, begun)) for _ in range(3)]
        restless = group.create_task(_restless(port, MESSAGES + 1, begun))
        for _ in (*steady, restless):
            await begun.acquire()
        with worker(database_url, tmp_path / "a"), worker(database_url, tmp_path / "b"):
            late = group.create_task(_insert_late(database_url, engine))
            async with open_store(database_url) as store:
                for number in range(MESSAGES):
                    payload = {"kind": "message", "channel": "api", "sender": "ann"}
                    payload["message"] = str(number)
                    await store.put([NewEvent(event=payload, message_id=f"m{number}")])
                    await asyncio.sleep(HELD_OPEN / MESSAGES if engine == "postgres" else 0)
            was_committed_at = await late
            seen = [await task for task in (*steady, restless)]
    ids = [frame.id for frame in seen[0]]
    assert [[frame.id for frame in frames] for frames in seen] == [ids] * 4
    answered = Counter(
        frame.data["messageId"] for frame in seen[0] if frame.event == "response_ready"
    )
    assert answered == Counter([LATE, *(f"m{number}" for number in range(MESSAGES))])
    [received] = [
        nth
        for nth, f in enumerate(seen[0])
        if (f.event, f.data.get("messageId")) == ("message_received", LATE)
    ]
    if engine == "postgres":
        # Other messages went on meanwhile, and their frames came first.
        done = [frame for frame in seen[0][:received] if frame.event == "response_ready"]
        assert len(done) > 5
        assert seen[0][received].data["timestamp"] < was_committed_at * 1000 - 2000


async def _restless(port: int, count: int, begun: asyncio.Semaphore) -> list[Frame]:
    """Goes away ten times after a few frames, and comes back with its last id."""
    frames: list[Frame] = []
    last_id: str | None = None
    pauses = [random.randint(1, 12) for _ in range(10)]
    while count:
        left = pauses.pop() if pauses else -1
        async with watching(port, last_id=last_id, headers=token_of(port, "read")) as stream:
            async for frame in stream.frames():
                last_id = frame.id or last_id
                if frame.event in ("", "connected"):
                    begun.release()
                    continue
                frames.append(frame)
                left -= 1
                count -= frame.event == "response_ready"
                if not count or not left:
                    break
    assert not pauses, "it was to come back ten times"
    return frames


async def _insert_late(url: str, engine: str) -> float:
    """When it was committed, by the clock of this machine."""
    if engine == "postgres":
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await connection.execute("select agent.insert_event(%s)", [SLACK])
            await asyncio.sleep(HELD_OPEN)
            return await _now(connection)
    async with open_store(url) as store, store.transaction() as tx:
        slack = {"type": "app_mention", "channel": "C", "ts": "1.5", "user": "U", "text": "late"}
        await store.put([NewEvent(event=slack, message_id=LATE)], tx=tx)
        await asyncio.sleep(HELD_OPEN)
    return 0.0


async def _now(connection: psycopg.AsyncConnection[tuple[object, ...]]) -> float:
    row = await (
        await connection.execute("select extract(epoch from clock_timestamp())::float8")
    ).fetchone()
    assert row is not None
    return float(str(row[0]))


@contextmanager
def worker(url: str, home: Path) -> Iterator[None]:
    """A process that works with the echo agent, until the end of the block."""
    command = [sys.executable, "-m", "holdfast", "work", "--database", url, "--home", str(home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "ready" in process.stdout.readline()
            yield
        finally:
            process.terminate()
            process.communicate(timeout=30)

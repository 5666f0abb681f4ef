"""Measure POST /api/message: eight clients with open connections, beside eight tasks that put."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from time import perf_counter
from urllib.parse import urlsplit

from bench.engine import Engine
from bench.latency import percentile
from bench.mention import TEXT
from bench.process import Running, run_process
from bench.put import TASKS, putting
from bench.row import Goal, Row, Run, compare_runs, interleave
from bench.scale import Scale
from bench.workload import Feed, Shape
from holdfast.store import open_store

GOAL = Goal(None, 0.3)
LENGTH = b"content-length: "

_senders = itertools.count()


async def http_put(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    took: list[float] = []
    with engine.fresh() as url, run_process("serve", url, "--port", "0") as server:
        clients = [await Client.connected(server) for _ in range(TASKS)]
        async with open_store(url) as store:
            theirs, ours = await interleave(
                scale.rounds,
                putting(store, Feed(Shape.MANY), scale.puts, tasks=TASKS),
                posting(clients, scale.puts, took),
            )
    what = f"POST /api/message, {TASKS} clients"
    yield compare_runs(engine.name, what, ours, f"put by {TASKS} tasks", theirs, GOAL)
    half, most = percentile(took, 0.5) * 1000, percentile(took, 0.99) * 1000
    yield Row(
        store=engine.name,
        what=f"{what}, p99",
        measured=most,
        against="the median",
        beside=half,
        unit="ms",
    )


def posting(clients: list[Client], count: int, took: list[float]) -> Run:
    """Send messages by all clients at once, each in a conversation of its own."""

    async def run() -> float:
        start = perf_counter()
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(client.post(count // len(clients), took))
        return count // len(clients) * len(clients) / (perf_counter() - start)

    return run


class Client:
    """A minimal HTTP client, so that the server is measured and not the client."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, token: str
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._head = (
            f"POST /api/message HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n"
            "content-type: application/json\r\ncontent-length: "
        )

    @classmethod
    async def connected(cls, server: Running) -> Client:
        address = urlsplit(server.address)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        return cls(reader, writer, address.netloc, server.token("send"))

    async def post(self, count: int, took: list[float]) -> None:
        for _ in range(count):
            body = json.dumps({"message": TEXT, "sender": f"sender {next(_senders)}"})
            start = perf_counter()
            self._writer.write(f"{self._head}{len(body)}\r\n\r\n{body}".encode())
            head = await self._reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            length = head[head.index(LENGTH) + len(LENGTH) :].split(b"\r\n", 1)[0]
            await self._reader.readexactly(int(length))
            took.append(perf_counter() - start)

"""Install a queue's schema, put events to it on command, or work on it."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from time import perf_counter, time
from typing import Any, Protocol, cast

from bench.peers.side.event import Event, numbered

Put = Callable[[list[Event]], Awaitable[object]]
"""Stores events; they are durable when it returns."""


class Side(Protocol):
    """The module of a queue."""

    async def install(self, url: str) -> None:
        """Create its schema in an empty database."""

    def client(self, url: str, connections: int) -> AbstractAsyncContextManager[Put]:
        """Open so many connections for puts."""

    async def work(self, url: str, mode: str) -> None:
        """Work until the end of the process, with default or best settings, or for probes."""


async def _serve(side: Side, url: str, connections: int) -> None:
    """Read lines of JSON: put one event, or a range of events in some tasks and batches.

    Answers each with the time at which it began and the seconds it took."""
    async with side.client(url, connections) as put:
        print("the client is ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await _answer(put, json.loads(line))), flush=True)


async def _answer(put: Put, command: dict[str, object]) -> dict[str, float]:
    if "event" in command:
        given = cast(dict[str, Any], command["event"])
        shares = [[[Event(given["key"], given["lane"], given["payload"], strict=True)]]]
    else:
        first, count, tasks, batch = (
            int(cast(int, command[name])) for name in ("first", "count", "tasks", "batch")
        )
        events = [numbered(number) for number in range(first, first + count)]
        parts = [events[start : start + batch] for start in range(0, count, batch)]
        shares = [parts[nth::tasks] for nth in range(tasks)]
    at, begun = time(), perf_counter()
    await asyncio.gather(*[_put_each(put, share) for share in shares])
    return {"at": at, "seconds": perf_counter() - begun}


async def _put_each(put: Put, parts: list[list[Event]]) -> None:
    for part in parts:
        await put(part)


def main() -> None:
    role, name, url, *rest = sys.argv[1:]
    side = cast(Side, importlib.import_module(f"bench.peers.side.{name}"))
    run = getattr(side, "run", asyncio.run)
    match role:
        case "install":
            run(side.install(url))
        case "client":
            run(_serve(side, url, int(rest[0])))
        case "worker":
            run(side.work(url, rest[0]))
        case _:
            raise SystemExit(f"no role {role!r}")


if __name__ == "__main__":
    main()

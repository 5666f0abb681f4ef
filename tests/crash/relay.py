"""A TCP relay before the servers of a cluster, which can cut its clients off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

CHUNK = 64 * 1024


class Relay:
    """Passes connections on. While it is cut, bytes stay on the way in both directions."""

    def __init__(self) -> None:
        self.ports: list[int] = []
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def cut(self, seconds: float, *, drop: bool) -> None:
        """Pass nothing for a while; then pass what waited, or drop all connections."""
        self._open.clear()
        await asyncio.sleep(seconds)
        if drop:
            self.drop()
        self._open.set()

    def drop(self) -> None:
        """Reset all connections."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def accept(
        self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            self._writers.add(writer)
            there, back = await asyncio.open_connection("127.0.0.1", port)
            self._writers.add(back)
            await asyncio.gather(self._copy(reader, back), self._copy(there, writer))
        self._writers.discard(writer)
        writer.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        self._writers.discard(writer)
        writer.transport.abort()


@asynccontextmanager
async def relaying(ports: Sequence[int]) -> AsyncIterator[Relay]:
    """A relay with a port for each of the servers' ports."""
    relay = Relay()
    servers = [
        await asyncio.start_server(partial(relay.accept, port), "127.0.0.1", 0) for port in ports
    ]
    relay.ports = [server.sockets[0].getsockname()[1] for server in servers]
    try:
        yield relay
    finally:
        for server in servers:
            server.close()
        relay.drop()
        # Let the connections' tasks end.
        await asyncio.sleep(0.1)

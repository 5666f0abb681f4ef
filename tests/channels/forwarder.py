"""A port that forwards to a server, and that a test can close."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

LOOPBACK = "127.0.0.1"
CHUNK = 64 * 1024


class Forwarder:
    """Forwards connections to a port on loopback. While it is away, it refuses new ones."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Forwarder]:
        await self.come_back()
        try:
            yield self
        finally:
            await self.go_away()

    async def come_back(self) -> None:
        """Listen at the same port as before."""
        self._server = await asyncio.start_server(self._serve, LOOPBACK, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def go_away(self) -> None:
        """Close the port, and break all connections."""
        if self._server is not None:
            self._server.close()
        self._server = None
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            further_reader, further_writer = await asyncio.open_connection(LOOPBACK, self._target)
            both = {writer, further_writer}
            self._writers |= both
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_copy(reader, further_writer))
                    group.create_task(_copy(further_reader, writer))
            finally:
                self._writers -= both


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end of the input, then close the output."""
    with suppress(OSError):
        while content := await reader.read(CHUNK):
            writer.write(content)
            await writer.drain()
    writer.close()

"""A relay between a host and the database, which delays what passes and drops connections."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

RESET = struct.pack("ii", 1, 0)
CHUNK = 65536


class Relay:
    """Passes bytes both ways; set `delay` in seconds, and `drop` as a chance per chunk."""

    def __init__(self, listener: socket.socket, database: str) -> None:
        self._listener = listener
        self._database = database
        self._loop = asyncio.new_event_loop()
        self.delay = 0.0
        self.drop = 0.0
        self.dropped = 0

    def run(self) -> None:
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._serve())
        self._loop.close()

    def stop(self) -> None:
        def cancel() -> None:
            for task in asyncio.all_tasks(self._loop):
                task.cancel()

        self._loop.call_soon_threadsafe(cancel)

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, sock=self._listener)
        async with server:
            await server.serve_forever()

    async def _connected(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            far, on = await asyncio.open_unix_connection(self._database)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pass(near, on))
                    group.create_task(self._pass(far, back))
            except* (OSError, EOFError):
                self._reset(back)
            finally:
                on.close()
                back.close()

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Pass chunks on until the source ends, or until the connection is dropped."""
        while chunk := await source.read(CHUNK):
            await asyncio.sleep(self.delay * random.random() * 2)
            if random.random() < self.drop:
                self.dropped += 1
                raise ConnectionResetError("dropped")
            target.write(chunk)
            await target.drain()
        raise EOFError

    def _reset(self, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


@contextmanager
def relaying(listener: socket.socket, database: str) -> Iterator[Relay]:
    """Run a relay in a thread, from a listening socket to a Unix socket."""
    relay = Relay(listener, database)
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        yield relay
    finally:
        relay.stop()
        thread.join()

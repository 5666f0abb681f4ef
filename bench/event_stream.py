"""A client of the event stream, light enough to run hundreds of it."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

PATH = "/api/events/stream"


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of the stream. A comment sets `comment` alone."""

    id: str = ""
    event: str = ""
    text: str = ""
    comment: str = ""

    @property
    def data(self) -> Any:
        """The payload, parsed on access: most clients of a crowd only count frames."""
        return json.loads(self.text)


class Refusal(Exception):
    """The server answered with a status and body instead of a stream."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status} {body}")
        self.status = status
        self.body = body


class Stream:
    """Frames in order, until the server ends the stream; `broke_off` if the connection broke."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self.headers: dict[str, str] = {}
        self.last_id = ""
        self.broke_off = False
        self._reader = reader
        self._rest = b""
        self._blocks: deque[bytes] = deque()

    async def read_head(self) -> int:
        status = int((await self._reader.readline()).split()[1])
        while (line := (await self._reader.readline()).decode().strip()) != "":
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()
        return status

    async def body(self) -> str:
        return (
            await self._reader.readexactly(int(self.headers.get("content-length", "0")))
        ).decode()

    async def frames(self) -> AsyncIterator[Frame]:
        while self._blocks or await self._more():
            while self._blocks:
                frame = _frame(self._blocks.popleft().decode())
                self.last_id = frame.id or self.last_id
                yield frame

    async def next(self, within: float = 20.0) -> Frame:
        """Return the next frame that is not a comment."""
        async with asyncio.timeout(within):
            async for frame in self.frames():
                if frame.event:
                    return frame
        raise EOFError

    async def _more(self) -> bool:
        line = await self._reader.readline()
        self.broke_off = not line
        size = int(line.strip() or b"0", 16)
        if size:
            *blocks, self._rest = (self._rest + await self._reader.readexactly(size)).split(b"\n\n")
            self._blocks.extend(blocks)
        await self._reader.readline()
        return size > 0


def _frame(block: str) -> Frame:
    fields: dict[str, str] = {}
    for line in block.split("\n"):
        name, _, value = line.partition(": ")
        if name in ("id", "event"):
            fields[name] = value
        elif name == "data":
            fields["text"] = value
        elif line.startswith(":"):
            fields["comment"] = line[2:]
    return Frame(**fields)


@asynccontextmanager
async def watching(
    port: int,
    *,
    path: str = PATH,
    last_id: str | None = None,
    query: str = "",
    headers: Mapping[str, str] | None = None,
    host: str = "127.0.0.1",
    limit: int = 2**16,
) -> AsyncIterator[Stream]:
    """Connect to a stream, by default that of all messages. Raises Refusal."""
    reader, writer = await asyncio.open_connection(host, port, limit=limit)
    try:
        given = {
            "host": f"{host}:{port}",
            **(headers or {}),
            **({} if last_id is None else {"last-event-id": last_id}),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        writer.write(f"GET {path}{query} HTTP/1.1\r\n{lines}\r\n".encode())
        stream = Stream(reader)
        status = await stream.read_head()
        if status != 200:
            raise Refusal(status, await stream.body())
        yield stream
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

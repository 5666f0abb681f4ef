"""One reader of what happened, for all who watch in this process: each takes from a shared window at its own pace."""

from __future__ import annotations

import asyncio
import logging
import re
from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from pydantic_core import to_json

from holdfast.errors import HoldfastError
from holdfast.message import Payload
from holdfast.queue.pages import PAGE_BYTES
from holdfast.queue.policy import Backoff
from holdfast.queue.store import Happened, Store
from holdfast.queue.wake import Wake
from holdfast.store.activity import FORGOTTEN
from holdfast.telemetry import ACTIVITY_READ_FAILED, STREAM_CLIENT_TOO_SLOW
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

POLL = timedelta(milliseconds=100)
"""Between looks that nothing called for; starts of turns, for one, wake nobody."""
PACE = timedelta(milliseconds=10)
"""Between looks at the least: what happens meanwhile is read together."""
PAGE = 200
WINDOW_BYTES = 16 * 1024 * 1024
"""What is held for those who lag behind; who lags further is disconnected, and can resume."""
CHUNK_BYTES = 64 * 1024
OUTAGE = Backoff(first=timedelta(milliseconds=100), most=timedelta(seconds=2))
CATCHING_UP = 4
"""Clients that read from the store at once, to catch up; the others wait their turn."""

_CURSOR = re.compile(r"(\d{1,18})(?:\.(\d{1,9}))?", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """Where to go on: a position, and the frame in it."""

    position: int
    frame: int = 0

    def __str__(self) -> str:
        return f"{self.position}.{self.frame}"

    @classmethod
    def read(cls, text: str) -> Cursor | None:
        found = _CURSOR.fullmatch(text)
        return None if found is None else cls(int(found[1]), int(found[2] or 0))


@dataclass(frozen=True, slots=True)
class FeedFrame:
    """A frame as all clients get it, and where to go on after it."""

    frame: Payload
    after: Cursor
    text: bytes


@dataclass(frozen=True, slots=True)
class Row:
    """What one call told."""

    position: int
    frames: list[FeedFrame]
    size: int


def encoded(frame: Payload, after: Cursor, retry: int | None = None) -> bytes:
    """A frame on the wire. JSON has no line breaks of its own."""
    again = "" if retry is None else f"retry: {retry}\n"
    return b"%bid: %b\nevent: %b\ndata: %b\n\n" % (
        again.encode(),
        str(after).encode(),
        str(frame["type"]).encode(),
        to_json(frame),
    )


def row_of(happened: Happened) -> Row:
    position, last, told = happened.position, len(happened.frames) - 1, list[FeedFrame]()
    for nth, frame in enumerate(happened.frames):
        after = Cursor(position, nth + 1) if nth < last else Cursor(position + 1)
        told.append(FeedFrame(frame, after, encoded(frame, after)))
    return Row(position, told, sum(len(one.text) for one in told))


@dataclass(slots=True, eq=False)
class Watcher:
    """One client: where it is, and what it wants to hear of.

    `sent` is how far it is surely behind us, `heard` the last id that it was given."""

    cursor: Cursor
    wants: Callable[[Payload], bool]
    is_fresh: bool = False
    is_live: bool = False
    sent: Cursor = field(init=False)
    heard: Cursor = field(init=False)

    def __post_init__(self) -> None:
        self.sent = self.heard = self.cursor

    def take(self, rows: Sequence[Row]) -> Iterator[bytes]:
        """Moves on past these rows; what it wants of them, in pieces of a decent size."""
        chunk: list[bytes] = []
        size = 0
        for row in rows:
            for told in row.frames:
                if told.after <= self.cursor:
                    continue
                self.cursor = told.after
                if self.wants(told.frame):
                    self.heard = told.after
                    chunk.append(told.text)
                    size += len(told.text)
                if size >= CHUNK_BYTES:
                    yield b"".join(chunk)
                    chunk, size = [], 0
        if chunk:
            yield b"".join(chunk)


class Feed:
    """Reads while somebody watches, and not at all otherwise."""

    def __init__(self, store: Callable[[], Store], window_bytes: int = WINDOW_BYTES) -> None:
        self._store = store
        self._window_bytes = window_bytes
        self._rows: list[Row] = []
        self._held = 0
        self._next: int | None = None
        self._watchers = 0
        self._is_watched = asyncio.Event()
        self._news = asyncio.Event()
        self._wake = Wake()
        self._catching_up = asyncio.Semaphore(CATCHING_UP)
        self.is_closed = False

    async def run(self) -> None:
        """Belongs in the server's TaskGroup."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            while True:
                await self._is_watched.wait()
                await self._follow()

    def close(self) -> None:
        """All streams end; their clients resume elsewhere."""
        self.is_closed = True
        self._tell()

    async def span(self) -> tuple[int, int]:
        return await self._store().activity_span()

    async def watch(
        self, watcher: Watcher, gap: Callable[[Cursor, Cursor], bytes]
    ) -> AsyncGenerator[bytes]:
        """What the watcher wants from its cursor on, until the feed is closed or the watcher is too slow."""
        if self._next is None and watcher.is_fresh:
            # The window begins where its first watcher does, or all who come before the first look had to catch up.
            self._next = watcher.cursor.position
        with self._watching():
            while not self.is_closed:
                news = self._news
                rows = self._since(watcher.cursor.position)
                if rows is not None:
                    watcher.is_live = True
                elif watcher.is_live:
                    log.info(Entry(STREAM_CLIENT_TOO_SLOW, at=watcher.cursor))
                    return
                elif (rows := await self._read(watcher.cursor.position)) is None:
                    return
                if rows and rows[0].position > max(watcher.cursor.position, 1):
                    before, watcher.cursor = watcher.cursor, Cursor(rows[0].position)
                    yield gap(before, watcher.cursor)
                for chunk in watcher.take(rows):
                    yield chunk
                watcher.sent = watcher.cursor
                if not rows and not self.is_closed:
                    await news.wait()

    async def _read(self, position: int) -> list[Row] | None:
        """From the store itself, to catch up; None where it cannot be reached, and the client had better come again."""
        async with self._catching_up:
            try:
                found = await self._store().activity(position, limit=PAGE, most_bytes=PAGE_BYTES)
                return [row_of(one) for one in found]
            except HoldfastError as error:
                log.warning(Entry(ACTIVITY_READ_FAILED, error=error))
                return None

    def _since(self, position: int) -> list[Row] | None:
        """The next rows of the window, not many at once: who is slow keeps them. None where it does not reach back."""
        if self._next is None or position < (self._rows[0].position if self._rows else self._next):
            return None
        begin = end = bisect_left(self._rows, position, key=lambda row: row.position)
        size = 0
        while end < len(self._rows) and size < CHUNK_BYTES:
            size += self._rows[end].size
            end += 1
        return self._rows[begin:end]

    @contextmanager
    def _watching(self) -> Iterator[None]:
        self._watchers += 1
        self._is_watched.set()
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._is_watched.clear()
                self._wake.set()

    async def _listen(self) -> None:
        async for _ in self._store().wakeups():
            self._wake.set()

    async def _follow(self) -> None:
        """From now on, until nobody watches any more; an outage only holds it up."""
        failures = 0
        while self._watchers:
            try:
                has_more = await self._look()
            except HoldfastError as error:
                failures += 1
                if failures == 1:
                    log.warning(Entry(ACTIVITY_READ_FAILED, error=error))
                await asyncio.sleep(OUTAGE.delay(failures).total_seconds())
                continue
            failures = 0
            await asyncio.sleep(PACE.total_seconds())
            if not has_more:
                await self._wake.wait(poll=POLL)
        self._rows, self._held, self._next = [], 0, None

    async def _look(self) -> bool:
        """Whether there may be more at once."""
        if self._next is None:
            [_, self._next] = await self.span()
            # Who came first has read from the store so far.
            self._tell()
        found = await self._store().activity(self._next, limit=PAGE, most_bytes=PAGE_BYTES)
        if found:
            self._add([row_of(one) for one in found])
            self._tell()
        return found.has_more

    def _add(self, rows: list[Row]) -> None:
        if any(told.frame["type"] == FORGOTTEN for row in rows for told in row.frames):
            # What the window holds may have been blanked meanwhile: who has not taken it yet reads it again.
            self._rows, self._held = [], 0
        self._rows += rows
        self._held += sum(row.size for row in rows)
        self._next = rows[-1].position + 1
        gone = 0
        while self._held > self._window_bytes and gone < len(self._rows) - 1:
            self._held -= self._rows[gone].size
            gone += 1
        del self._rows[:gone]

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

"""Reads the activity log once per process, for all clients of the event stream.

Every client takes frames from one shared window, at its own pace."""

from __future__ import annotations

import asyncio
import logging
import re
from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta

from pydantic_core import to_json

from holdfast.api.limits import Limits
from holdfast.errors import HoldfastError
from holdfast.message import Payload
from holdfast.queue.pages import PAGE_BYTES
from holdfast.queue.policy import Backoff
from holdfast.queue.store import ActivityRow, Store
from holdfast.queue.wake import Wake
from holdfast.store.activity import FORGOTTEN
from holdfast.telemetry import ACTIVITY_READ_FAILED, STREAM_CLIENT_TOO_SLOW
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

POLL = timedelta(milliseconds=100)
"""Interval between reads without a wake-up: some frames, such as starts of turns, send none."""
PACE = timedelta(milliseconds=10)
"""Minimum interval between reads, so that frames are read in batches."""
PAGE = 200
RETRY = 1000
"""Milliseconds after which a browser reconnects."""
OUTAGE = Backoff(first=timedelta(milliseconds=100), most=timedelta(seconds=2))
CATCHING_UP = 4
"""Maximum number of clients that catch up from the store at the same time."""

_CURSOR = re.compile(r"(\d{1,18})(?:\.(\d{1,9}))?", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """A position in the activity log, and the index of a frame in that row."""

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
    """An encoded frame, and the cursor after it."""

    frame: Payload
    after: Cursor
    text: bytes


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the activity log with its encoded frames."""

    position: int
    frames: list[FeedFrame]
    size: int


def encode(frame: Payload, after: object, retry: int | None = None) -> bytes:
    """Encode a frame as a server-sent event. The JSON has no line breaks."""
    again = "" if retry is None else f"retry: {retry}\n"
    return b"%bid: %b\nevent: %b\ndata: %b\n\n" % (
        again.encode(),
        str(after).encode(),
        str(frame["type"]).encode(),
        to_json(frame),
    )


def row_of(happened: ActivityRow) -> Row:
    position, last, encoded_frames = happened.position, len(happened.frames) - 1, list[FeedFrame]()
    for nth, frame in enumerate(happened.frames):
        after = Cursor(position, nth + 1) if nth < last else Cursor(position + 1)
        encoded_frames.append(FeedFrame(frame, after, encode(frame, after)))
    return Row(position, encoded_frames, sum(len(one.text) for one in encoded_frames))


@dataclass(slots=True, eq=False)
class Watcher:
    """One client: its cursor and its filter.

    `sent` is the cursor after all frames that were sent or filtered out; `last_id` is the last id
    that the client was given."""

    cursor: Cursor
    wants: Callable[[Payload], bool]
    is_fresh: bool = False
    encode: Callable[[FeedFrame, Cursor], bytes] | None = None
    """Encodes frames for this client, given the cursor before each; None for the shared text."""
    is_live: bool = False
    sent: Cursor = field(init=False)
    last_id: Cursor = field(init=False)

    def __post_init__(self) -> None:
        self.sent = self.last_id = self.cursor

    def take(self, rows: Sequence[Row], chunk_bytes: int) -> Iterator[bytes]:
        """Advance the cursor past these rows. Yields the wanted frames in chunks."""
        chunk: list[bytes] = []
        size = 0
        for row in rows:
            for frame in row.frames:
                if frame.after <= self.cursor:
                    continue
                before, self.cursor = self.cursor, frame.after
                if self.wants(frame.frame):
                    self.last_id = frame.after
                    text = frame.text if self.encode is None else self.encode(frame, before)
                    chunk.append(text)
                    size += len(text)
                if size >= chunk_bytes:
                    yield b"".join(chunk)
                    chunk, size = [], 0
        if chunk:
            yield b"".join(chunk)


class Feed:
    """Reads the activity log while at least one client watches."""

    def __init__(self, store: Callable[[], Store], limits: Limits) -> None:
        self._store = store
        self._limits = limits
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
        """Read until cancelled; runs in the TaskGroup of the server."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            while True:
                await self._is_watched.wait()
                await self._follow()

    def close(self) -> None:
        """End all streams. Their clients resume at another server."""
        self.is_closed = True
        self._notify()

    async def span(self) -> tuple[int, int]:
        return await self._store().activity_span()

    async def watch(
        self, watcher: Watcher, gap: Callable[[Cursor, Cursor], bytes]
    ) -> AsyncGenerator[bytes]:
        """Yield the frames a watcher wants, until the feed closes or the watcher is too slow."""
        if self._next is None and watcher.is_fresh:
            # Begin the window at the first watcher: the others need not catch up then.
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
                for chunk in watcher.take(rows, self._limits.chunk_bytes):
                    yield chunk
                watcher.sent = watcher.cursor
                if not rows and not self.is_closed:
                    await news.wait()

    async def wakeups(
        self, concerns: Callable[[Payload], bool], poll: timedelta
    ) -> AsyncGenerator[None]:
        """Yield at once, then whenever a frame concerns the caller or `poll` is over.

        For readers of stored state, which need no frame itself. Ends when the feed closes."""
        with self._watching():
            while not self.is_closed:
                position = self._next
                yield
                with suppress(TimeoutError):
                    async with asyncio.timeout(poll.total_seconds()):
                        await self._wait_for(concerns, position)

    async def _wait_for(self, concerns: Callable[[Payload], bool], position: int | None) -> None:
        """Wait for a frame from a position on, or until the window no longer reaches back to it."""
        while not self.is_closed:
            news = self._news
            if self._next is not None:
                if position is None or (self._rows and self._rows[0].position > position):
                    return
                begin = bisect_left(self._rows, position, key=lambda row: row.position)
                if any(concerns(one.frame) for row in self._rows[begin:] for one in row.frames):
                    return
                position = self._next
            await news.wait()

    async def _read(self, position: int) -> list[Row] | None:
        """Read rows from the store to catch up; None if it is unreachable: the client resumes."""
        async with self._catching_up:
            try:
                found = await self._store().activity(position, limit=PAGE, most_bytes=PAGE_BYTES)
                return [row_of(one) for one in found]
            except HoldfastError as error:
                log.warning(Entry(ACTIVITY_READ_FAILED, error=error))
                return None

    def _since(self, position: int) -> list[Row] | None:
        """Return the next few rows of the window; None if the position is older than the window.

        A slow client holds on to the rows it is given, so it gets few at once."""
        if self._next is None or position < (self._rows[0].position if self._rows else self._next):
            return None
        begin = end = bisect_left(self._rows, position, key=lambda row: row.position)
        size = 0
        while end < len(self._rows) and size < self._limits.chunk_bytes:
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
        """Read until nobody watches any more. An outage of the database only delays it."""
        failures = 0
        while self._watchers:
            try:
                has_more = await self._read_new()
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

    async def _read_new(self) -> bool:
        """Read once. Returns whether there may be more."""
        if self._next is None:
            [_, self._next] = await self.span()
            # Until now the first watchers read from the store: wake them.
            self._notify()
        found = await self._store().activity(self._next, limit=PAGE, most_bytes=PAGE_BYTES)
        if found:
            self._add([row_of(one) for one in found])
            self._notify()
        return found.has_more

    def _add(self, rows: list[Row]) -> None:
        if any(frame.frame["type"] == FORGOTTEN for row in rows for frame in row.frames):
            # Forgetting blanks stored frames: drop the window, so that watchers read them again.
            self._rows, self._held = [], 0
        self._rows += rows
        self._held += sum(row.size for row in rows)
        self._next = rows[-1].position + 1
        gone = 0
        while self._held > self._limits.window_bytes and gone < len(self._rows) - 1:
            self._held -= self._rows[gone].size
            gone += 1
        del self._rows[:gone]

    def _notify(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

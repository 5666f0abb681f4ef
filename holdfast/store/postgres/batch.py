"""Batches: requests that wait at the same time share one call and one commit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from holdfast.errors import HoldfastError, StoreUnavailable

Item = TypeVar("Item")
Result = TypeVar("Result")

CLOSED = "the store is closed"


@dataclass(slots=True)
class _Request(Generic[Item, Result]):
    items: list[Item]
    answer: asyncio.Future[list[Result]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Batch(Generic[Item, Result]):
    """Sends the requests that gathered during the last call. Run `run` in the owner's TaskGroup.

    A lone request is sent by its own task at once, which saves two turns of the event loop."""

    def __init__(self, send: Callable[[list[Item]], Awaitable[list[Result]]], limit: int) -> None:
        self._send = send
        self._limit = limit
        self._waiting: deque[_Request[Item, Result]] = deque()
        self._unanswered: list[_Request[Item, Result]] = []
        self._arrived = asyncio.Event()
        self._sending = asyncio.Lock()
        self._crowded = False
        self._is_closed = False

    async def add(self, items: Sequence[Item]) -> list[Result]:
        """Send items and return their results in order. A cancelled wait may still send them."""
        # With many callers, wait for the others; otherwise every second call would carry only one
        # request.
        if not self._crowded and not self._sending.locked() and not self._waiting:
            async with self._sending:
                return await self._send(list(items))
        if self._is_closed:
            raise HoldfastError(CLOSED)
        request: _Request[Item, Result] = _Request(list(items))
        self._waiting.append(request)
        self._arrived.set()
        return await request.answer

    async def run(self) -> None:
        """Send batches until cancelled; requests without an answer then fail."""
        try:
            while True:
                await self._arrived.wait()
                async with self._sending:
                    await self._send_next()
        finally:
            self._is_closed = True
            _fail([*self._unanswered, *self._waiting], HoldfastError(CLOSED))
            self._waiting.clear()

    async def _send_next(self) -> None:
        self._unanswered = self._take()
        if self._unanswered:
            self._crowded = len(self._unanswered) > 1
            await self._answer(self._unanswered)
            self._unanswered = []
        else:
            self._arrived.clear()

    def _take(self) -> list[_Request[Item, Result]]:
        taken: list[_Request[Item, Result]] = []
        size = 0
        while self._waiting and (not taken or size + len(self._waiting[0].items) <= self._limit):
            taken.append(self._waiting.popleft())
            size += len(taken[-1].items)
        return taken

    async def _answer(self, requests: list[_Request[Item, Result]]) -> None:
        try:
            results = await self._send([item for request in requests for item in request.items])
        except Exception as error:  # noqa: BLE001 - the error belongs to the callers
            # One bad request must not fail the others. But if the database is gone, the batch may
            # have been stored: do not send it again.
            if len(requests) > 1 and not isinstance(error, StoreUnavailable):
                for request in requests:
                    await self._answer([request])
            else:
                _fail(requests, error)
            return
        start = 0
        for request in requests:
            if not request.answer.done():
                request.answer.set_result(results[start : start + len(request.items)])
            start += len(request.items)


def _fail(requests: list[_Request[Item, Result]], error: Exception) -> None:
    for request in requests:
        if not request.answer.done():
            request.answer.set_exception(error)

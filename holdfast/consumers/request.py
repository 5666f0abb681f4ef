"""Requests of deliveries: each has a time limit, and a graceful stop lets one finish."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from holdfast.queue.policy import LET_GO_WITHIN
from holdfast.queue.turn import LeasedTurn
from holdfast.telemetry import SEND_ABANDONED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

T = TypeVar("T")

SEND_WITHIN = timedelta(seconds=90)
FINISHING_SHARE = 0.8
"""Share of the time that stopped handlers have. The rest is for storing the receipt."""


class SendTimeout(Exception):
    """The channel did not answer in time."""


class _Exit(Exception):
    """The channel called `sys.exit`. In a task of its own, that would end the event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Time limits of the requests to a platform."""

    send_within: timedelta = SEND_WITHIN
    """Time limit of one request, so that a hanging channel does not block its conversation."""
    finish_within: timedelta = LET_GO_WITHIN * FINISHING_SHARE
    """Time that a request may still take once its turn was stopped."""


async def in_time(asked: Awaitable[T], within: timedelta) -> T:
    """Await an answer of a channel; raise SendTimeout if it takes longer."""
    limit = asyncio.timeout(within.total_seconds())
    try:
        async with limit:
            return await asked
    except TimeoutError:
        # Otherwise it is a TimeoutError of the channel itself.
        if limit.expired():
            raise SendTimeout from None
        raise


def is_stopped() -> bool:
    """Return whether the running handler was asked to stop."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def send(asked: Awaitable[T], turn: LeasedTurn, limits: RequestLimits) -> T:
    """Make a request that a graceful stop does not cut off. Returns its answer.

    If it were cut off, nobody would know whether the platform took it. Only a lost lease cancels
    it at once; after a stop it has `finish_within`."""
    request = asyncio.ensure_future(_without_exit(in_time(asked, limits.send_within)))
    try:
        await _outlast_stop(request, turn, limits)
    finally:
        if not request.done():
            request.cancel()
            await asyncio.wait([request])
            if not request.cancelled():
                # Mark its error as retrieved: the caller raises another one.
                request.exception()
    try:
        return request.result()
    except _Exit as error:
        raise SystemExit(*error.args) from error


async def _outlast_stop(
    request: asyncio.Future[T], turn: LeasedTurn, limits: RequestLimits
) -> None:
    try:
        await asyncio.wait([request])
    except asyncio.CancelledError:
        turn.check_lease()
        await asyncio.wait([request], timeout=limits.finish_within.total_seconds())
        if not request.done():
            log.warning(Entry(SEND_ABANDONED, event_id=turn.primary.id))
            raise


async def _without_exit(asked: Awaitable[T]) -> T:
    try:
        return await asked
    except SystemExit as error:
        raise _Exit(*error.args) from error

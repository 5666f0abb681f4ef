"""The outbox: a turn is a response for a channel, and the turn is done when the channel has taken it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta

from holdfast.channel import Channel, Undeliverable
from holdfast.event import Turn
from holdfast.outcome import Dead, Done, Outcome, Retry

SEND_WITHIN = timedelta(seconds=90)
"""A channel that hangs must not hold up its conversation for ever."""


class Delivery:
    """Handles turns of the outbox for the channels that this process serves."""

    def __init__(self, channels: Mapping[str, Channel]) -> None:
        self._channels = channels

    async def handle(self, turn: Turn) -> Outcome:
        limit = asyncio.timeout(SEND_WITHIN.total_seconds())
        try:
            async with limit:
                await self._channels[turn.primary.target].send(turn.primary)
        except Undeliverable as error:
            return Dead(str(error), error.code)
        except TimeoutError:
            if not limit.expired():
                # The channel's own.
                raise
            return Retry(f"the channel did not take it within {SEND_WITHIN}", error_class="timeout")
        return Done()

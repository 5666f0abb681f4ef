"""The outbox: a turn is a response for a channel, and the turn is done when the channel has taken it."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.channel import Channel, Undeliverable
from holdfast.event import Turn
from holdfast.outcome import Dead, Done, Outcome


class Delivery:
    """Handles turns of the outbox for the channels that this process serves."""

    def __init__(self, channels: Mapping[str, Channel]) -> None:
        self._channels = channels

    async def handle(self, turn: Turn) -> Outcome:
        try:
            await self._channels[turn.primary.target].send(turn.primary)
        except Undeliverable as error:
            return Dead(str(error), error.code)
        return Done()

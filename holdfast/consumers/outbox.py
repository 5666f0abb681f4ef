"""The outbox consumer: delivers each response through its channel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar

from holdfast.channels.base import Channel, NotNow, Part, Undeliverable
from holdfast.errors import LeaseLost
from holdfast.message import Payload
from holdfast.queue.event import Event
from holdfast.queue.outcome import Dead, Done, Outcome, Retry, Snooze
from holdfast.queue.store import Store
from holdfast.queue.turn import LeasedTurn

T = TypeVar("T")

SEND_WITHIN = timedelta(seconds=90)
"""Time limit of one request, so that a hanging channel does not block its conversation."""
LEASE = timedelta(minutes=2)
SENDING, SENT = "sending", "sent"
LARGE = 32 * 1024
"""Payloads over this many characters are split in a thread: converting a megabyte takes a second,
during which the event loop would serve nobody."""


class _SendTimeout(Exception):
    """The channel did not answer in time."""


class Delivery:
    """Handles turns of the outbox for the channels that this process serves."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        store: Store,
        send_within: timedelta = SEND_WITHIN,
    ) -> None:
        self._channels = channels
        self._store = store
        self._send_within = send_within

    async def handle(self, turn: LeasedTurn) -> Outcome:
        channel = self._channels[turn.primary.target]
        try:
            if parts := await _split(channel, turn.primary):
                return await self._send_parts(channel, turn, parts)
            await self._in_time(channel.send(turn.primary))
            return Done()
        except Undeliverable as error:
            return Dead(str(error), error.code)
        except NotNow as error:
            return Snooze(error.delay)
        except _SendTimeout:
            reason = f"the channel did not take it within {self._send_within}"
            return Retry(reason, error_class="timeout")

    async def _send_parts(
        self, channel: Channel, turn: LeasedTurn, parts: Sequence[Part]
    ) -> Outcome:
        progress = Progress(self._store, turn, self._send_within)
        for part in parts:
            if progress.of(part) != SENT:
                await self._send_part(channel, turn, part, progress)
        # The receipt of the last part is stored with the turn's end.
        return Done(state=progress.state)

    async def _send_part(
        self, channel: Channel, turn: LeasedTurn, part: Part, progress: Progress
    ) -> None:
        response = turn.primary
        if progress.of(part) == SENDING:
            receipt = await self._in_time(channel.find_part(response, part, progress.note(part)))
            if receipt is not None:
                return progress.record_receipt(part, receipt)
        try:
            note = await self._in_time(channel.prepare_part(response, part))
            await progress.sending(part, note)
            receipt = await self._in_time(channel.send_part(response, part, note))
            progress.record_receipt(part, receipt)
        except (NotNow, Undeliverable):
            # It was not sent, so the next attempt need not look for it.
            await progress.record_refusal(part)
            raise

    async def _in_time(self, asked: Awaitable[T]) -> T:
        limit = asyncio.timeout(self._send_within.total_seconds())
        try:
            async with limit:
                return await asked
        except TimeoutError:
            # Otherwise it is a TimeoutError of the channel itself.
            if limit.expired():
                raise _SendTimeout from None
            raise


class Progress:
    """Delivery progress of each part, stored with the event under the turn's fence."""

    def __init__(self, store: Store, turn: LeasedTurn, send_within: timedelta) -> None:
        self._store = store
        self._turn = turn
        self._send_within = send_within
        self._parts: dict[str, Payload] = dict((turn.primary.state or {}).get("parts", {}))

    @property
    def state(self) -> Payload:
        return {"parts": self._parts}

    def of(self, part: Part) -> str | None:
        found: str | None = self._parts.get(part.key, {}).get("state")
        return found

    def note(self, part: Part) -> Payload:
        found: Payload = self._parts[part.key].get("note", {})
        return found

    async def sending(self, part: Part, note: Payload) -> None:
        """Store that a part is being sent. After a crash the platform must be asked for it."""
        self._parts[part.key] = {"state": SENDING, "note": note}
        until = await self._store.checkpoint(self._turn, self.state)
        # The request must end before another worker may take the turn and look for the part.
        if until - await self._store.now() < self._send_within and await self._store.renew(
            [self._turn], LEASE
        ):
            raise LeaseLost(f"event {self._turn.primary.id} is another worker's now")

    def record_receipt(self, part: Part, receipt: Payload) -> None:
        """Note the receipt of a part. It is stored with the next checkpoint or the turn's end."""
        self._parts[part.key] = {"state": SENT, "receipt": receipt}

    async def record_refusal(self, part: Part) -> None:
        """Store that a part was not sent."""
        self._parts.pop(part.key, None)
        await self._store.checkpoint(self._turn, self.state)


async def _split(channel: Channel, response: Event) -> Sequence[Part]:
    is_large = isinstance(response.payload, str) and len(response.payload) > LARGE
    return await asyncio.to_thread(channel.split, response) if is_large else channel.split(response)

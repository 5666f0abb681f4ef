"""The outbox consumer: delivers each response through its channel."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from holdfast.channels.base import Channel, NotNow, Part, Undeliverable
from holdfast.consumers.request import RequestLimits, SendTimeout, in_time, is_stopped, send
from holdfast.errors import LeaseLost
from holdfast.message import Payload
from holdfast.queue.event import Event
from holdfast.queue.outcome import Dead, Done, Outcome, Retry, Snooze
from holdfast.queue.store import Store
from holdfast.queue.turn import LeasedTurn

LEASE = timedelta(minutes=2)
SENDING, SENT = "sending", "sent"
LARGE = 32 * 1024
"""Payloads over this many characters are split in a thread: converting a megabyte takes a second,
during which the event loop would serve nobody."""


class Delivery:
    """Handles turns of the outbox for the channels that this process serves."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        store: Store,
        limits: RequestLimits | None = None,
    ) -> None:
        self._channels = channels
        self._store = store
        self._limits = limits or RequestLimits()

    async def handle(self, turn: LeasedTurn) -> Outcome:
        channel = self._channels[turn.primary.target]
        try:
            if parts := await _split(channel, turn.primary):
                return await self._send_parts(channel, turn, parts)
            await send(channel.send(turn.primary), turn, self._limits)
            return Done()
        except Undeliverable as error:
            return Dead(str(error), error.code)
        except NotNow as error:
            return Snooze(error.delay)
        except SendTimeout:
            reason = f"the channel did not take it within {self._limits.send_within}"
            return Retry(reason, error_class="timeout")

    async def _send_parts(
        self, channel: Channel, turn: LeasedTurn, parts: Sequence[Part]
    ) -> Outcome:
        progress = Progress(self._store, turn, self._limits.send_within)
        try:
            for part in parts:
                if progress.of(part) != SENT:
                    if is_stopped():
                        raise asyncio.CancelledError
                    await self._send_part(channel, turn, part, progress)
        except BaseException:
            # Without their receipts, parts that were sent would be sent again.
            await progress.keep_receipts()
            raise
        # The receipt of the last part is stored with the turn's end.
        return Done(state=progress.state)

    async def _send_part(
        self, channel: Channel, turn: LeasedTurn, part: Part, progress: Progress
    ) -> None:
        response, within = turn.primary, self._limits.send_within
        if progress.of(part) == SENDING:
            receipt = await in_time(channel.find_part(response, part, progress.note(part)), within)
            if receipt is not None:
                return progress.record_receipt(part, receipt)
        try:
            note = await in_time(channel.prepare_part(response, part), within)
            await progress.sending(part, note)
            receipt = await send(channel.send_part(response, part, note), turn, self._limits)
            progress.record_receipt(part, receipt)
        except (NotNow, Undeliverable):
            # It was not sent, so the next attempt need not look for it.
            await progress.record_refusal(part)
            raise


class Progress:
    """Delivery progress of each part, stored with the event under the turn's fence."""

    def __init__(self, store: Store, turn: LeasedTurn, send_within: timedelta) -> None:
        self._store = store
        self._turn = turn
        self._send_within = send_within
        self._parts: dict[str, Payload] = dict((turn.primary.state or {}).get("parts", {}))
        self._has_new_receipts = False

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
        """Store that a part is being sent. After a crash the platform must be asked for it.

        Raises LeaseLost if another worker has the turn."""
        self._parts[part.key] = {"state": SENDING, "note": note}
        while not await self._keep_with_lease():
            pass

    async def _keep_with_lease(self) -> bool:
        """Store the progress, and renew a short lease.

        Returns whether a request that begins now ends before another worker may take the turn."""
        needed = self._send_within
        asked_at = time.monotonic()
        left = await self._keep() - await self._store.now()
        if left < needed:
            asked_at, left = time.monotonic(), max(LEASE, needed * 4 / 3)
            if await self._store.renew([self._turn], left):
                raise LeaseLost(f"event {self._turn.primary.id} is another worker's now")
        # This process may have been suspended since it asked.
        asleep = time.monotonic() - asked_at
        return left.total_seconds() - asleep >= needed.total_seconds()

    def record_receipt(self, part: Part, receipt: Payload) -> None:
        """Note the receipt of a part. It is stored with the next checkpoint or the turn's end."""
        self._parts[part.key] = {"state": SENT, "receipt": receipt}
        self._has_new_receipts = True

    async def record_refusal(self, part: Part) -> None:
        """Store that a part was not sent."""
        self._parts.pop(part.key, None)
        await self._keep()

    async def keep_receipts(self) -> None:
        """Store receipts that no checkpoint has stored yet."""
        if self._has_new_receipts:
            await self._keep()

    async def _keep(self) -> datetime:
        until = await self._store.checkpoint(self._turn, self.state)
        self._has_new_receipts = False
        return until


async def _split(channel: Channel, response: Event) -> Sequence[Part]:
    is_large = isinstance(response.payload, str) and len(response.payload) > LARGE
    return await asyncio.to_thread(channel.split, response) if is_large else channel.split(response)

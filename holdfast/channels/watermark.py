"""Watermarks: the point up to which a channel has stored everything, and the last gap."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from holdfast.channels.budget import SettingsStore
from holdfast.telemetry import (
    GAP_MESSAGES,
    LAST_GAP_CLOSED,
    LAST_GAP_MESSAGES,
    LAST_GAP_SECONDS,
)
from holdfast.telemetry.instruments import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A time without a connection. Afterwards the channel fetched the missed messages."""

    messages: int
    since: datetime | None
    closed_at: datetime


class Watermarks:
    """The watermarks of one channel, by source: a room, a mailbox, or the account itself."""

    def __init__(self, store: SettingsStore, channel: str) -> None:
        self._store = store
        self._channel = channel

    async def read(self, source: str) -> str | None:
        """Return the position up to which everything is stored, None before the first one."""
        found = await self._store.setting(self._key(source))
        return None if found is None else str(found["position"])

    async def written_at(self, source: str) -> datetime | None:
        """Return when the position was written, None before the first one."""
        found = await self._store.setting(self._key(source))
        return None if found is None else datetime.fromisoformat(found["at"])

    async def write(self, source: str, position: str) -> None:
        """Move the position. Call it only after everything up to it was put."""
        at = (await self._store.now()).isoformat()
        await self._store.set_setting(self._key(source), {"position": position, "at": at})

    async def note_gap(self, found: int, since: datetime | None = None) -> None:
        """Record that a gap was closed and how many messages it brought, for doctor and metrics."""
        GAP_MESSAGES.add(self._channel, by=found)
        at = (await self._store.now()).isoformat()
        value = {"messages": found, "since": since and since.isoformat(), "at": at}
        await self._store.set_setting(f"gap/{self._channel}", value)

    async def last_gap(self) -> Gap | None:
        """Return the gap that any process closed last."""
        found = await self._store.setting(f"gap/{self._channel}")
        if found is None:
            return None
        since = found["since"] and datetime.fromisoformat(found["since"])
        closed_at = datetime.fromisoformat(found["at"])
        return Gap(messages=found["messages"], since=since or None, closed_at=closed_at)

    def _key(self, source: str) -> str:
        return f"watermark/{self._channel}/{source}"


async def read_last_gaps(store: SettingsStore, channels: Iterable[str]) -> list[Reading]:
    """Return the gauges of the last gap of each channel, closed by any process."""
    readings: list[Reading] = []
    for channel in channels:
        gap = await Watermarks(store, channel).last_gap()
        if gap is not None:
            readings.append((LAST_GAP_MESSAGES, (channel,), gap.messages))
            readings.append((LAST_GAP_CLOSED, (channel,), gap.closed_at.timestamp()))
            if gap.since is not None:
                seconds = (gap.closed_at - gap.since).total_seconds()
                readings.append((LAST_GAP_SECONDS, (channel,), seconds))
    return readings

"""Counts of the messages of bots by conversation, shared by all processes."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from functools import cached_property
from typing import Any

from holdfast.queue.store import Store
from holdfast.store.payload import dump
from holdfast.store.scoped import Dialect, dialect_of

MOST_ANSWERS = 10
"""Messages of bots that are answered in a conversation before a person has to write."""
WINDOW = timedelta(minutes=10)
"""Time after which messages of bots no longer count."""
MOST_CONVERSATIONS = 1000
"""Conversations of a channel whose bots are counted; the quietest ones are dropped first."""

Times = dict[str, list[float]]
"""Unix times of messages, by conversation."""


class BotCounts:
    """Messages of bots since the last message of a person, by conversation of one channel.

    One stored value holds all counts. It is replaced only if no other process has replaced it since
    it was read. It holds no names, and forgets what is older than the window."""

    def __init__(
        self, store: Store, channel: str, *, most_conversations: int = MOST_CONVERSATIONS
    ) -> None:
        self._store = store
        self._key = f"bots/{channel}"
        self._most_conversations = most_conversations

    async def count(self, conversation: str) -> bool:
        """Count a message. Returns False if it is over the limit."""
        name = _name(conversation)
        while True:
            before, times = await self._read()
            now = (await self._store.now()).timestamp()
            counted = _recent(times, now)
            own = counted.pop(name, [])
            if len(own) >= MOST_ANSWERS:
                return False
            newest = dict([*counted.items(), (name, [*own, now])][-self._most_conversations :])
            if await self._replace(before, newest):
                return True

    async def reset(self, conversation: str) -> None:
        """Reset the count of a conversation, because a person has written."""
        name = _name(conversation)
        while True:
            before, times = await self._read()
            if times.pop(name, None) is None or await self._replace(before, times):
                return

    async def _read(self) -> tuple[str | None, Times]:
        """Return the value as it is stored, None before the first one, and its content."""
        rows = await self._dialect.rows(
            f"select value from {self._table} where key = {self._mark('key')}", {"key": self._key}
        )
        if not rows:
            return None, {}
        [[value]] = rows
        # SQLite returns the text, PostgreSQL its content.
        return (value, json.loads(value)) if isinstance(value, str) else (dump(value), value)

    async def _replace(self, before: str | None, times: Times) -> bool:
        """Store a value. Returns False if another process was faster."""
        if before is None:
            statement = (
                f"insert into {self._table} (key, value)"
                f" values ({self._mark('key')}, {self._mark('value')})"
                " on conflict (key) do nothing returning key"
            )
        else:
            statement = (
                f"update {self._table} set value = {self._mark('value')}"
                f" where key = {self._mark('key')} and value = {self._mark('before')} returning key"
            )
        values: dict[str, Any] = {"key": self._key, "value": dump(times), "before": before}
        return bool(await self._dialect.write(statement, values))

    @cached_property
    def _dialect(self) -> Dialect:
        # Opened at the first use, since `doctor` checks channels without a database.
        return dialect_of(self._store)

    @property
    def _table(self) -> str:
        return f"{self._dialect.schema}setting"

    def _mark(self, name: str) -> str:
        return self._dialect.mark.format(name)


def _name(conversation: str) -> str:
    return hashlib.sha256(conversation.encode(errors="replace")).hexdigest()[:24]


def _recent(times: Times, now: float) -> Times:
    """Return the times that still count, the conversation that was quiet longest first."""
    oldest = now - WINDOW.total_seconds()
    kept = {name: [at for at in found if at > oldest] for name, found in times.items()}
    return dict(sorted(((name, found) for name, found in kept.items() if found), key=_last))


def _last(counted: tuple[str, list[float]]) -> float:
    return counted[1][-1]

"""The plan of a proof: which app, how many messages, which faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random

from holdfast.settings.channels import channel_variables

ATTEMPTS = 1000
"""Attempts of a message: more than any run can use up by killing its workers."""
LEASE = timedelta(seconds=2)
QUICK = {
    "HOLDFAST_LEASE": f"{LEASE.total_seconds():g}s",
    "HOLDFAST_RETRY_FIRST": "100ms",
    "HOLDFAST_RETRY_MOST": "1s",
    "HOLDFAST_POLL": "1s",
    "HOLDFAST_POLL_JITTER": "0s",
    "HOLDFAST_HEARTBEAT": "0s",
    "HOLDFAST_GRACE": "5s",
    "HOLDFAST_LOG_LEVEL": "error",
    "HOLDFAST_DATABASE_DIRECT": "",
}
"""Settings of the workers: leases and delays short enough for a run of seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A proof of one app."""

    app: str
    config: Path | None = None
    database: str = ""
    """A PostgreSQL server for temporary databases; empty for SQLite files."""
    texts: tuple[str, ...] = ()
    agent: str | None = None
    messages: int = 40
    conversations: int = 8
    workers: int = 2
    duration: timedelta = timedelta(seconds=10)
    """Length of the time in which faults happen."""

    def inputs(self) -> Iterator[Input]:
        """Yield the messages to send, in order."""
        for number in range(self.messages):
            conversation = number % self.conversations
            text = f"message {number} of conversation {conversation}"
            if self.texts:
                text = self.texts[number % len(self.texts)]
            yield Input(number, f"person-{conversation}", text)

    def environment(self, inherited: dict[str, str]) -> dict[str, str]:
        """Return the environment of a worker: short delays, and no tokens of any platform."""
        # Empty instead of missing: what is set is not read from a .env file.
        return inherited | QUICK | dict.fromkeys(channel_variables(), "")


@dataclass(frozen=True, slots=True)
class Input:
    """A message to send."""

    number: int
    sender: str
    text: str

    @property
    def message_id(self) -> str:
        return f"prove_{self.number}"

    def lateness(self, seed: int) -> timedelta:
        """Return by how much the platform's time of the message lies in the past."""
        rng = Random(f"{seed} {self.number}")
        return timedelta(minutes=rng.choice((0, 0, 0, 1, 90)))

"""A channel is a way in and out: it receives messages from a platform and delivers responses to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from holdfast.errors import HoldfastError
from holdfast.event import Event, NewEvent

Put = Callable[[NewEvent], Awaitable[int | None]]
"""Stores a message and returns after commit: only then may a channel acknowledge its platform."""


class Undeliverable(HoldfastError):
    """The platform will never take this response; `code` is what it said."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code} {message}")
        self.code = code


class Channel(Protocol):
    """One platform, one workspace."""

    name: str

    async def run(self, put: Put) -> None:
        """Receive until cancelled."""

    async def send(self, response: Event) -> None:
        """Deliver one response; raise Undeliverable where trying again is useless."""

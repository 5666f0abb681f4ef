"""Crowds: people who write to the bot in many threads of one platform, for load and latency.

async with open_crowd("discord") as crowd:
    ...  # an app with crowd.variables in its environment
    crowd.connect("http://127.0.0.1:3777")
    await crowd.say(0, "hello")
    await crowd.wait(1)
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple

WITHIN = 1200.0
"""Default time limit of `wait`, in seconds."""


class Answer(NamedTuple):
    """A message of the bot, and when the platform took it."""

    text: str
    at: float


class Crowd(ABC):
    """Threads of one platform, by number. The first message in a thread opens it."""

    title: str
    per_second: int = 20
    """Messages per second in a measurement, slow enough that none queues up."""
    needs_http: bool = False
    """Whether the platform calls the app, which must therefore serve HTTP."""
    poll_seconds: float = 0.5
    """Seconds between two looks at all answers."""

    def __init__(self) -> None:
        self.sent_at: defaultdict[int, list[float]] = defaultdict(list)
        """Times of the messages in each thread."""

    @property
    @abstractmethod
    def variables(self) -> Mapping[str, str]:
        """Environment variables that turn the channel on."""

    def connect(self, address: str) -> None:
        """Take the base URL of the app, for platforms that call it."""
        return

    async def wait_ready(self) -> None:
        """Wait until the platform sees the app, where it can tell."""
        return

    async def say(self, thread: int, text: str) -> None:
        """Write a message to the bot in a thread."""
        self.sent_at[thread].append(time.time())
        await self.write(thread, text)

    @abstractmethod
    async def write(self, thread: int, text: str) -> None:
        """Bring a message to the platform."""

    @abstractmethod
    async def answers(self) -> Mapping[int, list[Answer]]:
        """Return the messages of the bot now, by thread, oldest first."""

    def limit(self) -> None:
        """Apply a rate limit like the platform's own, if the server can. Call before the start."""
        return

    @property
    def early_requests(self) -> Counter[str]:
        """Requests of the app while a rate limit asked it to wait, by method."""
        return Counter()

    async def wait(self, count: int, within: float = WITHIN) -> Mapping[int, list[Answer]]:
        """Wait for `count` messages of the bot. Returns them, by thread."""
        give_up_at = time.monotonic() + within
        while True:
            found = await self.answers()
            there = sum(map(len, found.values()))
            if there >= count:
                return found
            assert time.monotonic() < give_up_at, f"{there} of {count} answers"
            await asyncio.sleep(self.poll_seconds)

    async def ask(self, threads: int, each: int) -> None:
        """Write `each` messages, numbered, in each of many threads, one after the other."""
        for number in range(each):
            for thread in range(threads):
                await self.say(thread, str(number))


def answered_in_order(found: Mapping[int, list[Answer]], threads: int, each: int) -> bool:
    """Return whether all messages of `ask` were answered once and in order by an echo."""
    wanted = [f"you said {number}" for number in range(each)]
    return all(
        [answer.text for answer in found.get(thread, ())] == wanted for thread in range(threads)
    )


def _slack() -> Callable[[], AbstractAsyncContextManager[Crowd]]:
    from holdfast.testing.crowds.slack import slack_crowd

    return slack_crowd


def _discord() -> Callable[[], AbstractAsyncContextManager[Crowd]]:
    from holdfast.testing.crowds.discord import discord_crowd

    return discord_crowd


def _telegram() -> Callable[[], AbstractAsyncContextManager[Crowd]]:
    from holdfast.testing.crowds.telegram import telegram_crowd

    return telegram_crowd


def _whatsapp() -> Callable[[], AbstractAsyncContextManager[Crowd]]:
    from holdfast.testing.crowds.whatsapp import whatsapp_crowd

    return whatsapp_crowd


def _email() -> Callable[[], AbstractAsyncContextManager[Crowd]]:
    from holdfast.testing.crowds.email import email_crowd

    return email_crowd


def _matrix() -> Callable[[], AbstractAsyncContextManager[Crowd]]:
    from holdfast.testing.crowds.matrix import matrix_crowd

    return matrix_crowd


# Imported on demand: each needs the library of its platform.
CROWDS = {
    "slack": _slack,
    "matrix": _matrix,
    "discord": _discord,
    "telegram": _telegram,
    "whatsapp": _whatsapp,
    "email": _email,
}


@asynccontextmanager
async def open_crowd(channel: str) -> AsyncIterator[Crowd]:
    """Start the server of a platform. Raises Unavailable if it cannot be had."""
    async with CROWDS[channel]()() as crowd:
        yield crowd

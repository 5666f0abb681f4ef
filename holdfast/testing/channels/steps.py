"""Steps of the contract of channels: running an app, and waiting for what it does."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from holdfast.agents.turn import Turn
from holdfast.api.server import serve_metrics
from holdfast.app import AgentHarness
from holdfast.channels.base import Channel, Put
from holdfast.queue.event import INBOX, Event
from holdfast.queue.policy import Backoff
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.testing.channels.platform import Platform
from holdfast.testing.harness import running

SHORT_WAIT = timedelta(milliseconds=20)
LOOPBACK = "127.0.0.1"


class Silent(Channel):
    """Another channel of the same process."""

    name = "silent"

    async def run(self, put: Put) -> None:
        return

    async def send(self, response: Event) -> None:
        return


@asynccontextmanager
async def running_on(
    app: AgentHarness, platform: Platform, settings: Settings, receive: Put | None = None
) -> AsyncIterator[None]:
    """Run an app with the channel; `receive` replaces the way in which it stores messages."""
    if receive is not None:
        app.receive = receive  # type: ignore[method-assign, assignment]
    app.settings = settings
    platform.prepare(app)
    async with running(app, settings):
        yield


async def readyz(app: AgentHarness) -> tuple[int, dict[str, str]]:
    """Return the status and the content of /readyz."""

    def ask(port: int) -> tuple[int, dict[str, str]]:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/readyz") as answer:
            return answer.status, json.load(answer)

    async with serve_metrics(app, LOOPBACK, 0) as port:
        return await asyncio.to_thread(ask, port)


def write_huge_file(settings: Settings, name: str, size: int) -> None:
    """Write a file of zeros for agents to send, which takes no space."""
    settings.files.mkdir()
    with (settings.files / name).open("wb") as file:
        file.truncate(size)


def shorten_waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Shorten all back-offs. Returns the list of the failures in a row that each one counts."""
    failures: list[int] = []

    def delay(backoff: Backoff, attempt: int) -> timedelta:
        failures.append(attempt)
        return SHORT_WAIT

    monkeypatch.setattr(Backoff, "delay", delay)
    return failures


def require(platform: Platform, flag: str) -> None:
    """Skip a test of a feature that the platform lacks."""
    if not (value := getattr(platform, flag)):
        pytest.skip(f"{platform.name}: {flag} is {value}")


SlowAgent = Callable[[Turn], Awaitable[str]]


def slow_agent() -> tuple[list[str], asyncio.Event, asyncio.Event, SlowAgent]:
    """Return the texts that an agent gets, events of its start and end, and the agent.

    It sets the first event when a turn begins, and answers once the second one is set."""
    texts: list[str] = []
    working, may_end = asyncio.Event(), asyncio.Event()

    async def answer(turn: Turn) -> str:
        texts.append(turn.text)
        working.set()
        await may_end.wait()
        return f"you said {turn.text}"

    return texts, working, may_end, answer


async def has_waiting(app: AgentHarness, text: str) -> bool:
    """Return whether a message with this text waits for its agent."""
    # Messages that name no agent wait for the default one under no name.
    return any(event.text == text for event in await app.store.waiting(INBOX, ""))


async def has_no_waiting(app: AgentHarness, text: str) -> bool:
    return not await has_waiting(app, text)


async def contains(platform: Platform, text: str) -> bool:
    return any(text in answer for answer in await platform.answers())


async def has_answers_to_stranger(platform: Platform, count: int) -> bool:
    return len(await platform.answers_to_stranger()) >= count


async def stored_messages(settings: Settings) -> list[Event]:
    """Return all messages that were ever stored."""
    async with open_store(settings.database) as store:
        return await store.recent(INBOX, limit=100)

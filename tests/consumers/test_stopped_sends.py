"""A graceful stop lets a request that is under way finish, so that its receipt is stored."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta

import pytest

from holdfast.channels.base import Channel, Part, Put, part_key
from holdfast.chat import ChatStore
from holdfast.consumers.outbox import Delivery
from holdfast.consumers.request import RequestLimits
from holdfast.message import Payload
from holdfast.queue.event import OUTBOX, Event, NewEvent
from holdfast.queue.store import Filter
from holdfast.telemetry import TURNS_RELEASED
from holdfast.telemetry.logs import Entry
from tests.steps import AT_ONCE, both_engines, consuming, finished, policy, until

SHORT = timedelta(milliseconds=100)


class Blind(Channel):
    """A platform that shows each text it takes, and can look nothing up."""

    name = "blind"

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.taking, self.answering = asyncio.Event(), asyncio.Event()
        self.interrupted = 0

    async def run(self, put: Put) -> None:
        """Nothing comes in."""

    async def _take(self, text: str) -> Payload:
        self.shown.append(text)
        self.taking.set()
        try:
            await self.answering.wait()
        except asyncio.CancelledError:
            self.interrupted += 1
            raise
        return {"number": len(self.shown)}


class InParts(Blind):
    def split(self, response: Event) -> Sequence[Part]:
        texts = response.event["message"].split()
        return [Part(part_key(response, number), text) for number, text in enumerate(texts)]

    async def send_part(self, response: Event, part: Part, note: Payload) -> Payload:
        return await self._take(part.text)


class Whole(Blind):
    async def send(self, response: Event) -> None:
        await self._take(response.event["message"])


async def respond(store: ChatStore, text: str) -> None:
    await store.put([NewEvent(event={"message": text}, queue=OUTBOX, target="blind")])


@asynccontextmanager
async def delivering(
    store: ChatStore, channel: Channel, limits: RequestLimits | None = None
) -> AsyncIterator[None]:
    delivery = Delivery({"blind": channel}, store, limits)
    how = policy("blind", queue=OUTBOX)
    async with consuming(store, delivery.handle, how, grace=AT_ONCE):
        yield


@contextmanager
def after_the_stop(act: Callable[[], object]) -> Iterator[None]:
    """Act once the grace period is over and the running turns are being cancelled."""
    loop = asyncio.get_running_loop()

    class OnRelease(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if isinstance(record.msg, Entry) and record.msg.event == TURNS_RELEASED:
                loop.call_soon(act)

    log, handler = logging.getLogger("holdfast.queue.consumer"), OnRelease()
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


@both_engines
@pytest.mark.parametrize("kind", [InParts, Whole])
async def test_a_response_that_is_under_way_at_a_stop_is_sent_once(
    store: ChatStore, kind: type[Blind]
) -> None:
    channel = kind()
    await respond(store, "one")
    with after_the_stop(channel.answering.set):
        async with delivering(store, channel):
            await channel.taking.wait()
    [ended] = await store.finished(Filter())
    assert (ended.outcome, ended.attempts) == ("completed", 1)
    assert (channel.shown, channel.interrupted) == (["one"], 0)


@both_engines
async def test_a_stop_between_parts_keeps_the_receipt_and_leaves_the_rest(
    store: ChatStore,
) -> None:
    channel = InParts()
    await respond(store, "one two")
    with after_the_stop(channel.answering.set):
        async with delivering(store, channel):
            await channel.taking.wait()
    [left] = await store.waiting(OUTBOX, "blind")
    assert channel.shown == ["one"]
    assert (left.attempts, list((left.state or {})["parts"].values())) == (
        0,
        [{"state": "sent", "receipt": {"number": 1}}],
    )
    async with delivering(store, channel):
        await finished(store)
    assert channel.shown == ["one", "two"]


async def test_a_request_that_outlasts_the_stop_leaves_its_part_unknown(
    store: ChatStore, caplog: pytest.LogCaptureFixture
) -> None:
    channel = InParts()
    await respond(store, "one")
    async with delivering(store, channel, RequestLimits(finish_within=SHORT)):
        await channel.taking.wait()
    [left] = await store.waiting(OUTBOX, "blind")
    assert channel.interrupted == 1
    assert [part["state"] for part in (left.state or {})["parts"].values()] == ["sending"]
    assert "whether the platform took it is unknown" in caplog.text


async def test_a_request_of_a_turn_that_was_cancelled_is_cut_off(store: ChatStore) -> None:
    channel = InParts()
    await respond(store, "one")
    how = policy("blind", queue=OUTBOX, lease=3 * SHORT)
    async with consuming(store, Delivery({"blind": channel}, store).handle, how) as consumer:
        await channel.taking.wait()
        [turn] = await store.leased(OUTBOX)
        assert await store.cancel(turn.id, "by hand")
        await until(lambda: consumer.running == 0)
        await until(lambda: channel.interrupted)


class Exits(Blind):
    async def send(self, response: Event) -> None:
        sys.exit(3)


async def test_a_channel_that_calls_exit_does_not_end_the_process(store: ChatStore) -> None:
    await store.put(
        [NewEvent(event={"message": "one"}, queue=OUTBOX, target="blind", max_attempts=1)]
    )
    async with delivering(store, Exits()):
        [letter] = await finished(store)
    assert (letter.outcome, letter.error_class) == ("dead", "SystemExit")

"""Delivery in parts: fenced, with enough lease left, and looked up before a repetition."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import cast

import pytest

from holdfast.channels.base import Channel, NotNow, Part, Put, Undeliverable, part_key
from holdfast.consumers.outbox import LARGE, LEASE, Delivery
from holdfast.consumers.request import SEND_WITHIN
from holdfast.errors import LeaseLost
from holdfast.message import Payload
from holdfast.queue.event import OUTBOX, Event, NewEvent
from holdfast.queue.outcome import Dead, Done, Snooze
from holdfast.queue.store import Store
from holdfast.queue.turn import LeasedTurn
from holdfast.testing.clock import Clock
from tests.steps import Proxy


@pytest.fixture(autouse=True)
def slack_in_the_environment() -> None:
    """Set nothing: these tests need no Slack."""


class Words(Channel):
    """A platform that takes one word at a time, and can look words up."""

    name = "words"

    def __init__(self) -> None:
        self.posted: list[str] = []
        self.asked: list[str] = []
        self.failures: list[Exception] = []
        self.taken_before_failing = False

    async def run(self, put: Put) -> None:
        """Nothing comes in."""

    def split(self, response: Event) -> Sequence[Part]:
        return [
            Part(part_key(response, n), text)
            for n, text in enumerate(response.event["message"].split())
        ]

    async def prepare_part(self, response: Event, part: Part) -> Payload:
        return {"size": len(part.text)}

    async def send_part(self, response: Event, part: Part, note: Payload) -> Payload:
        if self.taken_before_failing or not self.failures:
            self.posted.append(part.text)
        if self.failures:
            raise self.failures.pop(0)
        return {"number": len(self.posted)}

    async def find_part(self, response: Event, part: Part, note: Payload) -> Payload | None:
        self.asked.append(part.text)
        return {"number": note["size"]} if part.text in self.posted else None


async def claim(store: Store) -> LeasedTurn:
    [turn] = await store.claim(OUTBOX, ["words"], limit=1, lease=LEASE)
    return turn


async def response(store: Store, text: str = "one two three") -> LeasedTurn:
    payload = {"kind": "response", "channel": "words", "message": text}
    await store.put([NewEvent(event=payload, queue=OUTBOX, target="words", message_id="m/1")])
    return await claim(store)


async def test_every_part_is_sent_once_in_order_and_its_receipt_kept(store: Store) -> None:
    words = Words()
    turn = await response(store)
    outcome = await Delivery({"words": words}, store).handle(turn)
    assert words.posted == ["one", "two", "three"]
    assert isinstance(outcome, Done)
    parts = (outcome.state or {})["parts"]
    assert list(parts) == [f"m/1.{turn.primary.id}.{n}" for n in range(3)]
    assert [part["receipt"] for part in parts.values()] == [{"number": n} for n in (1, 2, 3)]
    assert words.asked == []


async def test_a_worker_that_lost_its_lease_sends_nothing(store: Store, clock: Clock) -> None:
    words = Words()
    old = await response(store)
    clock.tick(minutes=3)
    new = await claim(store)
    with pytest.raises(LeaseLost):
        await Delivery({"words": words}, store).handle(old)
    assert words.posted == []
    assert isinstance(await Delivery({"words": words}, store).handle(new), Done)
    assert words.posted == ["one", "two", "three"]


async def test_a_request_begins_with_more_lease_than_it_may_take(
    store: Store, clock: Clock
) -> None:
    words = Words()
    turn = await response(store)
    clock.tick(seconds=(LEASE - SEND_WITHIN / 2).total_seconds())
    await Delivery({"words": words}, store).handle(turn)
    event = await store.live(turn.primary.id)
    assert event is not None
    assert event.vt - clock.now >= SEND_WITHIN


class Suspended:
    """A process that is suspended right after a call of its store, as by SIGSTOP."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
        self._clock = clock
        self._asleep = 0.0
        awake = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: awake() + self._asleep)

    def sleep(self, **duration: float) -> None:
        self._clock.tick(**duration)
        self._asleep += timedelta(**duration).total_seconds()


async def test_a_worker_suspended_between_checkpoint_and_request_sends_nothing(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, suspended, proxy = Words(), Suspended(monkeypatch, clock), Proxy(store)
    turn, others = await response(store), list[LeasedTurn]()

    async def suspend() -> None:
        if not others:
            suspended.sleep(minutes=3)
            others.append(await claim(store))

    proxy.after["now"] = suspend
    with pytest.raises(LeaseLost):
        await Delivery({"words": words}, cast(Store, proxy)).handle(turn)
    assert words.posted == []
    assert isinstance(await Delivery({"words": words}, store).handle(others[0]), Done)
    assert words.posted == ["one", "two", "three"]


async def test_a_worker_suspended_for_part_of_its_lease_renews_it_before_the_request(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, suspended, proxy = Words(), Suspended(monkeypatch, clock), Proxy(store)
    turn, left = await response(store, "one"), list[timedelta]()

    async def suspend() -> None:
        if proxy.calls["now"] == 1:
            suspended.sleep(seconds=(LEASE - SEND_WITHIN / 2).total_seconds())

    async def note_lease(*_: object) -> Payload:
        event = await store.live(turn.primary.id)
        assert event is not None
        left.append(event.vt - clock.now)
        return {}

    proxy.after["now"] = suspend
    monkeypatch.setattr(words, "send_part", note_lease)
    assert isinstance(await Delivery({"words": words}, cast(Store, proxy)).handle(turn), Done)
    assert left >= [SEND_WITHIN]


async def test_a_part_that_may_have_arrived_is_looked_up_and_the_rest_sent(
    store: Store, clock: Clock
) -> None:
    words = Words()
    words.failures, words.taken_before_failing = [ConnectionError("reset")], True
    delivery = Delivery({"words": words}, store)
    with pytest.raises(ConnectionError):
        await delivery.handle(await response(store))
    clock.tick(minutes=3)
    assert isinstance(await delivery.handle(await claim(store)), Done)
    assert words.posted == ["one", "two", "three"]
    assert words.asked == ["one"]


async def test_a_part_that_did_not_arrive_is_sent_after_the_look_up(
    store: Store, clock: Clock
) -> None:
    words = Words()
    words.failures = [ConnectionError("refused")]
    delivery = Delivery({"words": words}, store)
    with pytest.raises(ConnectionError):
        await delivery.handle(await response(store))
    clock.tick(minutes=3)
    await delivery.handle(await claim(store))
    assert (words.posted, words.asked) == (["one", "two", "three"], ["one"])


async def test_a_refusal_needs_no_look_up_and_keeps_sent_parts(store: Store) -> None:
    words = Words()
    turn = await response(store)
    delivery = Delivery({"words": words}, store)
    words.failures = [NotNow(timedelta(seconds=7))]
    assert await delivery.handle(turn) == Snooze(timedelta(seconds=7))
    words.failures = [Undeliverable("gone", "for ever")]
    assert await delivery.handle(turn) == Dead("gone for ever", "gone")
    event = await store.live(turn.primary.id)
    assert event is not None
    assert event.state == {"parts": {}}
    assert (words.posted, words.asked) == ([], [])


class FailsToPrepare(Words):
    """Fails before the second part, as an upload may, and can look nothing up."""

    failed = False

    async def prepare_part(self, response: Event, part: Part) -> Payload:
        if self.posted and not self.failed:
            self.failed = True
            raise ConnectionError("the upload failed")
        return {}

    async def find_part(self, response: Event, part: Part, note: Payload) -> Payload | None:
        return None


async def test_a_failure_before_a_part_keeps_the_receipt_of_the_one_before(
    store: Store, clock: Clock
) -> None:
    words = FailsToPrepare()
    delivery = Delivery({"words": words}, store)
    with pytest.raises(ConnectionError):
        await delivery.handle(await response(store))
    clock.tick(minutes=3)
    assert isinstance(await delivery.handle(await claim(store)), Done)
    assert words.posted == ["one", "two", "three"]


class SlowWords(Words):
    """Splits only once the event loop has run on."""

    def __init__(self) -> None:
        super().__init__()
        self.loop_runs = threading.Event()

    def split(self, response: Event) -> Sequence[Part]:
        assert self.loop_runs.wait(10), "nothing else ran meanwhile"
        return [Part(part_key(response, 0), "done")]


async def test_the_event_loop_runs_on_while_a_large_response_is_split(store: Store) -> None:
    """Without that, converting a megabyte of Markdown would stop all work for a second."""
    words = SlowWords()
    turn = await response(store, "word " * LARGE)
    asyncio.get_running_loop().call_soon(words.loop_runs.set)
    assert isinstance(await Delivery({"words": words}, store).handle(turn), Done)
    assert words.posted == ["done"]

"""Delivery in parts: what is sent is fenced, with more lease left than the request may take, and never sent blindly."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from holdfast.channels.base import Channel, NotNow, Part, Put, Undeliverable, part_key
from holdfast.consumers.outbox import LEASE, SEND_WITHIN, Delivery
from holdfast.errors import LeaseLost
from holdfast.message import Payload
from holdfast.queue.event import OUTBOX, Event, NewEvent
from holdfast.queue.outcome import Dead, Done, Snooze
from holdfast.queue.store import Store
from holdfast.queue.turn import LeasedTurn
from holdfast.testing.clock import Clock


@pytest.fixture(autouse=True)
def slack_in_the_environment() -> None:
    """None is needed here."""


class Letters(Channel):
    """A platform that takes words, one by one, and can be asked for them."""

    name = "letters"

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
    [turn] = await store.claim(OUTBOX, ["letters"], limit=1, lease=LEASE)
    return turn


async def response(store: Store, text: str = "one two three") -> LeasedTurn:
    payload = {"kind": "response", "channel": "letters", "message": text}
    await store.put([NewEvent(event=payload, queue=OUTBOX, target="letters", message_id="m/1")])
    return await claim(store)


async def test_every_part_is_sent_once_in_order_and_its_receipt_kept(store: Store) -> None:
    letters = Letters()
    turn = await response(store)
    outcome = await Delivery({"letters": letters}, store).handle(turn)
    assert letters.posted == ["one", "two", "three"]
    assert isinstance(outcome, Done)
    parts = (outcome.state or {})["parts"]
    assert list(parts) == [f"m/1.{turn.primary.id}.{n}" for n in range(3)]
    assert [part["receipt"] for part in parts.values()] == [{"number": n} for n in (1, 2, 3)]
    assert letters.asked == []


async def test_who_lost_its_lease_sends_nothing(store: Store, clock: Clock) -> None:
    letters = Letters()
    old = await response(store)
    clock.tick(minutes=3)
    new = await claim(store)
    with pytest.raises(LeaseLost):
        await Delivery({"letters": letters}, store).handle(old)
    assert letters.posted == []
    assert isinstance(await Delivery({"letters": letters}, store).handle(new), Done)
    assert letters.posted == ["one", "two", "three"]


async def test_a_request_begins_with_more_lease_than_it_may_take(
    store: Store, clock: Clock
) -> None:
    letters = Letters()
    turn = await response(store)
    clock.tick(seconds=(LEASE - SEND_WITHIN / 2).total_seconds())
    await Delivery({"letters": letters}, store).handle(turn)
    event = await store.live(turn.primary.id)
    assert event is not None
    assert event.vt - clock.now >= SEND_WITHIN


async def test_what_may_have_been_taken_is_looked_up_and_the_rest_sent(
    store: Store, clock: Clock
) -> None:
    letters = Letters()
    letters.failures, letters.taken_before_failing = [ConnectionError("reset")], True
    delivery = Delivery({"letters": letters}, store)
    with pytest.raises(ConnectionError):
        await delivery.handle(await response(store))
    clock.tick(minutes=3)
    assert isinstance(await delivery.handle(await claim(store)), Done)
    assert letters.posted == ["one", "two", "three"]
    assert letters.asked == ["one"]


async def test_what_was_not_taken_is_sent_after_the_look(store: Store, clock: Clock) -> None:
    letters = Letters()
    letters.failures = [ConnectionError("refused")]
    delivery = Delivery({"letters": letters}, store)
    with pytest.raises(ConnectionError):
        await delivery.handle(await response(store))
    clock.tick(minutes=3)
    await delivery.handle(await claim(store))
    assert (letters.posted, letters.asked) == (["one", "two", "three"], ["one"])


async def test_a_refusal_needs_no_look_and_keeps_what_was_sent(store: Store) -> None:
    letters = Letters()
    turn = await response(store)
    delivery = Delivery({"letters": letters}, store)
    letters.failures = [NotNow(timedelta(seconds=7))]
    assert await delivery.handle(turn) == Snooze(timedelta(seconds=7))
    letters.failures = [Undeliverable("gone", "for ever")]
    assert await delivery.handle(turn) == Dead("gone for ever", "gone")
    event = await store.live(turn.primary.id)
    assert event is not None
    assert event.state == {"parts": {}}
    assert (letters.posted, letters.asked) == ([], [])

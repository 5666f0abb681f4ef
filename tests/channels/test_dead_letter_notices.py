"""Senders learn that no answer will come, however many messages die at once."""

from __future__ import annotations

from datetime import timedelta

from holdfast.channels.slack import SlackChannel
from holdfast.channels.slack.access import Access
from holdfast.consumers.notices import PAGE, DeadLetterNotices
from holdfast.queue.event import NewEvent
from holdfast.queue.store import Filter, Store, SweepPolicy
from holdfast.testing.clock import Clock

MANY = 2 * PAGE + 50


def mention(number: int) -> NewEvent:
    payload = {
        "type": "app_mention",
        "channel": "C1",
        "user": "U1",
        "ts": f"{number}.5",
        "text": "<@B> hello",
    }
    return NewEvent(event=payload, message_id=f"slack_T1_C1_{number}.5")


async def expire_all(store: Store, clock: Clock) -> None:
    clock.tick(hours=25)
    await store.sweep(SweepPolicy(queue="inbox", expire_after=timedelta(hours=24)))


async def notice_addresses(store: Store) -> list[str]:
    waiting = await store.waiting("outbox", "slack", limit=1000)
    return sorted(response.event["conversation"] for response in waiting)


async def test_each_of_many_that_die_at_once_is_told_of_once(store: Store, clock: Clock) -> None:
    notices = DeadLetterNotices(store, {"slack": SlackChannel([Access(bot_token="")])})
    await notices.check()
    ids = await store.put([mention(number) for number in range(MANY)])
    await expire_all(store, clock)
    await notices.check()
    everybody = sorted(f"slack:C1:{number}.5" for number in range(MANY))
    assert await notice_addresses(store) == everybody
    await notices.check()
    await DeadLetterNotices(store, {"slack": SlackChannel([Access(bot_token="")])}).check()
    assert await notice_addresses(store) == everybody
    assert len([id for id in ids if id is not None]) == MANY


async def test_a_message_that_is_tried_again_and_dies_again_is_told_of_again(
    store: Store, clock: Clock
) -> None:
    notices = DeadLetterNotices(store, {"slack": SlackChannel([Access(bot_token="")])})
    [id_] = await store.put([mention(1)])
    for times in (1, 2):
        await expire_all(store, clock)
        await notices.check()
        assert await notice_addresses(store) == ["slack:C1:1.5"] * times
        [letter] = await store.died("inbox", (clock.now - timedelta(minutes=1), 0), limit=10)
        assert letter.id == id_
        await store.retry(Filter(ids=[letter.id]))

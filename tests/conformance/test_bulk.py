"""Many events in one put behave like single puts, though PostgreSQL has its own path for them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest

from holdfast.chat import AgentMessage, ChatStore
from holdfast.errors import HoldfastError
from holdfast.queue.event import INBOX, OUTBOX, NewEvent
from holdfast.queue.outcome import Done

MANY = 600
ODD = 'a\ttab, a "quote", a \\ and \\N, a\nline, ü and 🙂'


async def drained(store: ChatStore) -> list[int]:
    """Every event in the order in which it was worked."""
    order = []
    while turns := await store.claim(INBOX, [""], limit=MANY, lease=timedelta(minutes=1)):
        order += [turn.primary.id for turn in turns]
        await store.settle([(turn, Done()) for turn in turns])
    return order


async def test_many_events_of_some_lanes_are_worked_in_the_order_given(store: ChatStore) -> None:
    [waiting] = await store.put([NewEvent(event={}, lane="lane 1")])
    ids = await store.put(
        [NewEvent(event={"n": n}, lane=f"lane {n % 7}" if n % 8 else None) for n in range(MANY)]
    )
    lanes: dict[str, list[int | None]] = {"lane 1": [waiting]}
    for n, id_ in enumerate(ids):
        lanes.setdefault(f"lane {n % 7}" if n % 8 else f"alone {n}", []).append(id_)
    order = await drained(store)
    assert sorted(order) == [waiting, *ids]
    for lane in lanes.values():
        assert [id_ for id_ in order if id_ in lane] == lane


async def test_one_lane_that_waits_among_many_new_ones_keeps_its_head(store: ChatStore) -> None:
    [waiting] = await store.put([NewEvent(event={}, lane="lane 300")])
    ids = await store.put([NewEvent(event={"n": n}, lane=f"lane {n}") for n in range(MANY)])
    order = await drained(store)
    assert sorted(order) == [waiting, *ids]
    assert order[-1] == ids[300]


async def test_equal_lanes_of_two_queues_among_many_are_two(store: ChatStore) -> None:
    queues = [INBOX, OUTBOX] * (MANY // 2)
    ids = await store.put(
        [NewEvent(event={}, queue=queues[n], lane=f"lane {n // 2}") for n in range(MANY)]
    )
    for queue in (INBOX, OUTBOX):
        turns = await store.claim(queue, [""], limit=MANY, lease=timedelta(minutes=1))
        assert [turn.primary.id for turn in turns] == [
            ids[n] for n in range(MANY) if queues[n] == queue
        ]


async def test_each_of_many_events_has_its_own_payload_and_names(store: ChatStore) -> None:
    news = [
        NewEvent(
            event={"n": n}, target=f"t {n}", lane=f"l {n}", message_id=f"m {n}" if n % 5 else None
        )
        for n in range(MANY)
    ]
    known = await store.put(news[10:20])
    ids = await store.put(news)
    for n in (0, 9, 10, 20, 300, MANY - 1):
        id_ = known[0] if ids[n] is None else ids[n]
        stored = await store.live(id_ or 0)
        assert stored is not None
        assert stored.event == {"n": n}
        assert (stored.target, stored.lane, stored.message_id) == (
            news[n].target,
            news[n].lane,
            news[n].message_id,
        )
    assert [n for n, id_ in enumerate(ids) if id_ is None] == [n for n in range(10, 20) if n % 5]


async def test_many_events_whose_put_is_cancelled_are_stored_whole_or_not_at_all(
    store: ChatStore,
) -> None:
    for moments in (1, 3, 10, 30, 100):
        put = asyncio.create_task(
            store.put([NewEvent(event={}, lane=f"lane {n}") for n in range(MANY)])
        )
        for _ in range(moments):
            await asyncio.sleep(0)
        put.cancel()
        with suppress(asyncio.CancelledError):
            await put
    assert None not in await store.put([NewEvent(event={}, lane=f"lane {n}") for n in range(MANY)])
    assert len(await drained(store)) % MANY == 0


async def test_known_messages_among_many_are_left_out(store: ChatStore) -> None:
    await store.put([NewEvent(event={}, message_id="m 7", lane="lane 7")])
    news = [
        NewEvent(event={"n": n}, message_id=f"m {n % 500}", lane=f"lane {n}") for n in range(MANY)
    ]
    ids = await store.put(news)
    assert [n for n, id_ in enumerate(ids) if id_ is None] == [7, *range(500, MANY)]
    assert await store.put(news) == [None] * MANY
    assert len(await drained(store)) == 500


async def test_many_events_keep_whatever_they_hold(store: ChatStore) -> None:
    odd = NewEvent(event={"text": ODD}, target=ODD, lane=ODD, message_id=ODD, max_attempts=7)
    [first, *_, last] = await store.put(
        [odd, *(NewEvent(event={}) for _ in range(MANY)), NewEvent(event={})]
    )
    assert first is not None
    assert last is not None
    stored, plain = await store.live(first), await store.live(last)
    assert stored is not None
    assert plain is not None
    assert (stored.event, stored.target, stored.lane, stored.message_id) == (
        {"text": ODD},
        ODD,
        ODD,
        ODD,
    )
    assert (stored.max_attempts, stored.head, stored.root_id, stored.hops) == (7, True, first, 0)
    assert (plain.event, plain.target, plain.lane, plain.message_id, plain.max_attempts) == (
        {},
        "",
        None,
        None,
        None,
    )
    assert plain.event_ts == plain.vt == plain.created_at == plain.updated_at == stored.created_at


@pytest.mark.parametrize("count", [1, 2, MANY])
async def test_names_that_no_engine_can_store_are_mended_however_many_are_put(
    store: ChatStore, count: int
) -> None:
    odd = [
        NewEvent(event={}, target="a\0", lane="b\ud800", message_id=f"c\0{n}") for n in range(count)
    ]
    [first, *_] = await store.put(odd)
    assert first is not None
    stored = await store.live(first)
    assert stored is not None
    assert (stored.target, stored.lane, stored.message_id) == ("a\ufffd", "b\ufffd", "c\ufffd0")
    assert await store.put(odd) == [None] * count


async def test_many_events_are_stored_with_their_records_or_not_at_all(store: ChatStore) -> None:
    line = AgentMessage(
        agent_id="coder", role="user", channel="web", sender="Ada", message_id="m", content="hi"
    )
    many = [NewEvent(event={}, message_id=f"m {n}") for n in range(MANY)]
    with pytest.raises(HoldfastError):
        await store.put([*many, NewEvent(event={"number": float("nan")})], records=[line])
    assert await drained(store) == []
    assert None not in await store.put(many, records=[line])
    assert len(await store.agent_messages("coder")) == 1


@pytest.mark.parametrize("count", [1, 2, MANY])
async def test_each_new_message_is_told_however_many_are_put(store: ChatStore, count: int) -> None:
    hello = {"kind": "message", "channel": "api", "sender": "ann", "message": "hello"}
    await store.set_setting("routing", {"default": "coder"})
    await store.set_setting("activity", True)
    await store.put([NewEvent(event=hello, message_id=f"m {n}") for n in range(count)])
    await store.put([NewEvent(event={}, message_id=f"m {n}") for n in range(count)])
    await store.put([NewEvent(event=hello, queue=OUTBOX)] * count)
    [row] = await store.activity(0)
    received = [frame for frame in row.frames if frame["type"] == "message_received"]
    assert [(frame["messageId"], frame["message"]) for frame in received] == [
        (f"m {n}", "hello") for n in range(count)
    ]
    assert {(frame["agent"], frame["channel"], frame["sender"]) for frame in received} == {
        ("coder", "api", "ann")
    }
    await store.set_setting("activity", False)
    await store.put([NewEvent(event=hello)] * count)
    assert len(await store.activity(0)) == 1

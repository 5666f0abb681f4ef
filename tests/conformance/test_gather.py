"""Events behind a turn of the same kind join it; messages of a root are counted."""

from __future__ import annotations

from holdfast.chat import ChatMessage, ChatStore
from holdfast.queue.event import NewEvent
from holdfast.queue.outcome import Done, Lost, Retry, Settled
from holdfast.testing.clock import Clock
from tests.conformance.steps import claim, claim_ids, claim_one, end, finished, put


async def put_kinds(
    store: ChatStore, *kinds: str, lane: str | None = "a", **fields: str
) -> list[int]:
    events = [
        NewEvent(event={"kind": kind}, lane=lane, **fields)  # type: ignore[arg-type]
        for kind in kinds
    ]
    ids = await store.put(events)
    return [id for id in ids if id is not None]


async def test_the_run_of_the_same_kind_joins(store: ChatStore) -> None:
    first, second, third, *rest = await put_kinds(store, "room", "room", "room", "message", "room")
    turn = await claim_one(store)
    assert await store.gather(turn, 100)
    assert turn.ids == [first, second, third]
    assert {(event.fence, event.attempts, event.vt, event.holder) for event in turn.events} == {
        (turn.fence, 1, turn.primary.vt, turn.primary.holder)
    }
    assert await store.renew([turn], turn.primary.vt - turn.primary.updated_at) == []
    assert await end(store, turn) == Settled(turn)
    assert await claim_ids(store) == [[rest[0]]]


async def test_no_more_than_asked_for_join(store: ChatStore) -> None:
    ids = await put_kinds(store, "room", "room", "room")
    turn = await claim_one(store)
    await store.gather(turn, 2)
    assert turn.ids == ids[:2]


async def test_nothing_joins_where_nothing_is_alike(store: ChatStore) -> None:
    await put_kinds(store, "room", "message")
    turn = await claim_one(store)
    assert not await store.gather(turn, 100)
    assert len(turn.ids) == 1


async def test_nothing_joins_without_a_lane_or_from_another_target(store: ChatStore) -> None:
    await put_kinds(store, "room", "room", lane=None)
    assert not await store.gather(await claim_one(store), 100)
    await put_kinds(store, "room", target="one")
    await put_kinds(store, "room", target="two")
    assert not await store.gather(await claim_one(store, "one"), 100)


async def test_nothing_joins_a_lost_turn(store: ChatStore, clock: Clock) -> None:
    await put_kinds(store, "room", "room")
    turn = await claim_one(store)
    clock.tick(minutes=11)
    again = await claim_one(store)
    assert not await store.gather(turn, 100)
    assert await end(store, turn) == Lost(turn)
    assert not await store.gather(again, 100)
    assert await end(store, again) == Settled(again)


async def test_what_was_tried_is_worked_alone(store: ChatStore) -> None:
    first, second = await put_kinds(store, "room", "room")
    turn = await claim_one(store)
    await store.gather(turn, 100)
    await end(store, turn, Retry("no"))
    for id in (first, second):
        alone = await claim_one(store)
        assert not await store.gather(alone, 100)
        assert alone.ids == [id]
        await end(store, alone)


async def test_messages_handed_on_are_counted_by_root(store: ChatStore) -> None:
    root = await put(store)
    await end(
        store,
        await claim_one(store),
        Done((NewEvent(event={}), NewEvent(event={}, queue="outbox"))),
    )
    child = await claim_one(store)
    assert (child.primary.root_id, child.primary.hops) == (root, 1)
    assert await store.handed_on(root, child.primary.id) == 0
    await end(store, child, Done((NewEvent(event={}), NewEvent(event={}))))
    [one, two] = sorted([turn.primary.id for turn in await claim(store, limit=2)])
    assert [await store.handed_on(root, id) for id in (one, two, two + 1)] == [1, 2, 3]
    assert await store.handed_on(child.primary.id, two) == 0


async def test_a_collected_turn_uses_its_part_of_the_budget_once(store: ChatStore) -> None:
    root = await put(store)
    lines = [NewEvent(event={"kind": "room"}, lane="a") for _ in range(3)]
    await end(store, await claim_one(store), Done(tuple(lines)))
    turn = await claim_one(store)
    await store.gather(turn, 100)
    await end(store, turn, Done(state={"spent": 2}))
    assert [(await finished(store, id)).state for id in turn.ids] == [{"spent": 2}, None, None]
    assert await store.spent(root) == 2


async def test_a_line_of_a_room_has_an_id(store: ChatStore) -> None:
    first = await store.say(ChatMessage(team_id="dev", from_agent="user", message="one"))
    second = await store.say(ChatMessage(team_id="dev", from_agent="user", message="two"))
    assert [(line.id, line.message) for line in await store.chat_messages("dev")] == [
        (second, "two"),
        (first, "one"),
    ]


async def test_a_setting_that_is_none_is_gone(store: ChatStore) -> None:
    await store.set_setting("key", {"a": 1})
    await store.set_setting("key", None)
    await store.set_setting("other", None)
    assert await store.setting("key") is None

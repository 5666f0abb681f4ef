"""History, conversations and rooms: append-only, newest first, by pages."""

from __future__ import annotations

import pytest

from holdfast.chat import AgentMessage, ChatMessage, ChatStore
from holdfast.queue.outcome import Done
from holdfast.queue.store import Filter
from holdfast.testing.clock import Clock
from tests.conformance.steps import bury, claim, message, put


async def finish_many(store: ChatStore, count: int) -> list[int]:
    """So many finished events; their ids, newest first."""
    ids = await store.put([message(str(n)) for n in range(count)])
    # ended in the opposite order: pages go by id, not by the moment of the end
    await store.settle([(turn, Done()) for turn in reversed(await claim(store, limit=count))])
    return sorted((event_id for event_id in ids if event_id is not None), reverse=True)


async def test_history_is_newest_first(store: ChatStore) -> None:
    ids = await finish_many(store, 5)
    assert [event.id for event in await store.finished(Filter())] == ids


async def test_history_gives_twenty_unless_told(store: ChatStore) -> None:
    ids = await finish_many(store, 25)
    assert [event.id for event in await store.finished(Filter())] == ids[:20]
    assert [event.id for event in await store.finished(Filter(), limit=3)] == ids[:3]


async def test_history_pages_by_before_id(store: ChatStore) -> None:
    ids = await finish_many(store, 7)
    pages: list[int] = []
    page = await store.finished(Filter(), limit=3)
    while page:
        pages += [event.id for event in page]
        page = await store.finished(Filter(), limit=3, before_id=page[-1].id)
    assert pages == ids


async def test_history_follows_by_since_id(store: ChatStore) -> None:
    ids = await finish_many(store, 5)
    assert [event.id for event in await store.finished(Filter(), since_id=ids[2])] == ids[:2]
    assert await store.finished(Filter(), since_id=ids[0]) == []
    assert [
        event.id for event in await store.finished(Filter(), since_id=ids[4], before_id=ids[0])
    ] == ids[1:4]


async def test_history_is_filtered_by_outcome_queue_and_target(store: ChatStore) -> None:
    await finish_many(store, 2)
    dead = await bury(
        store, await put(store, queue="outbox", target="slack"), queue="outbox", target="slack"
    )
    for which in (
        Filter(outcomes=["dead"]),
        Filter(queue="outbox"),
        Filter(target="slack"),
        Filter(error="BROKEN"),
    ):
        assert [event.id for event in await store.finished(which)] == [dead]
    assert len(await store.finished(Filter(queue="inbox"))) == 2


async def test_dead_letters_page_by_before_id_and_follow_by_since_id(store: ChatStore) -> None:
    ids = [await bury(store, await put(store)) for _ in range(4)]
    await finish_many(store, 2)
    assert [letter.id for letter in await store.dead(Filter(), limit=2)] == [ids[3], ids[2]]
    assert [letter.id for letter in await store.dead(Filter(), limit=2, before_id=ids[2])] == [
        ids[1],
        ids[0],
    ]
    assert [letter.id for letter in await store.dead(Filter(), since_id=ids[2])] == [ids[3]]


def line(number: int, agent_id: str = "coder", conversation: str = "api:ann") -> AgentMessage:
    return AgentMessage(
        agent_id=agent_id,
        role="user",
        channel="api",
        sender="ann",
        message_id=f"m{number}",
        content=f"text {number}",
        conversation=conversation,
    )


async def test_an_agents_conversation_is_newest_first_and_by_pages(store: ChatStore) -> None:
    await store.put([], records=[line(number) for number in range(5)])
    await store.put([], records=[line(9, "writer")])
    lines = await store.agent_messages("coder")
    assert [found.content for found in lines] == [f"text {number}" for number in (4, 3, 2, 1, 0)]
    ids = [found.id for found in lines]
    assert [found.id for found in await store.agent_messages("coder", limit=2)] == ids[:2]
    assert [found.id for found in await store.agent_messages("coder", before_id=ids[1])] == ids[2:]
    assert [found.id for found in await store.agent_messages("coder", since_id=ids[2])] == ids[:2]


async def test_conversations_of_one_agent_are_told_apart(store: ChatStore) -> None:
    here, there = "api:ann", "api:bob"
    await store.put(
        [],
        records=[line(number, conversation=here if number % 2 else there) for number in range(5)],
    )
    await store.put([], records=[line(9, "writer")])
    found = await store.agent_messages("coder", conversation=here)
    assert [(one.content, one.conversation) for one in found] == [
        ("text 3", here),
        ("text 1", here),
    ]
    assert (
        len(await store.agent_messages("coder", conversation=there, limit=2, before_id=found[0].id))
        == 2
    )
    assert await store.agent_messages("coder", conversation="api:eve") == []


async def test_a_line_of_a_conversation_is_stored_as_it_was_given(
    store: ChatStore, clock: Clock
) -> None:
    await store.put([], records=[line(1)])
    [found] = await store.agent_messages("coder")
    assert (found.agent_id, found.role, found.channel, found.sender) == (
        "coder",
        "user",
        "api",
        "ann",
    )
    assert (found.message_id, found.content, found.created_at) == ("m1", "text 1", clock.now)


async def test_a_room_is_newest_first_and_by_pages(store: ChatStore, clock: Clock) -> None:
    await store.put(
        [],
        records=[ChatMessage(team_id="dev", from_agent="coder", message=str(n)) for n in range(5)],
    )
    await store.put([], records=[ChatMessage(team_id="ops", from_agent="coder", message="other")])
    posts = await store.chat_messages("dev")
    assert [(post.message, post.from_agent, post.created_at) for post in posts[:2]] == [
        ("4", "coder", clock.now),
        ("3", "coder", clock.now),
    ]
    ids = [post.id for post in posts]
    assert [post.id for post in await store.chat_messages("dev", limit=2, before_id=ids[0])] == ids[
        1:3
    ]
    assert [post.id for post in await store.chat_messages("dev", since_id=ids[3])] == ids[:3]


async def test_an_unknown_conversation_is_empty(store: ChatStore) -> None:
    assert await store.agent_messages("nobody") == []
    assert await store.chat_messages("nowhere") == []


@pytest.mark.parametrize(
    "value", [{"default": "coder"}, [1, 2], "text", 3, True, None, {"ü": [None]}], ids=str
)
async def test_a_setting_is_read_as_it_was_written(store: ChatStore, value: object) -> None:
    await store.set_setting("key", value)
    assert await store.setting("key") == value


async def test_a_setting_that_was_never_written_is_none(store: ChatStore) -> None:
    assert await store.setting("nothing") is None


async def test_a_setting_can_be_written_again(store: ChatStore) -> None:
    await store.set_setting("key", 1)
    await store.set_setting("key", {"now": 2})
    assert await store.setting("key") == {"now": 2}

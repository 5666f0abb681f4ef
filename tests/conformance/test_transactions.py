"""A put may join a transaction of the caller's; what is rolled back never happened."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast.chat import AgentMessage, ChatMessage, ChatStore, NewConversation
from holdfast.queue.event import NewEvent
from holdfast.queue.record import Record
from holdfast.store.conversations import Conversations
from holdfast.store.scoped import Scope
from holdfast.testing.fixtures import StoreFactory
from tests.conformance.steps import claim, claim_ids, count, message, put


class OnPurpose(Exception):
    """Raised inside a transaction to roll it back."""


async def roll_back(store: ChatStore, *puts: NewEvent, records: Sequence[Record] = ()) -> None:
    """Put one after the other in a transaction that then fails."""
    async with store.transaction() as tx:
        for event in puts:
            await store.put([event], records=records, tx=tx)
        raise OnPurpose


async def test_what_is_put_in_a_transaction_is_there_after_it(store: ChatStore) -> None:
    async with store.transaction() as tx:
        ids = await store.put([message(lane="a"), message(lane="a"), message()], tx=tx)
    assert sorted(await claim_ids(store)) == [[ids[0]], [ids[2]]]


async def test_what_is_put_in_a_transaction_is_unseen_before_its_end(
    store: ChatStore, another_store: StoreFactory
) -> None:
    other = await another_store()
    async with store.transaction() as tx:
        await store.put([message()], tx=tx)
        assert await other.counts() == []
    assert len(await claim(other)) == 1


async def test_a_transaction_that_fails_leaves_nothing(store: ChatStore) -> None:
    line = AgentMessage(
        agent_id="coder", role="user", channel="api", sender="ann", message_id="m1", content="hi"
    )
    conversation = NewConversation(
        conversation="api:ann", owner=None, channel="api", sender="ann", subject="", text="hi"
    )
    with pytest.raises(OnPurpose):
        await roll_back(store, message(message_id="m1", lane="a"), records=[line, conversation])
    assert await store.counts() == []
    assert await store.agent_messages("coder") == []
    assert await Conversations(store).recent(Scope()) == []


async def test_a_message_id_that_was_rolled_back_is_not_known(store: ChatStore) -> None:
    with pytest.raises(OnPurpose):
        await roll_back(store, message(message_id="m1"))
    await put(store, message_id="m1")


async def test_a_lane_whose_first_event_was_rolled_back_goes_on(store: ChatStore) -> None:
    with pytest.raises(OnPurpose):
        await roll_back(store, message(lane="a"))
    event_id = await put(store, lane="a")
    assert await claim_ids(store) == [[event_id]]


async def test_two_puts_in_one_transaction_are_one(store: ChatStore) -> None:
    with pytest.raises(OnPurpose):
        await roll_back(store, message(), message())
    assert (await count(store)).ready == 0


async def test_a_known_message_does_not_break_the_callers_transaction(store: ChatStore) -> None:
    await put(store, message_id="m1")
    async with store.transaction() as tx:
        assert await store.put([message(message_id="m1")], tx=tx) == [None]
        await store.put([message("other")], tx=tx)
    assert (await count(store)).ready == 2


async def test_records_are_stored_with_the_events_they_come_with(store: ChatStore) -> None:
    await store.put(
        [message()],
        records=[
            AgentMessage(
                agent_id="coder",
                role="user",
                channel="api",
                sender="ann",
                message_id="m1",
                content="hi",
            ),
            ChatMessage(team_id="dev", from_agent="coder", message="hello"),
        ],
    )
    assert [line.content for line in await store.agent_messages("coder")] == ["hi"]
    assert [line.message for line in await store.chat_messages("dev")] == ["hello"]


async def test_a_put_that_cannot_be_stored_leaves_nothing(store: ChatStore) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 - which error is the engine's own
        await store.put([message(lane="a", message_id="m1"), message(max_attempts="many")])
    assert await store.counts() == []
    await put(store, message_id="m1")


async def test_a_record_that_no_table_keeps_is_refused_with_its_event(store: ChatStore) -> None:
    class Unknown(Record):
        pass

    with pytest.raises(TypeError, match="keeps no records such as"):
        await store.put([message()], records=[Unknown()])
    assert await store.counts() == []

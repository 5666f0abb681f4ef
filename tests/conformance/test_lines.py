"""A message is a line of its agent's history from its receipt on, whatever becomes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.chat import AgentMessage, ChatStore
from holdfast.queue.event import NewEvent
from holdfast.queue.outcome import Dead, Done, Retry
from holdfast.queue.store import Filter, SweepPolicy
from holdfast.queue.turn import LeasedTurn
from holdfast.store import conversations
from holdfast.testing.clock import Clock
from tests.conformance.steps import claim_one, end

ANN = {"kind": "message", "channel": "api", "sender": "Ann", "sender_id": "ann"}
HERE = "api:ann"


async def say(store: ChatStore, text: str, **fields: Any) -> int:
    """A message of Ann for an agent; the id of its event."""
    payload = {**ANN, "conversation": HERE, "message": text}
    new = {"target": "coder", "message_id": f"api_{text}"} | fields
    [event_id] = await store.put([NewEvent(event=payload, **new)])
    assert event_id is not None
    return event_id


def lines_of(turn: LeasedTurn, answer: str) -> tuple[AgentMessage, AgentMessage]:
    """The lines that the inbox consumer records when a turn is done."""
    event = turn.primary
    line = AgentMessage(
        agent_id="coder",
        role="user",
        channel="api",
        sender="Ann",
        message_id=event.message_id or "",
        content=event.event["message"],
        conversation=HERE,
        subject="default:USER:api:id:ann",
        event_id=event.id,
        created_at=event.created_at,
    )
    own = replace(
        line, role="assistant", sender="coder", content=answer, event_id=None, created_at=None
    )
    return line, own


async def answer(store: ChatStore, text: str) -> None:
    turn = await claim_one(store, "coder")
    await end(store, turn, Done(records=lines_of(turn, text)))


async def test_the_newest_waiting_messages_are_shown_if_there_are_many(
    store: ChatStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "SEARCHED_EVENTS", 3)
    for number in range(4):
        await say(store, f"coder {number}", lane="coder")
        await say(store, f"writer {number}", lane="writer")
    lines = await conversations.Conversations(store).unfinished_lines(HERE, ["coder", "writer"])
    assert [line.content for line in lines] == ["writer 3", "coder 3", "writer 2"]


async def contents(store: ChatStore, **options: Any) -> list[str]:
    """Oldest first."""
    return [line.content for line in await store.agent_messages("coder", **options)][::-1]


async def test_a_waiting_message_is_a_line_of_its_agents_history(
    store: ChatStore, clock: Clock
) -> None:
    await say(store, "hi")
    [line] = await store.agent_messages("coder")
    assert (line.agent_id, line.role, line.channel, line.sender) == ("coder", "user", "api", "Ann")
    assert (line.message_id, line.content, line.conversation, line.created_at) == (
        "api_hi",
        "hi",
        HERE,
        clock.now,
    )
    assert await store.agent_messages("writer") == []


async def test_a_line_stays_the_same_until_its_message_is_answered(
    store: ChatStore, clock: Clock
) -> None:
    await say(store, "hi")
    [line] = waiting = await store.agent_messages("coder")
    assert line.content == "hi"
    clock.tick(minutes=1)
    turn = await claim_one(store, "coder")
    assert await store.agent_messages("coder") == waiting
    await end(store, turn, Done(records=lines_of(turn, "hello")))
    answer_line, user_line = await store.agent_messages("coder")
    assert [user_line] == waiting
    assert (answer_line.content, answer_line.created_at) == ("hello", clock.now)


async def test_a_message_for_no_named_agent_is_a_line_of_the_default_agent(
    store: ChatStore,
) -> None:
    await store.set_setting("routing", {"default": "coder"})
    await say(store, "hi", target="")
    assert await contents(store) == ["hi"]
    assert await store.agent_messages("writer") == []


async def test_a_dead_message_keeps_its_line(store: ChatStore) -> None:
    await say(store, "hi")
    [line] = waiting = await store.agent_messages("coder")
    assert line.content == "hi"
    await end(store, await claim_one(store, "coder"), Dead("broken"))
    assert await store.agent_messages("coder") == waiting
    assert await store.agent_messages("coder", conversation=HERE, waiting=False) == waiting


@pytest.mark.parametrize("ending", ["cancel", "expire"])
async def test_a_message_that_no_worker_ends_keeps_its_line(
    store: ChatStore, clock: Clock, ending: str
) -> None:
    event_id = await say(store, "hi")
    [line] = waiting = await store.agent_messages("coder")
    assert line.content == "hi"
    await claim_one(store, "coder", max_attempts=1)
    if ending == "cancel":
        assert await store.cancel(event_id, "by hand")
    else:
        clock.tick(hours=1)
        await store.sweep(SweepPolicy(queue="inbox", max_attempts=1))
    assert len(await store.dead(Filter())) == 1
    assert await store.agent_messages("coder") == waiting


async def test_a_retried_message_has_one_line(store: ChatStore) -> None:
    event_id = await say(store, "hi")
    before = await store.agent_messages("coder")
    for _ in range(2):
        await end(store, await claim_one(store, "coder"), Dead("broken"))
        assert await store.retry(Filter(ids=[event_id])) == [event_id]
        assert await store.agent_messages("coder") == before
        # It is being worked again, so that it is not among the lines before it.
        assert await store.agent_messages("coder", waiting=False) == []
    await answer(store, "hello")
    assert await contents(store) == ["hi", "hello"]
    assert (await store.agent_messages("coder"))[1:] == before


async def test_a_failed_attempt_adds_no_line(store: ChatStore) -> None:
    await say(store, "hi")
    await end(store, await claim_one(store, "coder"), Retry("busy"))
    assert await contents(store) == ["hi"]


async def test_a_discarded_message_loses_its_line(store: ChatStore) -> None:
    event_id = await say(store, "hi")
    other_id = await say(store, "there")
    for _ in range(2):
        await end(store, await claim_one(store, "coder"), Dead("broken"))
    await store.discard(Filter(ids=[event_id]))
    assert await contents(store) == ["there"]
    # Ids that are no dead letters (any more) change nothing.
    await store.retry(Filter(ids=[other_id]))
    await answer(store, "hello")
    await store.discard(Filter(ids=[event_id, other_id]))
    await store.retry(Filter(ids=[event_id, other_id]))
    assert await contents(store) == ["there", "hello"]


async def test_a_replayed_message_is_a_line_of_its_own(store: ChatStore) -> None:
    event_id = await say(store, "hi")
    await answer(store, "hello")
    await store.replay([event_id])
    assert await contents(store) == ["hi", "hello", "hi"]


async def test_pages_over_lines_of_every_state_have_each_line_once(store: ChatStore) -> None:
    texts = [str(number) for number in range(6)]
    for text in texts:
        await say(store, text)
    await answer(store, "answer to 0")
    await end(store, await claim_one(store, "coder"), Dead("broken"))
    whole = await store.agent_messages("coder")
    assert [line.content for line in whole] == ["answer to 0", *texts[::-1]]
    pages: list[AgentMessage] = []
    page = await store.agent_messages("coder", limit=2)
    while page:
        pages += page
        page = await store.agent_messages("coder", limit=2, before_id=page[-1].id)
    assert pages == whole
    for index, line in enumerate(whole):
        assert await store.agent_messages("coder", since_id=line.id) == whole[:index]
    assert await contents(store, waiting=False) == ["0", "1", "answer to 0"]


async def test_waiting_messages_of_conversations_are_told_apart(store: ChatStore) -> None:
    await say(store, "hi")
    there = {**ANN, "conversation": "api:bob", "message": "there"}
    slack = {"channel": "C1", "team": "T1", "user": "U1", "text": "slack", "ts": "1.5"}
    await store.put([NewEvent(event=there, target="coder"), NewEvent(event=slack, target="coder")])
    assert await contents(store, conversation="api:bob") == ["there"]
    assert await contents(store, conversation="slack:T1:C1:1.5") == ["slack"]
    assert await contents(store, conversation="api:bob", limit=1) == ["there"]
    assert await contents(store) == ["hi", "there", "slack"]

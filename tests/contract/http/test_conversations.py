"""GET /api/conversations and /api/conversations/:id/messages."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest

from holdfast.api.limits import Limits
from holdfast.chat import AgentMessage
from holdfast.errors import StoreUnavailable
from holdfast.queue.outcome import Done
from holdfast.store.conversations import Conversations
from holdfast.store.scoped import Scope
from tests.contract.http.steps import Api
from tests.contract.http.test_tokens import ask, create, say, seen

WEB: dict[str, Any] = {"channel": "web", "sender": "web", "senderId": "web-1"}


@pytest.fixture
def limits() -> Limits:
    """The process writes every use of a conversation."""
    return Limits(quick_query=timedelta.max, conversation_interval=timedelta(0))


def path(conversation: str) -> str:
    return f"/api/conversations/{quote(conversation, safe='')}/messages"


async def answer(api: Api, text: str, agent: str = "coder") -> None:
    """The next message of an agent is answered, and the history has both lines."""
    turn = await api.claim(targets=("", agent))
    event = turn.primary
    line = {
        "agent_id": agent,
        "channel": event.event["channel"],
        "conversation": event.event["conversation"],
        "message_id": event.message_id,
    }
    lines = (
        AgentMessage(role="user", sender="web", content=event.event["message"], **line),
        AgentMessage(role="assistant", sender=agent, content=text, **line),
    )
    await api.store.settle([(turn, Done(records=lines))])


async def test_conversations_are_listed_latest_first_by_their_first_message(api: Api) -> None:
    await api.say("plan a trip\nto Rome", conversation="trip", **WEB)
    await api.say("fix the build", conversation="build", **WEB)
    await api.say("and to Naples", conversation="trip", **WEB)
    found = await api.get("/api/conversations", "read")
    assert [(one["conversation"], one["title"]) for one in found] == [
        ("web:web-1/trip", "plan a trip to Rome"),
        ("web:web-1/build", "fix the build"),
    ]
    assert (found[0]["channel"], found[0]["sender"]) == ("web", "web")
    assert found[0]["updatedAt"] >= found[0]["createdAt"]


async def test_messages_that_begin_one_conversation_at_once_list_it_once(api: Api) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number in range(20):
            tasks.create_task(api.say(f"hello {number}", conversation=str(number % 2), **WEB))
    found = await api.get("/api/conversations")
    assert sorted(one["conversation"] for one in found) == ["web:web-1/0", "web:web-1/1"]


async def test_a_message_that_is_not_stored_begins_no_conversation(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*arguments: object, **named: object) -> None:
        raise StoreUnavailable("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr(type(api.store.engine), "put", refuse)
        assert (await api.post("/api/message", {"message": "hi"}))[0] == 503
    assert await api.get("/api/conversations") == []


async def test_a_long_title_is_cut(api: Api) -> None:
    await api.say("ü" * 1000, **WEB)
    [found] = await api.get("/api/conversations")
    assert found["title"] == "ü" * 79 + "…"


async def test_conversations_are_paged_and_filtered_by_channel(api: Api) -> None:
    for number in range(3):
        await api.say(f"hello {number}", conversation=str(number), **WEB)
    await api.say("elsewhere")
    assert len(await api.get("/api/conversations?channel=web")) == 3
    first, following = await api.page("/api/conversations?channel=web&limit=2")
    assert [one["title"] for one in first] == ["hello 2", "hello 1"]
    rest, _ = await api.page(following)
    assert [one["title"] for one in rest] == ["hello 0"]


async def test_a_refused_message_begins_no_conversation(api: Api) -> None:
    assert (await api.post("/api/message", {"message": "hi", "agent": "nobody"}))[0] == 404
    assert await api.get("/api/conversations") == []


async def test_messages_of_all_agents_are_listed_with_their_answers(api: Api) -> None:
    await api.say("one", conversation="trip", **WEB)
    await answer(api, "first")
    await api.say("two", conversation="trip", agent="writer", **WEB)
    await answer(api, "second", "writer")
    await api.say("of another", conversation="other", **WEB)
    found = await api.get(path("web:web-1/trip"), "read")
    assert [(one["role"], one["agent"], one["message"], one["status"]) for one in found] == [
        ("assistant", "writer", "second", "completed"),
        ("user", "writer", "two", "completed"),
        ("assistant", "coder", "first", "completed"),
        ("user", "coder", "one", "completed"),
    ]


async def test_messages_that_wait_are_worked_or_died_are_marked(api: Api) -> None:
    await api.say("dead", conversation="trip", **WEB)
    dead = await api.bury("no model")
    await api.say("working", conversation="trip", **WEB)
    await api.claim()
    await api.say("waiting", conversation="trip", **WEB)
    found = await api.get(path("web:web-1/trip"))
    assert [(one["message"], one["status"]) for one in found] == [
        ("waiting", "pending"),
        ("working", "processing"),
        ("dead", "dead"),
    ]
    assert (found[2]["eventId"], found[2]["error"]) == (dead, "no model")


async def test_a_dead_message_is_on_one_page_only(api: Api) -> None:
    await api.say("dead", conversation="trip", **WEB)
    await api.bury("no model")
    await api.say("hello", conversation="trip", **WEB)
    await answer(api, "answer")
    first, following = await api.page(f"{path('web:web-1/trip')}?limit=2")
    rest, _ = await api.page(following)
    assert [one["message"] for one in first] == ["answer", "hello"]
    assert [(one["message"], one["status"]) for one in rest] == [("dead", "dead")]


async def test_messages_are_paged(api: Api) -> None:
    for number in range(3):
        await api.say(f"hello {number}", conversation="trip", **WEB)
        await answer(api, f"answer {number}")
    first, following = await api.page(f"{path('web:web-1/trip')}?limit=4")
    rest, _ = await api.page(following)
    texts = [one["message"] for one in (*first, *rest)]
    assert texts == [f"{word} {number}" for number in (2, 1, 0) for word in ("answer", "hello")]


async def test_an_unknown_conversation_is_not_found(api: Api) -> None:
    for unknown in ("web:nobody", "x/y", "a\0b"):
        assert await api.ask("GET", path(unknown)) == (404, {"error": "conversation not found"})


async def test_a_token_of_role_send_sees_only_its_own_conversations(api: Api) -> None:
    ada, bob = await create(api, "ada"), await create(api, "bob")
    await say(api, ada, "secret", conversation="mine", **WEB)
    assert [one["title"] for one in await seen(api, ada, "/api/conversations")] == ["secret"]
    assert [one["message"] for one in await seen(api, ada, path("web:web-1/mine"))] == ["secret"]
    assert await seen(api, bob, "/api/conversations") == []
    assert await ask(api, bob, "GET", path("web:web-1/mine")) == (
        404,
        {"error": "conversation not found"},
    )
    await say(api, bob, "me, too", conversation="mine", **WEB)
    for token, title in ((ada, "secret"), (bob, "me, too")):
        assert [one["title"] for one in await seen(api, token, "/api/conversations")] == [title]
        assert (await ask(api, token, "GET", path("web:web-1/mine")))[0] == 403


async def test_a_bound_reader_sees_conversations_of_its_channels_and_agents(api: Api) -> None:
    await api.say("of web", conversation="trip", **WEB)
    await answer(api, "of coder")
    await api.say("for the writer", conversation="trip", agent="writer", **WEB)
    await answer(api, "of writer", "writer")
    await api.say("of api")
    of_web = await create(api, "web", "read", channels=["web"])
    of_api = await create(api, "api", "read", channels=["api"])
    of_writer = await create(api, "writer", "read", agents=["writer"])
    assert [one["channel"] for one in await seen(api, of_web, "/api/conversations")] == ["web"]
    assert (await ask(api, of_api, "GET", path("web:web-1/trip")))[0] == 404
    [listed] = await seen(api, of_writer, "/api/conversations")
    assert listed["title"] == "web:web-1/trip", "its first message was for another agent"
    found = await seen(api, of_writer, path("web:web-1/trip"))
    assert [one["message"] for one in found] == ["of writer", "for the writer"]


async def test_forgetting_a_person_deletes_its_conversations(api: Api) -> None:
    await api.say("secret", **WEB)
    status, removed = await api.ask("DELETE", "/api/memory/default:USER:web:id:web-1")
    assert (status, removed["conversations"]) == (200, 1)
    assert await api.get("/api/conversations") == []


@pytest.mark.parametrize("limits", [Limits()])
async def test_a_conversation_is_written_at_most_once_a_minute(api: Api, limits: Limits) -> None:
    await api.say("one", **WEB)
    [first] = await Conversations(api.store).recent(Scope())
    await api.say("two", **WEB)
    assert [first] == await Conversations(api.store).recent(Scope())

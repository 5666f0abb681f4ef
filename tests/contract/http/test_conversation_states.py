"""Rename, pin, archive, read and delete conversations."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest

from holdfast.api.limits import Limits
from holdfast.chat import AgentMessage
from holdfast.errors import LeaseLost
from holdfast.queue.audit import AuditFilter
from holdfast.queue.event import NewEvent
from holdfast.queue.journal import JournalEntry, Step, Write
from holdfast.queue.outcome import Done, Lost
from holdfast.queue.store import Filter
from tests.contract.http.steps import Api
from tests.contract.http.test_conversations import answer
from tests.contract.http.test_tokens import ask, create, say, seen

WEB: dict[str, Any] = {"channel": "web", "sender": "web", "senderId": "web-1"}
TRIP = "web:web-1/trip"
NOT_FOUND = (404, {"error": "conversation not found"})


@pytest.fixture
def limits() -> Limits:
    """The process writes every use of a conversation."""
    return Limits(quick_query=timedelta.max, conversation_interval=timedelta(0))


def path(conversation: str = TRIP) -> str:
    return f"/api/conversations/{quote(conversation, safe='')}"


async def titles(api: Api, query: str = "") -> list[str]:
    return [one["title"] for one in await api.get(f"/api/conversations{query}")]


async def test_a_conversation_is_renamed_and_keeps_its_title(api: Api) -> None:
    await api.say("plan a trip", conversation="trip", **WEB)
    status, changed = await api.post(path(), {"title": "  Rome  "}, "send")
    assert (status, changed["title"], changed["conversation"]) == (200, "Rome", TRIP)
    await api.say("and to Naples", conversation="trip", **WEB)
    assert await titles(api) == ["Rome"]
    assert (await api.get(path()))["title"] == "Rome"


@pytest.mark.parametrize(
    "body",
    [
        {"title": ""}, {"title": " "}, {"title": "a\nb"}, {"title": "a" * 201}, {"title": 7},
        {"pinned": "yes"}, {"archived": 1}, {"readTo": -1}, {"readTo": 2**63}, {"readTo": "1"}, [],
    ],
)  # fmt: skip
async def test_a_wrong_change_is_refused(api: Api, body: Any) -> None:
    await api.say("hello", conversation="trip", **WEB)
    assert (await api.post(path(), body))[0] == 400
    assert await titles(api) == ["hello"]


async def test_conversations_are_pinned_and_archived(api: Api) -> None:
    for topic in ("one", "two", "three"):
        await api.say(topic, conversation=topic, **WEB)
    await api.post(path("web:web-1/one"), {"pinned": True})
    await api.post(path("web:web-1/two"), {"archived": True})
    assert await titles(api) == ["three", "two", "one"]
    assert await titles(api, "?pinned=true") == ["one"]
    assert await titles(api, "?archived=true") == ["two"]
    assert await titles(api, "?archived=false&pinned=false") == ["three"]
    await api.post(path("web:web-1/one"), {"pinned": False})
    assert await titles(api, "?pinned=true") == []


async def test_a_message_takes_a_conversation_back_from_the_archive(api: Api) -> None:
    await api.say("hello", conversation="trip", **WEB)
    await api.post(path(), {"archived": True, "title": "Rome"})
    await api.say("again", conversation="trip", **WEB)
    assert await titles(api, "?archived=false") == ["Rome"]


async def test_answers_are_unread_until_they_were_seen(api: Api) -> None:
    for text in ("one", "two"):
        await api.say(text, conversation="trip", **WEB)
        await answer(api, f"to {text}")
    assert [one["unread"] for one in await api.get("/api/conversations")] == [2]
    newest, _, older, _ = await api.get(f"{path()}/messages")
    _, changed = await api.post(path(), {"readTo": older["id"]})
    assert changed["unread"] == 1
    _, changed = await api.post(path(), {"readTo": newest["id"]})
    assert changed["unread"] == 0
    _, changed = await api.post(path(), {"readTo": older["id"]})
    assert changed["unread"] == 0, "it never goes back"
    await api.say("three", conversation="trip", **WEB)
    assert (await api.get(path()))["unread"] == 0, "a question is not an answer"
    await answer(api, "to three")
    assert (await api.get(path()))["unread"] == 1


async def test_unread_answers_are_counted_up_to_a_hundred(api: Api) -> None:
    await api.say("go", conversation="trip", **WEB)
    turn = await api.claim()
    line: dict[str, Any] = {"agent_id": "coder", "channel": "web", "conversation": TRIP}
    lines = [
        AgentMessage(role="assistant", sender="coder", message_id=f"m{n}", content="x", **line)
        for n in range(130)
    ]
    await api.store.settle([(turn, Done(records=tuple(lines)))])
    assert (await api.get(path()))["unread"] == 100


async def test_everybody_has_states_of_their_own(api: Api) -> None:
    ada, bob = await create(api, "ada"), await create(api, "bob")
    await say(api, ada, "secret", conversation="trip", **WEB)
    await answer(api, "psst")
    assert (await ask(api, bob, "POST", path(), {"pinned": True})) == NOT_FOUND
    assert (await ask(api, bob, "GET", path())) == NOT_FOUND
    assert (await ask(api, bob, "DELETE", path())) == NOT_FOUND
    assert [one["unread"] for one in await seen(api, ada, "/api/conversations")] == [1]
    assert [one["unread"] for one in await api.get("/api/conversations")] == [0]
    await api.post(path(), {"readTo": 2**62, "title": "by an admin"})
    [own] = await seen(api, ada, "/api/conversations")
    assert (own["unread"], own["title"], own["pinned"]) == (1, "by an admin", False)
    status, changed = await ask(api, ada, "POST", path(), {"pinned": True, "readTo": 2**62})
    assert (status, changed["pinned"], changed["unread"]) == (200, True, 0)


async def test_readers_change_nothing(api: Api) -> None:
    await api.say("hello", conversation="trip", **WEB)
    assert (await api.ask("POST", path(), {"pinned": True}, "read"))[0] == 403
    assert (await api.ask("DELETE", path(), role="read"))[0] == 403


async def test_an_unknown_conversation_is_not_found(api: Api) -> None:
    for unknown in ("web:nobody", "x/y", "a\0b", "search2", "x/messages"):
        assert await api.ask("GET", path(unknown)) == NOT_FOUND
        assert await api.ask("POST", path(unknown), {"pinned": True}) == NOT_FOUND
        assert await api.ask("DELETE", path(unknown)) == NOT_FOUND


async def test_a_conversation_whose_name_ends_like_a_route_has_its_own_page(api: Api) -> None:
    await api.say("hello", conversation="x/messages", **WEB)
    assert (await api.get(path("web:web-1/x/messages")))["title"] == "hello"
    [line] = await api.get(f"{path('web:web-1/x/messages')}/messages")
    assert line["message"] == "hello"


async def test_changes_are_told_in_the_stream(api: Api) -> None:
    await api.store.set_setting("activity", True)
    ada = await create(api, "ada")
    await say(api, ada, "hello", conversation="trip", **WEB)
    await ask(api, ada, "POST", path(), {"pinned": True})
    await ask(api, ada, "DELETE", path())
    rows = await api.store.activity(0)
    changes = [
        (frame["type"], frame.get("conversation"), frame.get("channel"), "sentBy" in frame)
        for row in rows
        for frame in row.frames
        if frame["type"].startswith("conversation_")
    ]
    assert changes == [
        ("conversation_changed", TRIP, "web", True),
        ("conversation_deleted", TRIP, "web", True),
    ]


async def _work_a_turn(api: Api) -> None:
    """Answer the next message with a step, a streamed text, a hand-off and a response."""
    turn = await api.claim()
    step = Step(key="look", state="done", attempt=1, result='"secret"')
    await api.store.record(
        JournalEntry(turn=turn, steps=(step,), write=Write(1, 0, "secret"), frames=())
    )
    event = turn.primary
    line: dict[str, Any] = {
        "agent_id": "coder",
        "channel": "web",
        "conversation": TRIP,
        "message_id": event.message_id,
        "content": "secret",
    }
    response = {
        "kind": "response", "channel": "web", "conversation": TRIP, "sender": "web",
        "message": "secret", "message_id": event.message_id, "agent": "coder",
    }  # fmt: skip
    handed = {"kind": "message", "channel": "web", "conversation": TRIP, "message": "secret"}
    emits = (
        NewEvent(
            event=response, queue="outbox", target="web", lane=f"web/{TRIP}",
            message_id=f"{event.message_id}/1",
        ),
        NewEvent(event=handed, target="writer", lane=f"writer/{TRIP}", message_id="internal_1"),
    )  # fmt: skip
    lines = (
        AgentMessage(role="user", sender="web", event_id=event.id, **line),
        AgentMessage(role="assistant", sender="coder", **line),
    )
    await api.store.settle([(turn, Done(emits, lines))])


async def test_a_deleted_conversation_leaves_nothing(api: Api) -> None:
    await api.store.set_setting("activity", True)
    kept = await api.say("kept", conversation="other", **WEB)
    await answer(api, "kept answer")
    id_ = await api.say("secret", conversation="trip", **WEB)
    await _work_a_turn(api)
    waiting = await api.say("secret, too", conversation="trip", **WEB)
    status, deleted = await api.ask("DELETE", path(), role="send")
    assert status == 200
    assert deleted == {"ok": True, "messages": 3, "lines": 2, "files": 0}
    assert await titles(api) == ["kept"]
    for message in (id_, waiting, "internal_1"):
        assert (await api.ask("GET", f"/api/message/{message}"))[0] == 404
    assert await api.ask("GET", path()) == NOT_FOUND
    assert await api.ask("GET", f"{path()}/messages") == NOT_FOUND
    for queue in ("inbox", "outbox"):
        finished = await api.store.finished(Filter(queue=queue), limit=100)
        live = await api.store.recent(queue, limit=100)
        assert "secret" not in str([event.event for event in (*finished, *live)])
    assert "secret" not in str([row.frames for row in await api.store.activity(0, limit=1000)])
    assert "kept" in str([row.frames for row in await api.store.activity(0, limit=1000)])
    assert (await api.get(f"/api/message/{kept}"))["message"] == "kept"
    assert [line["message"] for line in await api.get(f"{path('web:web-1/other')}/messages")] == [
        "kept answer",
        "kept",
    ]


async def test_steps_of_a_deleted_conversation_are_gone(api: Api) -> None:
    await api.say("secret", conversation="trip", **WEB)
    await _work_a_turn(api)
    [event] = await api.store.finished(Filter(queue="inbox"), limit=1)
    assert (await api.store.journal(event.id)).steps
    await api.ask("DELETE", path())
    journal = await api.store.journal(event.id)
    assert (dict(journal.steps), journal.text) == ({}, "")


async def test_a_running_turn_of_a_deleted_conversation_loses_its_lease(api: Api) -> None:
    await api.say("secret", conversation="trip", **WEB)
    turn = await api.claim()
    await api.ask("DELETE", path())
    assert await api.store.settle([(turn, Done())]) == [Lost(turn)]
    with pytest.raises(LeaseLost):
        await api.store.checkpoint(turn, {})
    await api.say("new", conversation="trip", **WEB)
    assert (await api.claim()).primary.event["message"] == "new"
    assert await titles(api) == ["new"]


async def test_a_deletion_is_audited_without_a_name(api: Api) -> None:
    await api.say("secret", conversation="trip", **WEB)
    await api.ask("DELETE", path(), role="send")
    [entry] = await api.store.audit_log(AuditFilter(action="conversation_deleted"))
    assert (entry.actor, entry.details) == ("api:send", {"messages": 1, "lines": 0, "files": 0})
    assert entry.subject.startswith("person:")


async def test_the_bootstrap_sender_deletes_no_conversation_of_others(api: Api) -> None:
    await say(api, await create(api, "ada"), "hi", conversation="trip", **WEB)
    await api.say("hi", channel="slack", senderId="C1")
    for name in (TRIP, "slack:C1"):
        status, refusal = await api.ask("DELETE", path(name), role="send")
        assert (status, "only delete its own" in refusal["error"]) == (403, True)
        assert (await api.ask("DELETE", path(name)))[0] == 200


async def test_a_conversation_of_several_is_deleted_by_an_admin_alone(api: Api) -> None:
    ada, bob = await create(api, "ada"), await create(api, "bob")
    for token in (ada, bob):
        await say(api, token, "hi", conversation="trip", **WEB)
    assert (await ask(api, ada, "DELETE", path()))[0] == 403
    assert (await api.ask("DELETE", path()))[0] == 200
    assert await seen(api, bob, "/api/conversations") == []

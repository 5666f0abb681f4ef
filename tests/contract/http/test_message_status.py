"""GET /api/message/:id, and the rule that tells when the chain of a message is over."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from holdfast.agents.turn import Turn
from holdfast.channels.base import response_event
from holdfast.queue.event import INBOX, OUTBOX, NewEvent
from holdfast.queue.outcome import Done
from holdfast.queue.store import Filter
from holdfast.queue.turn import LeasedTurn
from holdfast.store import chain
from tests.contract.http.steps import LEASE, Api
from tests.contract.http.test_tokens import ask, create, say


def response(leased: LeasedTurn, text: str, agent: str = "coder", **fields: object) -> NewEvent:
    """The response of an agent, as the inbox consumer stores it."""
    turn = Turn(leased, agent)
    return response_event(
        {
            "kind": "response",
            "conversation": turn.conversation,
            "channel": turn.channel,
            "sender": turn.sender,
            "message": text,
            "agent": agent,
            **fields,
        }
    )


async def hand_on(api: Api, to: str = "writer") -> None:
    """The next message is answered, and handed on to a teammate."""
    turn = await api.claim(targets=("coder",))
    mate = NewEvent(
        event={**turn.primary.event, "message": "help"},
        target=to,
        message_id=f"internal_{turn.primary.message_id}/1",
    )
    await api.store.settle([(turn, Done((response(turn, "I ask a mate"), mate)))])


async def finish(api: Api, text: str, agent: str = "writer") -> None:
    turn = await api.claim()
    await api.store.settle([(turn, Done((response(turn, text, agent),)))])


async def ack_all(api: Api) -> None:
    for event in await api.store.waiting(OUTBOX, "api"):
        assert await api.store.ack(event.id) == "acked"


async def test_a_message_is_pending_then_processing_then_completed(api: Api) -> None:
    id_ = await api.say("what broke the build?", sender="Ada")
    [event] = await api.store.recent(INBOX)
    assert await api.get(f"/api/message/{id_}", "read") == {
        "messageId": id_,
        "status": "pending",
        "agent": "coder",
        "channel": "api",
        "conversation": "api:Ada",
        "attempts": 0,
        "steps": [],
        "open": 1,
        "working": 1,
        "responses": [],
        "message": "what broke the build?",
        "eventId": event.id,
        "createdAt": int(event.created_at.timestamp() * 1000),
        "startedAt": None,
        "endedAt": None,
        "handoffs": [],
        "position": {"lane": 0, "agent": 0},
    }
    turn = await api.claim()
    found = await api.get(f"/api/message/{id_}")
    assert (found["status"], found["attempts"]) == ("processing", 1)
    await api.store.settle([(turn, Done((response(turn, "the last commit"),)))])
    found = await api.get(f"/api/message/{id_}")
    assert (found["status"], found["response"], found["open"]) == (
        "completed",
        "the last commit",
        1,
    )
    await ack_all(api)
    found = await api.get(f"/api/message/{id_}")
    assert (found["response"], found["open"]) == ("the last commit", 0)


async def test_a_dead_message_says_why(api: Api) -> None:
    id_ = await api.say()
    await api.bury("the model is gone")
    found = await api.get(f"/api/message/{id_}")
    assert (found["status"], found["error"], found["open"]) == ("dead", "the model is gone", 0)
    assert "response" not in found


async def test_unknown_and_discarded_messages_are_not_found(api: Api) -> None:
    missing = (404, {"error": "message not found"})
    assert await api.ask("GET", "/api/message/api_nothing1") == missing
    assert await api.ask("GET", "/api/message/%00") == missing
    id_ = await api.say()
    await api.store.discard(Filter(ids=[await api.bury()]))
    assert await api.ask("GET", f"/api/message/{id_}") == missing


@pytest.mark.parametrize("id_", ["a/b", "mine 1", "50 % ü", "x" * 200])
async def test_an_id_is_percent_encoded_slashes_too(api: Api, id_: str) -> None:
    await api.say(messageId=id_)
    assert (await api.get(f"/api/message/{quote(id_, safe='')}"))["messageId"] == id_


async def test_a_chain_is_over_once_no_live_event_has_its_root(api: Api) -> None:
    id_ = await api.say("@dev help", sender="Ada")
    await api.say("of another", sender="Bob", agent="writer")
    assert (await api.get(f"/api/message/{id_}"))["open"] == 1
    await hand_on(api)
    found = await api.get(f"/api/message/{id_}")
    assert (found["status"], found["open"]) == ("completed", 2), "the teammate and one response"
    assert found["working"] == 1
    await ack_all(api)
    assert (await api.get(f"/api/message/{id_}"))["open"] == 1, "the teammate still works"
    for _ in range(2):
        await api.store.settle([(await api.claim(targets=("writer",)), Done())])
    assert (await api.get(f"/api/message/{id_}"))["open"] == 0


async def test_the_answers_of_all_members_are_listed_oldest_first(api: Api) -> None:
    id_ = await api.say("@dev help")
    await hand_on(api)
    await ack_all(api)
    await finish(api, "I helped")
    found = await api.get(f"/api/message/{id_}")
    assert [(one["agent"], one["message"]) for one in found["responses"]] == [
        ("coder", "I ask a mate"),
        ("writer", "I helped"),
    ]
    assert found["response"] == "I ask a mate"
    await ack_all(api)
    found = await api.get(f"/api/message/{id_}")
    assert (len(found["responses"]), found["open"]) == (2, 0)


@pytest.mark.parametrize("is_acked", [False, True])
async def test_messages_collected_into_one_turn_share_its_response(
    api: Api, is_acked: bool
) -> None:
    first, second = [await api.say(text, sender="Ada") for text in ("one", "two")]
    [turn] = await api.store.claim(INBOX, ("",), limit=1, lease=LEASE, collect_limit=10)
    assert len(turn.events) == 2
    both = response(turn, "to both", message_ids=[first, second])
    await api.store.settle([(turn, Done((both,)))])
    if is_acked:
        await ack_all(api)
    for id_ in (first, second):
        found = await api.get(f"/api/message/{id_}")
        assert (found["response"], found["open"]) == ("to both", 0 if is_acked else 1)


async def test_a_response_that_is_acked_while_it_is_read_is_listed_once(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = await api.say()
    await finish(api, "hi", "coder")
    read = chain._ChainReader._responses

    async def read_and_ack(self: Any, table: str, ids: Any) -> Any:
        found = await read(self, table, ids)
        await ack_all(api)
        return found

    monkeypatch.setattr(chain._ChainReader, "_responses", read_and_ack)
    found = await api.get(f"/api/message/{id_}")
    assert (len(found["responses"]), found["open"]) == (1, 0)


async def test_a_token_of_role_send_sees_only_its_own_messages(api: Api) -> None:
    ada, bob = await create(api, "ada"), await create(api, "bob")
    id_ = await say(api, ada, "hi")
    assert (await ask(api, ada, "GET", f"/api/message/{id_}"))[0] == 200
    assert await ask(api, bob, "GET", f"/api/message/{id_}") == (
        404,
        {"error": "message not found"},
    )


async def test_a_reader_bound_to_an_agent_sees_no_answers_of_others(api: Api) -> None:
    id_ = await api.say("@dev help")
    await hand_on(api)
    await finish(api, "I helped")
    reader = await create(api, "reader", "read", agents=["coder"])
    _, found = await ask(api, reader, "GET", f"/api/message/{id_}")
    assert [one["agent"] for one in found["responses"]] == ["coder"]

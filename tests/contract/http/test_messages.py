"""POST /api/message."""

from __future__ import annotations

import re
from typing import Any

import pytest

from holdfast.queue.store import Filter
from tests.contract.http.steps import Api


async def test_a_message_is_stored_before_it_is_answered(api: Api) -> None:
    status, answer = await api.post("/api/message", {"message": "hello"}, role="send")
    assert (status, answer["ok"]) == (200, True)
    assert re.fullmatch("api_[0-9a-z]{8}", answer["messageId"])
    event = (await api.claim()).primary
    assert (event.message_id, event.event["message"], event.max_attempts) == (
        answer["messageId"],
        "hello",
        5,
    )
    assert (event.event["channel"], event.event["sender"]) == ("api", "API")


async def test_who_says_it_where_and_to_whom_is_kept(api: Api) -> None:
    who = {
        "agent": "Writer",
        "sender": "Ada",
        "senderId": "u1",
        "channel": "web",
        "messageId": "mine 1",
    }
    assert await api.say(**who) == "mine 1"
    event = (await api.claim()).primary
    assert (event.target, event.message_id) == ("writer", "mine 1")
    assert [event.event[name] for name in ("channel", "sender", "sender_id")] == [
        "web",
        "Ada",
        "u1",
    ]


@pytest.mark.parametrize(
    ("channel", "prefix"), [("api", "api_"), ("web", "api_"), ("telegram", "telegram_")]
)
async def test_a_generated_id_names_the_platform_or_the_api(
    api: Api, channel: str, prefix: str
) -> None:
    assert (await api.say(channel=channel)).startswith(prefix)


@pytest.mark.parametrize("body", [{}, {"message": ""}, {"message": None}, {"message": " \n"}])
async def test_a_message_must_say_something(api: Api, body: Any) -> None:
    assert await api.post("/api/message", body) == (400, {"error": "message is required"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"message": 5},
        {"message": ["hello"]},
        {"agent": 5},
        {"sender": {}},
        {"sender": "x" * 201},
        {"senderId": 7},
        {"channel": ""},
        {"channel": "Web"},
        {"channel": "x" * 33},
        {"channel": "api\n"},
        {"messageId": ""},
        {"messageId": "x" * 201},
        {"messageId": "a\tb"},
    ],
)
async def test_wrong_types_and_values_are_refused_and_store_nothing(api: Api, wrong: Any) -> None:
    status, answer = await api.post("/api/message", {"message": "hello"} | wrong)
    assert (status, list(answer)) == (400, ["error"])
    assert next(iter(wrong)) in answer["error"]
    assert (await api.get("/api/queue/status"))["pending"] == 0


@pytest.mark.parametrize("nothing", ["agent", "sender", "senderId", "channel", "messageId"])
async def test_null_is_the_same_as_nothing(api: Api, nothing: str) -> None:
    assert (await api.post("/api/message", {"message": "hello", nothing: None}))[0] == 200


async def test_the_same_id_again_is_a_conflict_also_once_it_is_worked(api: Api) -> None:
    conflict = (409, {"error": "duplicate messageId", "messageId": "m1"})
    await api.say(messageId="m1")
    assert await api.post("/api/message", {"message": "other", "messageId": "m1"}) == conflict
    await api.complete()
    assert await api.post("/api/message", {"message": "other", "messageId": "m1"}) == conflict


async def test_the_same_id_is_a_conflict_also_after_it_was_discarded(api: Api) -> None:
    await api.say(messageId="m1")
    id_ = await api.bury()
    assert await api.store.discard(Filter(ids=[id_])) == [id_]
    assert (await api.post("/api/message", {"message": "other", "messageId": "m1"}))[0] == 409


async def test_an_unknown_agent_is_not_found_and_nothing_is_stored(api: Api) -> None:
    status, answer = await api.post("/api/message", {"message": "hello", "agent": "nobody"})
    assert (status, list(answer)) == (404, ["error"])
    assert "nobody" in answer["error"]
    assert (await api.get("/api/queue/status"))["pending"] == 0


async def test_a_team_is_its_leader(api: Api) -> None:
    await api.say(agent="dev")
    assert (await api.claim()).primary.target == "coder"

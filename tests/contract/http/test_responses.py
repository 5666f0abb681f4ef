"""The rows on responses: listed, fetched, acked, made without a question."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.queue.event import OUTBOX
from holdfast.store.files import conversation_folder, write_file
from tests.contract.http.steps import Api


def ids(found: list[dict[str, Any]]) -> list[int]:
    return [one["id"] for one in found]


async def test_responses_are_listed_newest_first_whether_they_were_acked_or_not(api: Api) -> None:
    made = [await api.respond(f"hi {number}") for number in range(3)]
    await api.post(f"/api/responses/{made[1]}/ack")
    assert ids(await api.get("/api/responses", role="read")) == made[::-1]


async def test_a_response_has_the_keys_of_the_contract(api: Api) -> None:
    id_ = await api.respond("hi", sender_id="u1")
    [found] = await api.get("/api/responses")
    now = (await api.store.now()).timestamp() * 1000
    assert found == {
        "id": id_,
        "channel": "api",
        "sender": "API",
        "senderId": "u1",
        "message": "hi",
        "originalMessage": "hello",
        "timestamp": pytest.approx(now, abs=1),
        "messageId": "api_1",
        "agent": "coder",
    }
    assert isinstance(found["timestamp"], int)


async def test_files_and_metadata_are_there_where_there_are_some(api: Api) -> None:
    await api.respond("hi", files=["report.txt"], metadata={"cost": 3})
    [found] = await api.get("/api/responses")
    assert (found["files"], found["metadata"]) == (["report.txt"], {"cost": 3})


async def test_lists_page_back_by_before_id_and_follow_by_since_id(api: Api) -> None:
    made = [await api.respond() for _ in range(5)]
    assert ids(await api.get("/api/responses?limit=2")) == [made[4], made[3]]
    assert ids(await api.get(f"/api/responses?limit=2&before_id={made[3]}")) == [made[2], made[1]]
    assert ids(await api.get(f"/api/responses?since_id={made[2]}")) == [made[4], made[3]]
    assert ids(await api.get(f"/api/responses?since_id={made[0]}&before_id={made[2]}")) == [made[1]]


@pytest.mark.parametrize(
    "wrong", ["limit=0", "limit=1001", "limit=x", "limit=", "before_id=x", f"since_id={2**63}"]
)
@pytest.mark.parametrize(
    "path", ["/api/responses?", "/api/responses/pending?channel=api&", "/api/queue/dead?"]
)
async def test_a_wrong_page_is_refused(api: Api, path: str, wrong: str) -> None:
    status, answer = await api.ask("GET", path + wrong)
    assert (status, list(answer)) == (400, ["error"])
    assert wrong.partition("=")[0] in answer["error"]


async def test_a_limit_may_be_one_and_a_thousand(api: Api) -> None:
    for limit in (1, 1000):
        assert await api.get(f"/api/responses?limit={limit}") == []


async def test_pending_responses_of_a_channel_come_oldest_first_and_unclaimed(api: Api) -> None:
    made = [await api.respond() for _ in range(3)]
    await api.respond(channel="web")
    pending = "/api/responses/pending?channel=api"
    assert ids(await api.get(pending, role="send")) == made
    assert ids(await api.get(pending, role="send")) == made
    assert ids(await api.get(f"{pending}&limit=2")) == made[:2]
    assert ids(await api.get(f"{pending}&since_id={made[0]}")) == made[1:]


async def test_pending_needs_a_channel(api: Api) -> None:
    assert await api.ask("GET", "/api/responses/pending") == (400, {"error": "channel is required"})


async def test_an_acked_response_does_not_come_again_and_acking_twice_is_no_mistake(
    api: Api,
) -> None:
    id_ = await api.respond()
    for _ in range(2):
        assert await api.post(f"/api/responses/{id_}/ack", role="send") == (200, {"ok": True})
    assert await api.get("/api/responses/pending?channel=api") == []


@pytest.mark.parametrize("unknown", ["999999", "0", "-1", "x", "%00", "9" * 30])
async def test_an_unknown_response_cannot_be_acked(api: Api, unknown: str) -> None:
    assert await api.post(f"/api/responses/{unknown}/ack") == (404, {"error": "response not found"})


async def test_a_message_of_the_inbox_is_no_response_and_is_not_lost_by_an_ack(api: Api) -> None:
    await api.say()
    turn = await api.claim()
    await api.store.release([turn])
    assert (await api.post(f"/api/responses/{turn.primary.id}/ack"))[0] == 404
    assert (await api.get("/api/queue/status"))["pending"] == 1


async def test_a_response_that_a_channel_is_delivering_cannot_be_acked(api: Api) -> None:
    id_ = await api.respond()
    turn = await api.claim(OUTBOX)
    status, answer = await api.post(f"/api/responses/{id_}/ack")
    assert (status, list(answer)) == (409, ["error"])
    await api.store.release([turn])
    assert (await api.post(f"/api/responses/{id_}/ack"))[0] == 200


async def test_something_said_unasked_is_a_response_like_others(api: Api, files: Path) -> None:
    body = {
        "channel": "api",
        "sender": "Ada",
        "message": "done",
        "senderId": "u1",
        "agent": "coder",
    }
    further = {"files": ["report.txt", str(files / "report.txt")], "metadata": {"build": 7}}
    status, answer = await api.post("/api/responses", body | further, role="send")
    assert (status, answer["ok"]) == (200, True)
    assert re.fullmatch("proactive_[0-9a-z]{8}", answer["messageId"])
    [found] = await api.get("/api/responses/pending?channel=api")
    assert {name: found[name] for name in body | further} == body | further
    assert (found["messageId"], found["originalMessage"]) == (answer["messageId"], "")


@pytest.mark.parametrize("missing", ["channel", "sender", "message"])
@pytest.mark.parametrize("value", [None, ""])
async def test_something_said_unasked_needs_to_whom_where_and_what(
    api: Api, missing: str, value: str | None
) -> None:
    body = {"channel": "api", "sender": "Ada", "message": "done"} | {missing: value}
    status, answer = await api.post("/api/responses", body)
    assert (status, missing in answer["error"]) == (400, True)
    body.pop(missing)
    assert await api.post("/api/responses", body) == (400, {"error": f"{missing} is required"})


async def test_files_of_another_conversation_cannot_be_sent(api: Api, files: Path) -> None:
    path = conversation_folder(files, "api", "api:Ada") / "private.txt"
    write_file(path, b"Ada's")
    body = {"channel": "api", "message": "look", "files": [path.relative_to(files).as_posix()]}
    status, answer = await api.post("/api/responses", body | {"sender": "Bob"})
    assert (status, "another conversation" in answer["error"]) == (400, True)
    status, _ = await api.post("/api/responses", body | {"sender": "Ada"})
    assert status == 200


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../token-admin", "a/../../token-admin", "link/passwd", ".."]
)
async def test_only_files_below_the_files_root_can_be_sent(
    api: Api, files: Path, path: str
) -> None:
    (files / "link").symlink_to("/etc")
    body = {"channel": "api", "sender": "Ada", "message": "look", "files": [path]}
    status, answer = await api.post("/api/responses", body)
    assert (status, "files" in answer["error"]) == (400, True)
    assert await api.get("/api/responses") == []


async def test_a_response_that_nobody_serves_stays_pending_and_counts_as_outgoing(api: Api) -> None:
    id_ = await api.respond()
    assert (await api.get("/api/queue/status"))["outgoing"] == 1
    await api.post(f"/api/responses/{id_}/ack")
    assert (await api.get("/api/queue/status"))["outgoing"] == 0

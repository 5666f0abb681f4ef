"""Pauses by the API: for admins, shown wherever it matters."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.api.limits import Limits
from holdfast.queue.store import Process
from tests.contract.http.steps import Api
from tests.contract.http.test_tokens import ask, create


@pytest.fixture
def limits() -> Limits:
    """Neither counts nor callers are cached."""
    return Limits(quick_query=timedelta.max, caller_cache_seconds=0.0)


async def serve(api: Api) -> None:
    now = await api.store.now()
    serves = {"default": "coder", "lanes": {"coder": "conversation", "writer": "conversation"}}
    process = Process(id="p", host="h", started_at=now, seen_at=now, serves=serves)
    await api.store.register(process)


async def pause(api: Api, kind: str = "agent", name: str = "coder") -> None:
    status, answer = await api.post("/api/pauses", {"kind": kind, "name": name, "reason": "deploy"})
    assert status == 200, answer


async def test_a_pause_is_made_listed_and_ended(api: Api) -> None:
    await api.say("hello", agent="coder")
    await api.say("to the default one")
    await pause(api)

    [listed] = await api.get("/api/pauses", "read")

    assert (listed["kind"], listed["name"], listed["reason"]) == ("agent", "coder", "deploy")
    assert (listed["by"], listed["waiting"]) == ("api:admin", 2)
    assert await api.ask("DELETE", "/api/pauses/agent/coder") == (200, {"ok": True})
    assert await api.ask("DELETE", "/api/pauses/agent/coder") == (404, {"error": "not paused"})
    assert await api.get("/api/pauses") == []


async def test_a_pause_is_shown_wherever_it_matters(api: Api) -> None:
    await serve(api)
    await pause(api)
    _, sent = await api.post("/api/message", {"message": "hello", "agent": "coder"})

    assert sent["warning"] == "coder is paused; the message waits until somebody resumes it"
    agents = await api.get("/api/agents")
    assert agents["coder"]["paused"] == {
        "reason": "deploy",
        "by": "api:admin",
        "at": agents["coder"]["paused"]["at"],
    }
    assert agents["writer"]["paused"] is None
    [queue] = await api.get("/api/queue/agents")
    assert (queue["agent"], queue["paused"]) == ("coder", True)
    overview = await api.get("/api/overview")
    assert [one["kind"] for one in overview["attention"]] == ["paused"]
    [message] = await api.get("/api/messages")
    assert message["paused"] is True
    event = await api.get(f"/api/events/{message['id']}")
    assert event["paused"]["reason"] == "deploy"
    _, sent = await api.post("/api/message", {"message": "hello", "agent": "writer"})
    assert "warning" not in sent


async def test_a_paused_queue_is_shown_for_all_its_agents(api: Api) -> None:
    await pause(api, "queue", "inbox")

    assert all(agent["paused"] for agent in (await api.get("/api/agents")).values())
    assert (await api.get("/api/overview"))["queues"][0]["paused"] is True
    assert (await api.ask("DELETE", "/api/pauses/queue/inbox"))[0] == 200


async def test_unknown_names_are_not_found_and_fetched_channels_cannot_be_paused(api: Api) -> None:
    status, answer = await api.post("/api/pauses", {"kind": "agent", "name": "nobody"})
    assert (status, answer["error"]) == (404, "there is no agent 'nobody'; there are coder, writer")
    status, answer = await api.post("/api/pauses", {"kind": "channel", "name": "api"})
    assert status == 409
    assert "nothing to pause" in answer["error"]
    await pause(api, "channel", "slack")
    for body in ({"kind": "process", "name": "x"}, {"kind": "agent"}, {"name": "coder"}):
        assert (await api.post("/api/pauses", body))[0] == 400
    assert (await api.ask("DELETE", "/api/pauses/process/x"))[0] == 400
    long = {"kind": "agent", "name": "coder", "reason": "x" * 501}
    assert (await api.post("/api/pauses", long))[0] == 400


async def test_only_admins_pause_and_bound_callers_see_their_own(api: Api) -> None:
    bound = await create(api, "bound", "read", agents=["writer"])
    sender = await create(api, "ci", "send")
    await pause(api, "agent", "coder")
    await pause(api, "agent", "writer")
    body = {"kind": "agent", "name": "coder"}

    assert (await api.post("/api/pauses", body, "send"))[0] == 403
    assert (await api.ask("DELETE", "/api/pauses/agent/coder", role="send"))[0] == 403
    status, rows = await ask(api, bound, "GET", "/api/pauses")
    assert (status, [row["name"] for row in rows]) == (200, ["writer"])
    assert (await ask(api, sender, "GET", "/api/pauses"))[0] == 403


async def test_streams_show_pauses(api: Api) -> None:
    await api.store.set_setting("activity", True)
    await pause(api)
    await api.ask("DELETE", "/api/pauses/agent/coder")

    rows = await api.store.activity(0)

    frames = [frame for row in rows for frame in row.frames]
    assert [(frame["type"], frame["name"]) for frame in frames] == [
        ("paused", "coder"),
        ("resumed", "coder"),
    ]

"""Memory for operators, and the numbers of agents."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from operator import itemgetter

import pytest

from holdfast.api.limits import Limits
from holdfast.memory.observation import Observation
from holdfast.queue.audit import AuditFilter
from holdfast.queue.outcome import Done
from holdfast.queue.store import Process
from holdfast.store.memory import open_observations, open_people
from holdfast.testing.clock import Clock
from tests.contract.http.steps import Api
from tests.contract.http.test_tokens import ask, create

ADA, WEB_ADA = "default:USER:api:id:ada", "default:USER:web:id:ada"


@pytest.fixture
def limits() -> Limits:
    """Neither counts nor callers are cached."""
    return Limits(quick_query=timedelta.max, caller_cache_seconds=0.0)


async def remember(api: Api, key: str, content: str, *sources: str) -> Observation:
    workspace, type_, id_ = key.split(":", 2)
    observation = Observation(
        workspace_id=workspace,
        subject_type=type_,
        subject_id=id_,
        content=content,
        observer="coder",
        source_message_ids=sources,
    )
    await open_observations(api.store).save(observation)
    return observation


async def test_people_are_listed_once_with_all_identities(api: Api) -> None:
    await remember(api, ADA, "drinks tea")
    await remember(api, WEB_ADA, "likes cats")
    await remember(api, "default:USER:api:id:bob", "plays chess")
    await remember(api, "default:PROJECT:holdfast", "is durable")
    await open_people(api.store).link(ADA, WEB_ADA)

    ada, bob = await api.get("/api/memory/people", "read")

    assert (ada["person"], ada["identities"]) == (ADA, [ADA, WEB_ADA])
    assert (ada["observations"], ada["linked"]) == (2, True)
    assert (bob["observations"], bob["linked"]) == (1, False)
    assert [one["person"] for one in await api.get("/api/memory/people?q=BOB")] == [bob["person"]]
    first, following = await api.page("/api/memory/people?limit=1")
    assert [one["person"] for one in first] == [ADA]
    second, _ = await api.page(following)
    assert [one["person"] for one in second] == [bob["person"]]


async def test_people_are_found_by_any_of_their_identities(api: Api) -> None:
    await remember(api, ADA, "drinks tea")
    await remember(api, WEB_ADA, "likes cats")
    await open_people(api.store).link(ADA, WEB_ADA)

    async def found(part: str) -> list[tuple[list[str], int]]:
        people = await api.get(f"/api/memory/people?q={part}")
        return [(sorted(one["identities"]), one["observations"]) for one in people]

    both = [([ADA, WEB_ADA], 2)]
    assert await found("WEB") == await found("api:") == await found("ada") == both
    assert await found("bob") == []


async def test_lines_name_the_messages_they_came_from(api: Api) -> None:
    name = await api.say("I only drink green tea", sender="Ada", agent="coder")
    await api.complete()
    await remember(api, ADA, "drinks green tea", name, "gone_1")

    [line] = await api.get(f"/api/observations?subject={ADA}", "read")

    assert (line["content"], line["observer"], line["confidence"]) == (
        "drinks green tea",
        "coder",
        0.95,
    )
    known, gone = line["sources"]
    assert (known["sender"], known["message"]) == ("Ada", "I only drink green tea")
    assert (await api.get(f"/api/events/{known['eventId']}"))["messageId"] == name
    assert gone == {
        "messageId": "gone_1",
        "eventId": None,
        "sender": None,
        "channel": None,
        "at": None,
        "message": None,
    }
    assert line["pending"] is True


async def test_a_line_is_corrected_by_version_and_deleted(api: Api) -> None:
    made = await remember(api, ADA, "drinks green tea")
    [line] = await api.get(f"/api/observations?subject={ADA}")
    path, body = f"/api/observations/{made.id}", {"content": "drinks black tea"}

    status, corrected = await api.post(path, body | {"version": line["version"]})

    assert (status, corrected["content"]) == (200, "drinks black tea")
    assert corrected["version"] > line["version"]
    assert (await api.post(path, body | {"version": line["version"]}))[0] == 409
    for wrong in ({"content": " ", "version": corrected["version"]}, {"content": "x"}):
        assert (await api.post(path, wrong))[0] == 400
    assert await api.ask("DELETE", path) == (200, {"ok": True})
    assert await api.ask("DELETE", path) == (404, {"error": "observation not found"})
    assert await api.get(f"/api/observations?subject={ADA}") == []
    log = await api.store.audit_log(AuditFilter())
    assert [entry.action for entry in log] == ["erased", "corrected"]
    assert all("ada" not in entry.subject for entry in log)


async def test_of_two_corrections_at_once_one_is_refused(api: Api) -> None:
    made = await remember(api, ADA, "drinks green tea")
    [line] = await api.get(f"/api/observations?subject={ADA}")
    path, version = f"/api/observations/{made.id}", line["version"]

    answers = await asyncio.gather(
        *(api.post(path, {"content": text, "version": version}) for text in ("tea", "coffee"))
    )

    (taken, corrected), (refused, _) = sorted(answers, key=itemgetter(0))
    assert (taken, refused) == (200, 409)
    [line] = await api.get(f"/api/observations?subject={ADA}")
    assert line["content"] == corrected["content"]
    assert len(await api.store.audit_log(AuditFilter(action="corrected"))) == 1


async def test_the_state_of_memory_and_its_verification(api: Api) -> None:
    made = await remember(api, ADA, "drinks tea")

    status = await api.get("/api/memory/status", "read")

    assert (status["observations"], status["people"], status["pending"]) == (1, 1, 1)
    assert (status["dead"], status["index"]) == (0, None)
    code, verified = await api.post("/api/memory/verify")
    assert (code, verified["count"], verified["subjects"]) == (200, 1, 1)
    assert verified["differences"] == [{"subject": ADA, "id": made.id, "what": "missing"}]


async def test_memory_is_for_those_who_see_everything(api: Api) -> None:
    bound = await create(api, "bound", "read", agents=["coder"])
    for method, path in (
        ("GET", "/api/memory/people"),
        ("GET", f"/api/observations?subject={ADA}"),
        ("GET", "/api/memory/status"),
        ("POST", "/api/memory/verify"),
        ("POST", "/api/observations/obs_1"),
        ("DELETE", "/api/observations/obs_1"),
    ):
        assert (await ask(api, bound, method, path))[0] == 403, path
    for path in ("/api/memory/verify", "/api/observations/obs_1"):
        assert (await api.post(path, {}, "send"))[0] == 403
    assert (await api.ask("GET", "/api/observations?subject=odd"))[0] == 400


async def test_agents_have_load_success_latency_cost_and_servers(api: Api, clock: Clock) -> None:
    now = await api.store.now()
    serves = {"default": "coder", "lanes": {"coder": "conversation"}, "version": "0.8.0"}
    await api.store.register(
        Process(id="worker-1", host="host", started_at=now, seen_at=now, serves=serves)
    )
    await api.say("one", agent="coder")
    turn = await api.claim()
    clock.tick(seconds=2)
    await api.store.settle([(turn, Done())])
    await api.say("two")
    await api.bury()
    await api.say("three", agent="coder")
    running = await api.claim()
    await api.say("four", agent="coder", sender="Bob")

    stats = (await api.get("/api/agents/stats", "read"))["coder"]

    assert (stats["completed"], stats["failed"], stats["success"]) == (1, 1, 0.5)
    assert (stats["pending"], stats["processing"]) == (1, 1)
    assert 1_900 <= stats["p50"] <= 2_100
    [lane] = stats["lanes"]
    assert (lane["eventId"], lane["worker"]) == (running.primary.id, "worker-1")
    assert stats["processes"] == [{"process": "worker-1", "host": "host", "version": "0.8.0"}]
    assert stats["paused"] is None
    bound = await create(api, "bound", "read", agents=["writer"])
    assert "coder" not in (await ask(api, bound, "GET", "/api/agents/stats"))[1]
    assert (await ask(api, await create(api, "ci"), "GET", "/api/agents/stats"))[0] == 403

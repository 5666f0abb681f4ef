"""The overview and the numbers by time, for those who may see everything."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from holdfast.api.limits import Limits
from holdfast.queue.journal import EFFECT_UNKNOWN, JournalEntry, Step
from holdfast.queue.outcome import Dead, Done, Retry, Snooze
from holdfast.queue.store import Process
from holdfast.store.pairing import open_pairings, request_pairing
from holdfast.store.pauses import Pauses
from holdfast.testing.clock import Clock
from tests.contract.http.steps import Api
from tests.contract.http.test_tokens import ask, create


@pytest.fixture
def limits() -> Limits:
    """Neither counts nor callers are cached."""
    return Limits(quick_query=timedelta.max, caller_cache_seconds=0.0)


async def start_process(api: Api, **serves: Any) -> Process:
    now = await api.store.now()
    own = {"default": "coder", "lanes": {"coder": "conversation", "writer": "conversation"}}
    process = Process(
        id="worker-1",
        host="host",
        started_at=now,
        seen_at=now,
        serves=own | {"channels": ["slack"], "version": "0.8.0"} | serves,
    )
    await api.store.register(process)
    return process


def kinds(overview: Any) -> list[str]:
    return [one["kind"] for one in overview["attention"]]


async def test_an_empty_installation_has_three_queues_and_no_worries(api: Api) -> None:
    overview = await api.get("/api/overview", "read")

    assert [one["queue"] for one in overview["queues"]] == ["inbox", "outbox", "memory"]
    assert overview["workers"] == []
    assert overview["attention"] == []
    assert overview["health"]["database"]["status"] == "ok"
    assert overview["health"]["memory"] == {
        "status": "ok",
        "pending": 0,
        "oldestAt": None,
        "dead": 0,
    }


async def test_the_overview_counts_queues_and_shows_what_each_worker_does(
    api: Api, clock: Clock
) -> None:
    await start_process(api)
    await api.say("one", agent="coder")
    await api.complete()
    await api.say("two", agent="coder")
    turn = await api.claim()
    await api.store.record(JournalEntry(turn=turn, progress="reading"))
    await api.say("three", agent="writer")

    overview = await api.get("/api/overview")

    [inbox, *_] = overview["queues"]
    assert (inbox["ready"], inbox["processing"], inbox["dead"]) == (1, 1, 0)
    assert inbox["receivedPerMinute"] == 0.6
    assert inbox["completedPerMinute"] == 0.2
    assert inbox["oldestWaitingAt"] == overview["now"]
    [worker] = overview["workers"]
    assert (worker["process"], worker["version"], worker["turns"]) == ("worker-1", "0.8.0", 1)
    assert (worker["agents"], worker["channels"]) == (["coder", "writer"], ["slack"])
    [item] = worker["now"]
    assert (item["eventId"], item["agent"], item["progress"]) == (
        turn.primary.id,
        "coder",
        "reading",
    )
    assert item["since"] == overview["now"]


async def test_what_needs_a_person_comes_most_urgent_first(api: Api, clock: Clock) -> None:
    process = await start_process(api)
    await api.store.refresh_process(replace(process, problems={"slack": "not connected"}))
    await api.say("old news", agent="coder")
    await api.bury()
    clock.tick(days=2)
    await api.say("did it happen?", agent="coder")
    await api.store.settle([(await api.claim(), Dead("unknown", EFFECT_UNKNOWN))])
    await api.say("deploy?", agent="coder")
    turn = await api.claim()
    wait = Step(key="approve", state="started", attempt=1, kind="signal", signal="approve")
    await api.store.record(JournalEntry(turn=turn, steps=[wait]))
    await api.store.settle([(turn, Snooze(timedelta(days=1)))])
    await api.say("anybody?", agent="writer")
    clock.tick(minutes=6)
    await request_pairing(open_pairings(api.store), "telegram", "4711", "Eve")
    await Pauses(api.store).pause("channel", "slack", "maintenance", actor="cli:ada")

    overview = await api.get("/api/overview")

    assert kinds(overview) == [
        "channel",
        "approval",
        "effect_unknown",
        "waiting",
        "pairing",
        "dead",
        "paused",
    ]
    found = {one["kind"]: one for one in overview["attention"]}
    assert found["approval"]["link"] == f"/console/messages/{turn.primary.id}"
    assert found["paused"]["text"] == "channel slack is paused by cli:ada: maintenance"
    assert (found["dead"]["severity"], found["dead"]["count"]) == ("low", 1)
    assert found["waiting"]["link"] == "/console/messages?agent=writer"
    [slack] = overview["health"]["channels"]
    assert (slack["status"], slack["problems"]) == ("failing", ["not connected"])


async def test_a_turn_that_asks_people_is_listed_with_its_question(api: Api) -> None:
    await start_process(api)
    await api.say("deploy?", agent="coder")
    turn = await api.claim()
    asked = json.dumps({"prompt": "Ship it\nto production?", "options": []})
    wait = Step(key="ok", state="started", attempt=1, kind="signal", signal="ok", arguments=asked)
    await api.store.record(JournalEntry(turn=turn, steps=[wait]))
    await api.store.settle([(turn, Snooze(timedelta(days=1)))])

    [concern] = (await api.get("/api/overview"))["attention"]

    assert concern["text"] == "coder asks: Ship it to production?"


async def test_messages_that_no_process_serves_need_a_person(api: Api) -> None:
    await api.say("hello", agent="coder")

    overview = await api.get("/api/overview")

    assert kinds(overview) == ["unserved"]
    assert overview["attention"][0]["text"] == "no process serves coder"


async def test_a_provider_that_only_fails_is_failing_and_with_successes_is_a_warning(
    api: Api,
) -> None:
    await start_process(api, providers={"coder": "openai", "writer": "anthropic"})
    await api.say("hello", agent="coder")
    await api.store.settle([(await api.claim(), Retry("status 503", None, "ModelHTTPError"))])

    anthropic, openai = (await api.get("/api/overview"))["health"]["providers"]

    assert (openai["status"], openai["failures"]) == ("failing", 1)
    assert openai["lastError"] == "status 503"
    assert (anthropic["status"], anthropic["agents"]) == ("unknown", ["writer"])
    await api.store.settle([(await api.claim(), Done())])
    overview = await api.get("/api/overview")
    assert overview["health"]["providers"][1]["status"] == "warning"
    assert "provider" in kinds(overview)


async def test_numbers_by_time_have_every_bucket_and_a_sum(api: Api, clock: Clock) -> None:
    await api.say("one", agent="coder")
    turn = await api.claim()
    clock.tick(seconds=4)
    await api.store.settle([(turn, Done())])
    await api.say("two", agent="writer")
    await api.bury()

    for window, number, step in (
        ("hour", 60, 60_000),
        ("day", 96, 900_000),
        ("week", 84, 7_200_000),
    ):
        stats = await api.get(f"/api/stats?window={window}", "read")
        assert (len(stats["buckets"]), stats["step"]) == (number, step)
        total = stats["total"]
        assert (total["received"], total["completed"], total["failed"]) == (2, 1, 1)
        assert 3_800 <= total["p50"] <= 4_200
        ends = [one["at"] for one in stats["buckets"]]
        assert {after - before for before, after in pairwise(ends)} == {step}
    writer = (await api.get("/api/stats?window=day&agent=writer"))["total"]
    assert (writer["received"], writer["failed"], writer["p50"]) == (1, 1, None)


async def test_messages_without_an_agent_count_for_the_default_one(api: Api) -> None:
    await api.say("hello")
    await api.complete()

    assert (await api.get("/api/stats?agent=coder"))["total"]["completed"] == 1


async def test_a_wrong_window_is_refused(api: Api) -> None:
    status, answer = await api.ask("GET", "/api/stats?window=year")

    assert status == 400
    assert answer["error"].startswith("window: ")


async def test_callers_with_limits_see_neither_but_the_numbers_of_their_agents(api: Api) -> None:
    sender = await create(api, "ci")
    bound = await create(api, "bot", "read", agents=["writer"])
    narrow = await create(api, "narrow", "read", channels=["web"])

    for token in (bound, narrow):
        status, _ = await ask(api, token, "GET", "/api/overview")
        assert status == 403
    assert (await ask(api, sender, "GET", "/api/overview"))[0] == 403
    assert (await ask(api, bound, "GET", "/api/stats"))[0] == 403
    assert (await ask(api, bound, "GET", "/api/stats?agent=writer"))[0] == 200
    assert (await ask(api, bound, "GET", "/api/stats?agent=coder"))[0] == 403
    assert (await ask(api, narrow, "GET", "/api/stats?agent=writer"))[0] == 403


async def test_a_bound_reader_sees_the_status_of_its_channels_alone(api: Api) -> None:
    await start_process(api, channels=["slack", "telegram"])
    bound = await create(api, "of slack", "read", channels=["slack"])

    _, status = await ask(api, bound, "GET", "/api/status")

    assert set(status["channels"]) == {"slack"}
    assert set((await api.get("/api/status", "read"))["channels"]) == {"slack", "telegram"}

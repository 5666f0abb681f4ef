"""The rows on queues: what waits, what is worked, what is dead."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta

import pytest

from holdfast.queue.event import INBOX, OUTBOX, NewEvent
from holdfast.queue.outcome import Dead, Done, Lost
from holdfast.queue.store import Process
from holdfast.routing.router import Routing
from holdfast.testing.clock import Clock
from tests.contract.http.steps import Api


async def test_the_status_counts_each_state_once(api: Api) -> None:
    for _ in range(3):
        await api.say()
    await api.say(sender="other")
    await api.complete()
    await api.claim()
    later = await api.store.now() + timedelta(hours=1)
    await api.store.put([NewEvent(event={"kind": "message"}, vt=later)])
    await api.respond()
    await api.store.put([NewEvent(event={}, target="coder", queue="memory")])
    status = await api.get("/api/queue/status", role="read")
    assert {name: status[name] for name in ("completed", "dead", "outgoing")} == {
        "completed": 1,
        "dead": 0,
        "outgoing": 1,
    }
    assert (status["processing"], status["pending"]) == (1, 3)
    assert status["incoming"] + status["queued"] == status["pending"]
    assert status["queued"] == 1


async def test_dead_counts_what_is_expired_and_cancelled_and_not_what_was_discarded(
    api: Api,
) -> None:
    for sender in "abc":
        await api.say(sender=sender)
    await api.bury()
    discarded = await api.bury()
    await api.ask("DELETE", f"/api/queue/dead/{discarded}")
    turn = await api.claim()
    await api.post(f"/api/queue/processing/{turn.primary.id}/kill")
    assert (await api.get("/api/queue/status"))["dead"] == 2


async def test_each_agent_with_live_messages_is_listed_and_pending_includes_queued(
    api: Api,
) -> None:
    assert await api.get("/api/queue/agents", role="read") == []
    for _ in range(2):
        await api.say()
    await api.say(agent="coder", sender="other")
    await api.say(agent="writer")
    await api.claim(targets=("writer",))
    assert await api.get("/api/queue/agents") == [
        {"agent": "coder", "pending": 3, "queued": 1, "processing": 0},
        {"agent": "writer", "pending": 0, "queued": 0, "processing": 1},
    ]


async def test_an_agent_that_no_process_serves_is_marked_and_others_have_the_keys_of_the_contract(
    api: Api,
) -> None:
    now = await api.store.now()
    serves = asdict(Routing(default="coder", lanes={"coder": "conversation"}))
    await api.store.register(
        Process(id="p", host="elsewhere", started_at=now, seen_at=now, serves=serves)
    )
    await api.store.put(
        [NewEvent(event={"kind": "message"}, target=target) for target in ("coder", "writer")]
    )
    coder, writer = await api.get("/api/queue/agents")
    assert list(coder) == ["agent", "pending", "queued", "processing"]
    assert writer == {
        "agent": "writer",
        "pending": 1,
        "queued": 0,
        "processing": 0,
        "served": False,
    }


async def test_what_is_worked_is_shown_with_its_worker_and_for_how_long(
    api: Api, clock: Clock
) -> None:
    message_id = await api.say("hello", sender="Ada")
    turn = await api.claim()
    started_at = int((await api.store.now()).timestamp() * 1000)
    clock.tick(seconds=2)
    [found] = await api.get("/api/queue/processing", role="read")
    assert found == {
        "id": turn.primary.id,
        "messageId": message_id,
        "channel": "api",
        "sender": "Ada",
        "message": "hello",
        "agent": "coder",
        "status": "processing",
        "startedAt": pytest.approx(started_at, abs=1),
        "duration": 2000,
        "worker": "worker-1",
    }


async def test_what_is_worked_can_be_killed_and_its_worker_has_lost_it(api: Api) -> None:
    await api.say()
    turn = await api.claim()
    assert await api.post(f"/api/queue/processing/{turn.primary.id}/kill") == (200, {"ok": True})
    assert await api.store.settle([(turn, Done())]) == [Lost(turn)]
    [letter] = await api.get("/api/queue/dead")
    assert (letter["id"], letter["outcome"]) == (turn.primary.id, "cancelled")
    assert letter["failedReason"].startswith("cancelled")


async def test_what_is_not_being_worked_cannot_be_killed(api: Api) -> None:
    not_found = (404, {"error": "processing message not found"})
    await api.say()
    turn = await api.claim()
    await api.store.release([turn])
    for id_ in (turn.primary.id, 999_999, "x", "-1", "9" * 30, "%00"):
        assert await api.post(f"/api/queue/processing/{id_}/kill") == not_found
    assert (await api.get("/api/queue/status"))["pending"] == 1


async def test_a_response_being_delivered_is_no_message_being_processed(api: Api) -> None:
    id_ = await api.respond()
    await api.claim(OUTBOX)
    assert (await api.post(f"/api/queue/processing/{id_}/kill"))[0] == 404


async def test_a_dead_letter_has_the_keys_of_the_contract(api: Api) -> None:
    message_id = await api.say("hello", sender="Ada", senderId="u1", agent="writer")
    came_at = int((await api.store.now()).timestamp() * 1000)
    id_ = await api.bury("the printer is on fire")
    [letter] = await api.get("/api/queue/dead", role="read")
    finished_at = letter.pop("finishedAt")
    assert letter == {
        "id": id_,
        "queue": "inbox",
        "data": {
            "channel": "api",
            "sender": "Ada",
            "senderId": "u1",
            "message": "hello",
            "messageId": message_id,
            "agent": "writer",
        },
        "failedReason": "the printer is on fire",
        "errorClass": "hopeless",
        "outcome": "dead",
        "attemptsMade": 1,
        "timestamp": pytest.approx(came_at, abs=1),
    }
    assert finished_at >= letter["timestamp"]


async def test_issue_14_24_a_dead_letter_has_the_traceback_of_its_last_attempt(api: Api) -> None:
    await api.say()
    turn = await api.claim()
    await api.store.settle([(turn, Dead("division by zero", traceback="in compute"))])
    [letter] = await api.get("/api/queue/dead", role="read")
    assert letter["traceback"] == "in compute"


async def test_dead_letters_are_of_the_inbox_unless_another_queue_is_named_newest_first(
    api: Api,
) -> None:
    for sender in "ab":
        await api.say(sender=sender)
    made = [await api.bury(), await api.bury()]
    await api.respond()
    undelivered = await api.bury(queue=OUTBOX)
    assert [one["id"] for one in await api.get("/api/queue/dead")] == sorted(made, reverse=True)
    assert [one["id"] for one in await api.get("/api/queue/dead?limit=1")] == [max(made)]
    [letter] = await api.get(f"/api/queue/dead?queue={OUTBOX}")
    assert (letter["id"], letter["queue"], letter["data"]["agent"]) == (
        undelivered,
        OUTBOX,
        "coder",
    )
    assert await api.get("/api/queue/dead?queue=nothing") == []
    assert (await api.ask("GET", "/api/queue/dead?queue=%00"))[0] == 400


@pytest.mark.parametrize("queue", [INBOX, OUTBOX])
async def test_a_dead_letter_of_any_queue_can_be_retried_with_its_id_and_full_attempts(
    api: Api, queue: str
) -> None:
    await (api.say() if queue == INBOX else api.respond())
    id_ = await api.bury(queue=queue)
    assert await api.post(f"/api/queue/dead/{id_}/retry") == (200, {"ok": True})
    turn = await api.claim(queue)
    assert (turn.primary.id, turn.attempt) == (id_, 1)
    assert await api.post(f"/api/queue/dead/{id_}/retry") == (
        404,
        {"error": "dead message not found"},
    )


async def test_a_deleted_dead_letter_loses_payload_and_error(api: Api) -> None:
    await api.say()
    id_ = await api.bury()
    assert await api.ask("DELETE", f"/api/queue/dead/{id_}") == (200, {"ok": True})
    assert await api.get("/api/queue/dead") == []
    assert await api.ask("DELETE", f"/api/queue/dead/{id_}") == (
        404,
        {"error": "dead message not found"},
    )
    assert await api.post(f"/api/queue/dead/{id_}/retry") == (
        404,
        {"error": "dead message not found"},
    )


@pytest.mark.parametrize("unknown", ["999999", "0", "-1", "x", "1.5", "%00", "9" * 30])
async def test_what_is_no_dead_letter_is_not_found(api: Api, unknown: str) -> None:
    not_found = (404, {"error": "dead message not found"})
    assert await api.post(f"/api/queue/dead/{unknown}/retry") == not_found
    assert await api.ask("DELETE", f"/api/queue/dead/{unknown}") == not_found

"""Steps, text, signals and the stop of one message (issue 16)."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest

from holdfast.queue.event import NewEvent
from holdfast.queue.journal import JournalEntry, Step, Write
from holdfast.queue.outcome import Dead, Done, Retry, Snooze
from holdfast.queue.store import Filter
from holdfast.queue.turn import LeasedTurn
from holdfast.testing.clock import Clock
from tests.contract.http.steps import Answered, Api
from tests.contract.http.test_message_status import response
from tests.contract.http.test_tokens import ask, create, say

ENDED = (409, {"error": "the message has ended"})
MISSING = (404, {"error": "message not found"})
OK = (200, {"ok": True})


async def write(
    api: Api, turn: LeasedTurn, text: str, generation: int = 1, offset: int = 0
) -> None:
    await api.store.record(JournalEntry(turn=turn, write=Write(generation, offset, text)))


async def answer(api: Api, turn: LeasedTurn, text: str) -> None:
    await api.store.settle([(turn, Done((response(turn, text),)))])


async def frames(api: Api, id_: str, last_id: str = "") -> list[dict[str, Any]]:
    """The frames of a stream that ends; each has its id."""
    headers = {"authorization": f"Bearer {api.tokens['read']}"}
    if last_id:
        headers["last-event-id"] = last_id
    got = await api.client.get(f"/api/message/{quote(id_, safe='')}/stream", headers=headers)
    assert got.status_code == 200, got.text
    assert got.headers["content-type"].startswith("text/event-stream")
    return [_frame(block) for block in got.text.split("\n\n") if "data: " in block]


def _frame(block: str) -> dict[str, Any]:
    fields = dict(line.split(": ", 1) for line in block.splitlines())
    data: dict[str, Any] = json.loads(fields["data"])
    assert fields["event"] == data["type"]
    return {**data, "id": fields["id"]}


def kinds(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["type"], one.get("text") or one.get("key") or "") for one in found]


async def test_the_status_shows_steps_and_the_text_so_far(api: Api, clock: Clock) -> None:
    id_ = await api.say()
    turn = await api.claim()
    now = int(clock.now.timestamp() * 1000)
    done = Step(key="look", state="done", attempt=1, started_at=clock.now, ended_at=clock.now)
    begun = Step(key="look#2", state="started", attempt=1)
    failed = Step(key="ask", state="failed", attempt=1, error="RuntimeError: no")
    entry = JournalEntry(
        turn=turn, steps=(done, begun, failed), write=Write(1, 0, "Hel"), progress="1 of 7"
    )
    await api.store.record(entry)
    found = await api.get(f"/api/message/{id_}")
    for step in found["steps"]:
        assert (step.pop("kind"), step.pop("duration")) == (
            "step",
            None if step["endedAt"] is None else 0,
        )
    assert found["steps"] == [
        {"key": "look", "status": "done", "attempt": 1, "startedAt": now, "endedAt": now},
        {"key": "look#2", "status": "started", "attempt": 1, "startedAt": now, "endedAt": None},
        {
            "key": "ask",
            "status": "failed",
            "attempt": 1,
            "startedAt": now,
            "endedAt": now,
            "error": "RuntimeError: no",
        },
    ]
    assert (found["partial"], found["progress"], found["status"]) == ("Hel", "1 of 7", "processing")
    await answer(api, turn, "Hello")
    found = await api.get(f"/api/message/{id_}")
    assert (found["response"], len(found["steps"])) == ("Hello", 3)
    assert "partial" not in found
    assert "progress" not in found


async def test_a_message_that_waits_has_the_status_waiting(api: Api, clock: Clock) -> None:
    id_ = await api.say()
    turn = await api.claim()
    wait = Step(key="sleep", kind="sleep", state="started", attempt=1)
    await api.store.record(JournalEntry(turn=turn, steps=[wait]))
    assert (await api.get(f"/api/message/{id_}"))["status"] == "processing"
    await api.store.settle([(turn, Snooze(timedelta(hours=1)))])
    assert (await api.get(f"/api/message/{id_}"))["status"] == "waiting"
    clock.tick(hours=1)
    assert (await api.get(f"/api/message/{id_}"))["status"] == "pending", "due, not claimed yet"


async def test_a_message_that_is_tried_again_later_is_pending(api: Api) -> None:
    id_ = await api.say()
    turn = await api.claim()
    await write(api, turn, "Hel")
    await api.store.settle([(turn, Retry("no", timedelta(hours=1)))])
    found = await api.get(f"/api/message/{id_}")
    assert (found["status"], found["partial"]) == ("pending", "Hel")


async def test_an_answer_that_was_not_streamed_is_one_delta(api: Api) -> None:
    id_ = await api.say(sender="Ada")
    await answer(api, await api.claim(), "Hello 😀 there")
    delta, end = await frames(api, id_)
    about = {"messageId": id_, "agent": "coder", "channel": "api", "sender": "Ada"}
    for frame in (delta, end):
        assert about.items() <= frame.items()
        assert frame["timestamp"] > 0
        assert "subject" not in frame
    assert (delta["text"], delta["offset"]) == ("Hello 😀 there", 0)
    assert end["type"] == "response_ready"
    assert kinds(await frames(api, id_, delta["id"])) == [("response_ready", "")]
    assert await frames(api, id_, end["id"]) == [], "the end was seen"


@pytest.mark.parametrize(
    ("final", "seen"),
    [
        ("Hello 😀!", [("response_delta", "!")]),
        ("Hello 😀", []),
        ("Adieu", [("response_reset", ""), ("response_delta", "Adieu")]),
        ("Hel", [("response_reset", ""), ("response_delta", "Hel")]),
    ],
)
async def test_the_end_of_a_streamed_answer_brings_it_to_the_text_of_the_response(
    api: Api, final: str, seen: list[tuple[str, str]]
) -> None:
    id_ = await api.say()
    turn = await api.claim()
    await write(api, turn, "Hello ")
    await write(api, turn, "😀", offset=6)
    await answer(api, turn, final)
    whole = await frames(api, id_)
    assert kinds(whole) == [("response_delta", final), ("response_ready", "")]
    assert kinds(await frames(api, id_, "1.7.0")) == [*seen, ("response_ready", "")]


async def test_a_silent_agent_ends_the_stream_without_text(api: Api) -> None:
    id_ = await api.say()
    await api.complete()
    assert kinds(await frames(api, id_)) == [("response_ready", "")]


async def test_steps_are_told_once_each_and_before_the_text(api: Api) -> None:
    id_ = await api.say()
    turn = await api.claim()
    steps = [Step(key=key, state="done", attempt=1) for key in ("look", "look#2")]
    await api.store.record(JournalEntry(turn=turn, steps=steps))
    await answer(api, turn, "Hi")
    seen = await frames(api, id_)
    assert kinds(seen) == [
        ("step_start", "look"),
        ("step_done", "look"),
        ("step_start", "look#2"),
        ("step_done", "look#2"),
        ("response_delta", "Hi"),
        ("response_ready", ""),
    ]
    for nth, frame in enumerate(seen):
        assert kinds(await frames(api, id_, frame["id"])) == kinds(seen)[nth + 1 :]


async def test_a_dead_letter_ends_with_what_was_said_and_why(api: Api) -> None:
    id_ = await api.say()
    turn = await api.claim()
    await write(api, turn, "Hel")
    await api.store.settle([(turn, Dead("no paper", "printer"))])
    delta, end = await frames(api, id_)
    assert (delta["text"], end["type"]) == ("Hel", "message_failed")
    failure = (end["error"], end["errorClass"], end["dead"], end["eventId"])
    assert failure == ("no paper", "printer", True, turn.primary.id)
    assert (await api.get(f"/api/message/{id_}"))["partial"] == "Hel"


async def test_a_retried_dead_letter_goes_on_behind_its_end(api: Api) -> None:
    id_ = await api.say()
    turn = await api.claim()
    await write(api, turn, "Hel")
    await api.store.settle([(turn, Dead("no"))])
    *_, end = await frames(api, id_)
    await api.store.retry(Filter(ids=[turn.primary.id]))
    await answer(api, await api.claim(), "Hello")
    again = await frames(api, id_, end["id"])
    assert kinds(again) == [("response_delta", "lo"), ("response_ready", "")]


@pytest.mark.parametrize("last_id", ["x", "1", "1.2", "17.0", "1.2.3.gone", "1.2.1-4", "9" * 40])
async def test_a_malformed_position_is_refused(api: Api, last_id: str) -> None:
    id_ = await api.say()
    status, refusal = await api.ask(
        "GET", f"/api/message/{id_}/stream", headers={"last-event-id": last_id}
    )
    assert (status, refusal) == (
        400,
        {"error": "Last-Event-ID is not the id of a frame of this stream"},
    )


@pytest.mark.parametrize("id_", ["a/stream", "stream", "a/stop", "x/signal/stream", "a b/c%2F"])
async def test_parts_of_ids_that_look_like_routes_are_parts_of_ids(api: Api, id_: str) -> None:
    path = f"/api/message/{quote(id_, safe='')}"
    await api.say(messageId=id_)
    await api.say("not this one", messageId=id_.split("/")[0] + "?")
    assert (await api.get(path))["messageId"] == id_
    assert await api.post(f"{path}/signal", {"name": "go"}) == OK
    assert await api.post(f"{path}/stop") == OK
    assert kinds(await frames(api, id_)) == [("message_failed", "")]


@pytest.mark.parametrize("part", ["stream", "signal", "stop"])
async def test_a_part_of_an_unknown_message_is_not_found(api: Api, part: str) -> None:
    method = "GET" if part == "stream" else "POST"
    body = {"name": "go"} if part == "signal" else None
    for id_ in ("nothing", "%00", "a%2Fb"):
        assert await api.ask(method, f"/api/message/{id_}/{part}", body) == MISSING


@pytest.mark.parametrize(("part", "method"), [("stream", "POST"), ("stop", "GET")])
async def test_a_part_refuses_other_methods(api: Api, part: str, method: str) -> None:
    id_ = await api.say()
    status, _ = await api.ask(method, f"/api/message/{id_}/{part}")
    assert status in (404, 405)


async def stop(api: Api, id_: str) -> Answered:
    return await api.post(f"/api/message/{id_}/stop")


async def test_a_stopped_message_is_a_dead_letter_that_keeps_its_text(api: Api) -> None:
    id_ = await api.say()
    turn = await api.claim()
    await write(api, turn, "Hel")
    assert await stop(api, id_) == OK
    [letter] = await api.store.dead(Filter(ids=turn.ids))
    assert letter.outcome == "cancelled"
    found = await api.get(f"/api/message/{id_}")
    assert (found["status"], found["partial"]) == ("dead", "Hel")
    assert kinds(await frames(api, id_)) == [("response_delta", "Hel"), ("message_failed", "")]
    assert await stop(api, id_) == ENDED
    [acted] = await api.get("/api/audit?action=cancelled")
    assert acted["actor"] == "api:admin"


async def test_what_waits_is_stopped_too(api: Api) -> None:
    waiting, pending = await api.say(sender="a"), await api.say(sender="b")
    turn = await api.claim()
    await api.store.settle([(turn, Snooze(timedelta(days=1)))])
    for id_ in (waiting, pending):
        assert await stop(api, id_) == OK
        assert (await api.get(f"/api/message/{id_}"))["status"] == "dead"


async def test_an_answered_message_is_neither_stopped_nor_signalled(api: Api) -> None:
    id_ = await api.say()
    await answer(api, await api.claim(), "Hi")
    assert await stop(api, id_) == ENDED
    assert await api.post(f"/api/message/{id_}/signal", {"name": "go"}) == ENDED


async def test_a_sender_reaches_only_its_own_messages_an_admin_all(api: Api) -> None:
    ada, bob = await create(api, "ada"), await create(api, "bob")
    reader = await create(api, "reader", "read")
    id_ = await say(api, ada, "hi")
    path = f"/api/message/{id_}"
    await answer_soon(api)
    for part, body in (("stop", None), ("signal", {"name": "go"})):
        assert await ask(api, bob, "POST", f"{path}/{part}", body) == MISSING
        assert (await ask(api, reader, "POST", f"{path}/{part}", body))[0] == 403
    assert await ask(api, bob, "GET", f"{path}/stream") == MISSING
    status, _ = await api.ask("POST", f"{path}/stop", role="send")
    assert status == 403, "the bootstrap token of role send did not send it"
    assert await ask(api, ada, "POST", f"{path}/signal", {"name": "go"}) == OK
    assert await ask(api, ada, "POST", f"{path}/stop") == OK
    assert (await ask(api, ada, "GET", f"{path}/stream"))[0] == 200
    other = await say(api, bob, "hi")
    assert await stop(api, other) == OK


async def test_the_bootstrap_sender_stops_what_came_by_http_and_nothing_of_a_platform(
    api: Api,
) -> None:
    for channel in ("slack", "heartbeat", "schedule"):
        event = {"kind": "message", "channel": channel, "sender": "Ada", "message": "hi"}
        await api.store.put([NewEvent(event=event, target="coder", message_id=f"{channel}_1")])
        status, refusal = await api.ask("POST", f"/api/message/{channel}_1/stop", role="send")
        assert (status, "only stop its own" in refusal["error"]) == (403, True)
        assert await stop(api, f"{channel}_1") == OK
    own = await api.say(channel="web")
    assert await api.ask("POST", f"/api/message/{own}/stop", role="send") == OK


async def answer_soon(api: Api) -> None:
    await api.claim()


async def test_a_signal_resumes_a_message_that_waits_for_it(api: Api) -> None:
    id_ = await api.say()
    turn = await api.claim()
    wait = Step(key="paid", kind="signal", state="started", attempt=1, signal="paid")
    await api.store.record(JournalEntry(turn=turn, steps=[wait]))
    await api.store.settle([(turn, Snooze(timedelta(days=1)))])
    assert await api.post(f"/api/message/{id_}/signal", {"name": "other"}) == OK
    assert (await api.get(f"/api/message/{id_}"))["status"] == "waiting"
    value = {"amount": 12, "by": ["Ada", None, "😀"]}
    body = {"name": "paid", "value": value}
    assert await api.post(f"/api/message/{id_}/signal", body) == OK
    again = await api.claim()
    taken = await api.store.take_signal(again, wait)
    assert taken is not None
    assert json.loads(taken.result or "") == value


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({}, "name is required"),
        ({"name": ""}, "name"),
        ({"name": " "}, "name"),
        ({"name": 7}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"name": "a\nb"}, "name"),
        ([], "the body is not a JSON object"),
    ],
)
async def test_a_signal_without_a_name_is_refused(api: Api, body: Any, error: str) -> None:
    id_ = await api.say()
    status, refusal = await api.post(f"/api/message/{id_}/signal", body)
    assert (status, error in refusal["error"]) == (400, True), refusal


async def test_a_signal_over_the_limit_of_a_body_is_refused(api: Api) -> None:
    id_ = await api.say()
    body = {"name": "go", "value": "x" * 1024 * 1024}
    status, _ = await api.post(f"/api/message/{id_}/signal", body)
    assert status == 413


async def test_a_call_that_may_have_happened_is_retried_only_with_an_assumption(api: Api) -> None:
    id_ = await api.say()
    turn = await api.claim()
    once = Step(key="charge", kind="once", state="started", attempt=1, arguments='{"args": [12]}')
    await api.store.record(JournalEntry(turn=turn, steps=[once]))
    await api.store.settle([(turn, Dead("charge may have happened", "EffectUnknown"))])
    path = f"/api/queue/dead/{turn.primary.id}/retry"
    status, refusal = await api.post(path)
    assert (status, "may have happened" in refusal["error"]) == (409, True)
    assert (await api.get(f"/api/message/{id_}"))["status"] == "dead"
    assert (await api.post(path, {"assume": "perhaps"}))[0] == 400
    assert (await api.post("/api/queue/dead/4711/retry", {"assume": "done"}))[0] == 404
    assert await api.post(path, {"assume": "done"}) == OK
    found = await api.get(f"/api/message/{id_}")
    assert (found["status"], found["steps"][0]["status"]) == ("pending", "done")

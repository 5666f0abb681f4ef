"""Lists without an id to page by: each page ends at a number of bytes and names the next one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.api.limits import Limits
from holdfast.api.security.credentials import Grant, issue
from holdfast.chat import AgentMessage
from holdfast.queue.event import NewEvent
from holdfast.queue.outcome import Done
from holdfast.store.memory import open_people
from holdfast.store.pairing import open_pairings, request_pairing
from holdfast.testing.clock import Clock
from tests.contract.http.steps import Api
from tests.contract.http.test_remembered import ADA, WEB_ADA, remember
from tests.contract.http.test_schedules import add
from tests.contract.http.test_tokens import create


@pytest.fixture
def limits() -> Limits:
    """Every page is full with one row."""
    return Limits(quick_query=timedelta.max, caller_cache_seconds=0.0, page_bytes=1)


async def follow(api: Api, path: str) -> list[Any]:
    """The rows of all pages, of which each has one."""
    rows: list[Any] = []
    following = path
    while following:
        page, following = await api.page(following)
        assert len(page) <= 1
        rows += page
    return rows


async def test_schedules_end_at_a_number_of_bytes(api: Api) -> None:
    ids = [(await add(api))["id"] for _ in range(3)]
    assert [one["id"] for one in await follow(api, "/api/schedules")] == sorted(ids)


async def test_runs_of_a_schedule_end_at_a_number_of_bytes(api: Api, clock: Clock) -> None:
    added = await add(api, to=None)
    path, names = f"/api/schedules/{added['id']}", []
    for _ in range(3):
        clock.tick(minutes=1)
        _, ran = await api.post(f"{path}/run")
        names.append(ran["messageId"])
    for name in names:
        await answer_run(api, f"answer to {name}")
    runs = await follow(api, f"{path}/runs")
    assert [(one["messageId"], one["answer"]) for one in runs] == [
        (name, f"answer to {name}") for name in reversed(names)
    ]


async def answer_run(api: Api, text: str) -> None:
    """The next message is answered, with a line in the history of its agent."""
    turn = await api.claim()
    message, conversation = turn.primary, turn.primary.event["conversation"]
    line: dict[str, Any] = {
        "agent_id": "writer",
        "channel": "schedule",
        "conversation": conversation,
        "message_id": message.message_id,
    }
    lines = (
        AgentMessage(role="user", sender="Schedule", content="hi", event_id=message.id, **line),
        AgentMessage(role="assistant", sender="writer", content=text, **line),
    )
    payload = {"kind": "response", "channel": "schedule", "conversation": conversation}
    payload |= {"sender": "writer", "message": text, "agent": "writer"}
    response = NewEvent(
        event=payload, queue="outbox", target="schedule", message_id=f"{message.message_id}/writer"
    )
    await api.store.settle([(turn, Done((response,), lines))])


async def test_observations_of_linked_people_end_at_a_number_of_bytes(api: Api) -> None:
    for key, content in ((ADA, "tea"), (WEB_ADA, "cats"), (ADA, "chess"), (WEB_ADA, "dogs")):
        await remember(api, key, content)
    await open_people(api.store).link(ADA, WEB_ADA)
    found = await follow(api, f"/api/observations?subject={ADA}")
    assert [one["content"] for one in found] == ["dogs", "chess", "cats", "tea"]


async def test_tokens_end_at_a_number_of_bytes(api: Api) -> None:
    for name in ("b b", "a", "c"):
        await create(api, name)
    assert [one["name"] for one in await follow(api, "/api/tokens")] == ["a", "b b", "c"]


async def test_sessions_end_at_a_number_of_bytes(api: Api, clock: Clock) -> None:
    for name in ("first", "second", "at once", "too"):
        grant = Grant(name=name, role="read")
        await issue(api.store, "session", grant, timedelta(days=1))
        if name != "at once":
            clock.tick(seconds=1)
    found = [one["name"] for one in await follow(api, "/api/sessions")]
    assert (set(found[:2]), found[2:]) == ({"at once", "too"}, ["second", "first"])
    for wrong in ("x", "1", "x.session_1", ".", "9" * 30 + ".session_1"):
        assert (await api.ask("GET", f"/api/sessions?after={wrong}"))[0] == 400


async def test_approved_people_end_at_a_number_of_bytes(api: Api) -> None:
    people = [("discord", "2"), ("telegram", "1:a"), ("telegram", "3")]
    for channel, id_ in people:
        asked = await request_pairing(open_pairings(api.store), channel, id_, "Ada")
        assert asked is not None
        assert (await api.post("/api/pairing/approve", {"code": asked.code}))[0] == 200
    found = await follow(api, "/api/pairing/approved")
    assert [(one["channel"], one["senderId"]) for one in found] == people


@pytest.mark.parametrize(
    "path", ["/api/schedules", "/api/tokens", "/api/sessions", "/api/pairing/approved"]
)
async def test_a_limit_is_from_1_to_1000(api: Api, path: str) -> None:
    for limit, status in ((0, 400), (1, 200), (1000, 200), (1001, 400)):
        assert (await api.ask("GET", f"{path}?limit={limit}"))[0] == status

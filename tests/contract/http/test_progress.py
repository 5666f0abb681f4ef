"""GET /api/message/:id: place in the queue, waits, steps, hand-offs, tokens and cost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast.app import AgentHarness
from holdfast.channels.buttons import question
from holdfast.queue.journal import JournalEntry, Step
from holdfast.queue.outcome import Dead, Done, Snooze
from holdfast.store.progress import messages_ahead
from tests.contract.http.steps import Api
from tests.contract.http.test_message_status import hand_on
from tests.contract.http.test_tokens import create, seen


async def status(api: Api, id_: str) -> Any:
    return await api.get(f"/api/message/{id_}", "read")


async def test_a_waiting_message_knows_how_many_are_before_it(api: Api) -> None:
    first = await api.say("one", sender="Ada")
    second = await api.say("two", sender="Ada")
    third = await api.say("three", sender="Bob")
    await api.say("for another", agent="writer")
    assert (await status(api, first))["position"] == {"lane": 0, "agent": 0}
    assert (await status(api, second))["position"]["lane"] == 1
    assert (await status(api, third))["position"] == {"lane": 0, "agent": 1}
    await api.claim(targets=("",))
    assert "position" not in await status(api, first)
    assert (await status(api, third))["position"] == {"lane": 0, "agent": 0}


async def test_messages_before_one_are_counted_up_to_a_limit(api: Api) -> None:
    for number in range(6):
        await api.say(str(number))
    [last] = await api.store.recent("inbox", limit=1)
    assert await messages_ahead(api.store, last, most=3) == (3, 1)
    assert await messages_ahead(api.store, last) == (5, 1)


async def test_steps_have_durations_tokens_and_cost(api: Api, clock: Any) -> None:
    id_ = await api.say("hello")
    turn = await api.claim()
    started = await api.store.now()
    clock.tick(seconds=2)
    steps = (
        Step(
            key="think", state="done", attempt=1, tokens=700, cost=0.25, started_at=started,
            ended_at=started + timedelta(milliseconds=1500),
        ),
        Step(key="look", state="started", attempt=1),
        Step(key="more", state="done", attempt=1, tokens=300, started_at=started),
    )  # fmt: skip
    await api.store.record(JournalEntry(turn=turn, steps=steps))
    found = await status(api, id_)
    think, look, more = found["steps"]
    assert (think["duration"], think["tokens"], think["cost"]) == (1500, 700, 0.25)
    assert (look["duration"], "tokens" in look, look["kind"]) == (None, False, "step")
    assert (more["duration"], "cost" in more) == (2000, False)
    assert (found["tokens"], found["cost"]) == (1000, 0.25)
    assert found["startedAt"] is not None
    assert found["endedAt"] is None
    await api.store.settle([(turn, Done())])
    assert (await status(api, id_))["endedAt"] >= found["startedAt"]


async def test_hand_offs_are_listed_with_their_progress(api: Api) -> None:
    id_ = await api.say("hello", agent="coder")
    assert (await status(api, id_))["handoffs"] == []
    await hand_on(api)
    [handed] = (await status(api, id_))["handoffs"]
    assert (handed["toAgent"], handed["status"], handed["message"]) == ("writer", "pending", "help")
    assert (handed["startedAt"], handed["endedAt"]) == (None, None)
    turn = await api.claim()
    step = Step(key="write", state="done", attempt=1, tokens=50, cost=0.5)
    await api.store.record(JournalEntry(turn=turn, steps=(step,)))
    found = await status(api, id_)
    [handed] = found["handoffs"]
    assert (handed["status"], handed["steps"][0]["key"]) == ("processing", "write")
    assert (handed["tokens"], found["tokens"], found["cost"]) == (50, 50, 0.5)
    await api.store.settle([(turn, Dead("no paper"))])
    [handed] = (await status(api, id_))["handoffs"]
    assert (handed["status"], handed["error"]) == ("dead", "no paper")
    assert handed["endedAt"] >= handed["startedAt"] >= handed["createdAt"]
    assert handed["parentId"] == found["eventId"]


async def test_a_bound_reader_sees_no_hand_offs_to_other_agents(api: Api) -> None:
    id_ = await api.say("hello", agent="coder")
    await hand_on(api)
    token = await create(api, "of coder", "read", agents=["coder"])
    assert (await seen(api, token, f"/api/message/{id_}"))["handoffs"] == []


async def test_a_bound_reader_sees_nothing_that_other_agents_ask_and_use(api: Api) -> None:
    id_ = await api.say("hello", agent="coder")
    await hand_on(api)
    turn = await api.claim(targets=("writer",))
    used = Step(key="write", state="done", attempt=1, tokens=50, cost=0.5)
    arguments = '{"prompt": "Pay Eve?", "options": [{"label": "Yes", "value": true}]}'
    wait = Step(
        key="signal ok", kind="signal", state="started", attempt=1, signal="ok",
        arguments=arguments,
    )  # fmt: skip
    await api.store.record(JournalEntry(turn=turn, steps=(used, wait)))
    await api.store.settle([(turn, Snooze(timedelta(hours=1)))])
    whole = await status(api, id_)
    assert (whole["waitingFor"]["prompt"], whole["tokens"], whole["cost"]) == ("Pay Eve?", 50, 0.5)
    token = await create(api, "of coder", "read", agents=["coder"])
    found = await seen(api, token, f"/api/message/{id_}")
    assert not {"waitingFor", "tokens", "cost"} & set(found)


async def test_a_wait_without_a_question_names_its_signal(api: Api) -> None:
    id_ = await api.say("hello")
    turn = await api.claim()
    due = await api.store.now() + timedelta(hours=1)
    step = Step(key="signal ok", kind="signal", state="started", attempt=1, signal="ok", due_at=due)
    await api.store.record(JournalEntry(turn=turn, steps=(step,)))
    assert "waitingFor" not in await status(api, id_)
    await api.store.settle([(turn, Snooze(timedelta(hours=1)))])
    found = await status(api, id_)
    assert found["status"] == "waiting"
    assert found["waitingFor"] == {
        "messageId": id_,
        "signal": "ok",
        "until": int(due.timestamp() * 1000),
    }


async def test_the_question_with_buttons_is_shown_with_the_wait(api: Api) -> None:
    id_ = await api.say("hello")
    turn = await api.claim()
    await api.store.put([question(turn.primary, "Send it?", "ok", {"Yes": True, "No": False})])
    step = Step(key="signal ok", kind="signal", state="started", attempt=1, signal="ok")
    await api.store.record(JournalEntry(turn=turn, steps=(step,)))
    await api.store.settle([(turn, Snooze(timedelta(hours=1)))])
    waiting = (await status(api, id_))["waitingFor"]
    assert (waiting["prompt"], waiting["until"]) == ("Send it?", None)
    assert waiting["options"] == [{"label": "Yes", "value": True}, {"label": "No", "value": False}]


async def test_agents_and_teams_have_descriptions(api: Api) -> None:
    app = AgentHarness(default="coder")
    app.add("coder", lambda turn: None, description="writes code")
    app.team("dev", agents=["coder"], leader="coder", description="builds it")
    await app.routing.write(api.store)
    agents, teams = await api.get("/api/agents"), await api.get("/api/teams")
    assert (agents["coder"]["description"], teams["dev"]["description"]) == (
        "writes code",
        "builds it",
    )

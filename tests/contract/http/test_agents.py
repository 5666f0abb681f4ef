"""The rows on agents, teams and their rooms."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.chat import AgentMessage, ChatMessage
from holdfast.message import text_of
from holdfast.queue.outcome import Done
from holdfast.queue.store import Store
from tests.contract.http.steps import Api


def line(number: int, agent: str = "coder") -> AgentMessage:
    return AgentMessage(
        agent_id=agent,
        role="user",
        channel="api",
        sender="Ada",
        message_id=f"m{number}",
        content=f"hello {number}",
    )


async def record(store: Store, *lines: AgentMessage | ChatMessage) -> None:
    await store.put([], records=lines)


async def test_agents_and_teams_are_maps_by_id(api: Api) -> None:
    agents = await api.get("/api/agents", role="read")
    assert {id_: (one["name"], one["default"]) for id_, one in agents.items()} == {
        "coder": ("coder", True),
        "writer": ("writer", False),
    }
    teams = await api.get("/api/teams", role="read")
    assert teams == {
        "dev": {
            "name": "Devs",
            "description": "",
            "agents": ["coder", "writer"],
            "leader": "coder",
        }
    }


async def test_an_agents_history_has_the_columns_of_its_table_newest_first(api: Api) -> None:
    await record(api.store, line(1), line(2), line(3, "writer"))
    now = int((await api.store.now()).timestamp() * 1000)
    newest, oldest = await api.get("/api/agents/coder/messages", role="read")
    assert newest["id"] > oldest["id"]
    assert newest == {
        "id": newest["id"],
        "agent_id": "coder",
        "role": "user",
        "channel": "api",
        "sender": "Ada",
        "message_id": "m2",
        "content": "hello 2",
        "created_at": pytest.approx(now, abs=1),
    }
    assert await api.get(f"/api/agents/coder/messages?before_id={newest['id']}") == [oldest]
    assert await api.get(f"/api/agents/coder/messages?since_id={oldest['id']}&limit=1") == [newest]


async def test_a_message_is_in_its_agents_history_when_it_is_received_and_when_it_died(
    api: Api,
) -> None:
    sent = await api.say("hello", agent="coder")
    [waiting] = await api.get("/api/agents/coder/messages", role="read")
    assert (waiting["role"], waiting["content"], waiting["message_id"]) == ("user", "hello", sent)
    await api.bury("no model")
    assert await api.get("/api/agents/coder/messages", role="read") == [waiting]


async def test_an_agent_without_history_has_an_empty_one_and_an_unknown_agent_none(
    api: Api,
) -> None:
    assert await api.get("/api/agents/writer/messages") == []
    for unknown in ("nobody", "%00", "x" * 5000):
        assert await api.ask("GET", f"/api/agents/{unknown}/messages") == (
            404,
            {"error": "agent not found"},
        )


async def test_a_room_has_the_columns_of_its_table_newest_first(api: Api) -> None:
    lines = [
        ChatMessage(team_id="dev", from_agent="coder", message=f"hello {number}")
        for number in (1, 2)
    ]
    await record(api.store, *lines)
    newest, oldest = await api.get("/api/chatroom/dev", role="read")
    assert (newest["message"], oldest["message"]) == ("hello 2", "hello 1")
    assert set(newest) == {"id", "team_id", "from_agent", "message", "created_at"}
    assert await api.get(f"/api/chatroom/dev?before_id={newest['id']}") == [oldest]
    assert await api.get("/api/chatroom/DEV?limit=1") == [newest]


async def test_lines_of_a_room_come_as_html_if_asked_for(api: Api) -> None:
    text = "**new** <script>alert(1)</script>"
    await record(api.store, ChatMessage(team_id="dev", from_agent="coder", message=text))
    [line] = await api.get("/api/chatroom/dev?html=true")
    assert "<strong>new</strong>" in line["html"]
    assert "<script>" not in line["html"]


async def test_a_copy_of_a_line_is_listed_without_the_frame_for_its_agent(api: Api) -> None:
    await api.post("/api/chatroom/dev", {"message": "what is new?"})
    listed = await api.get("/api/messages")
    assert [one["message"] for one in listed] == ["what is new?", "what is new?"]
    event = await api.get(f"/api/events/{listed[0]['id']}")
    assert event["message"] == "what is new?"
    assert event["raw"]["message"] == "[In room #dev, from @user]\nwhat is new?"


async def test_a_post_to_a_room_is_a_line_and_a_message_to_every_agent_of_the_team(
    api: Api,
) -> None:
    status, answer = await api.post("/api/chatroom/dev", {"message": "what is new?"}, role="send")
    [line] = await api.get("/api/chatroom/dev")
    assert (status, answer) == (200, {"ok": True, "id": line["id"]})
    assert (line["team_id"], line["message"]) == ("dev", "what is new?")
    texts = []
    for agent in ("coder", "writer"):
        turn = await api.claim(targets=(agent,))
        texts.append(text_of(turn.primary))
        await api.store.settle([(turn, Done())])
    assert all("what is new?" in text for text in texts)


@pytest.mark.parametrize("body", [{}, {"message": ""}, {"message": None}, {"message": "  "}])
async def test_a_post_to_a_room_must_say_something(api: Api, body: Any) -> None:
    assert await api.post("/api/chatroom/dev", body) == (400, {"error": "message is required"})


async def test_an_unknown_team_has_no_room(api: Api) -> None:
    for unknown in ("nobody", "coder", "%00"):
        assert await api.ask("GET", f"/api/chatroom/{unknown}") == (
            404,
            {"error": "team not found"},
        )
        assert await api.post(f"/api/chatroom/{unknown}", {"message": "hi"}) == (
            404,
            {"error": "team not found"},
        )


async def test_the_prefix_names_the_agent_and_answers_keep_the_text_as_written(api: Api) -> None:
    await api.say("@writer hello")
    turn = await api.claim()
    assert (turn.primary.target, text_of(turn.primary)) == ("writer", "hello")
    [found] = await api.get("/api/queue/processing")
    assert (found["agent"], found["message"]) == ("writer", "@writer hello")

"""POST /api/message with `regenerates` and `edits`: new turns, and older versions."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from holdfast.chat import AgentMessage
from holdfast.queue.outcome import Done
from tests.contract.http.steps import Api
from tests.contract.http.test_tokens import ask, create, say
from tests.contract.http.test_uploads import contents, uploaded

WEB: dict[str, Any] = {
    "channel": "web",
    "sender": "web",
    "senderId": "web-1",
    "conversation": "trip",
}
TRIP = "web:web-1/trip"
PATH = f"/api/conversations/{quote(TRIP, safe='')}/messages"


async def reply(api: Api, text: str, agent: str = "coder") -> str:
    """Answer the next message of an agent as the inbox does. Returns its text."""
    turn = await api.claim(targets=("", agent))
    event = turn.primary
    line: dict[str, Any] = {
        "agent_id": agent,
        "channel": "web",
        "conversation": event.event["conversation"],
        "message_id": event.message_id,
    }
    asked = event.event["message"]
    lines = (
        AgentMessage(role="user", sender="web", content=asked, event_id=event.id, **line),
        AgentMessage(role="assistant", sender=agent, content=text, **line),
    )
    await api.store.settle([(turn, Done(records=lines))])
    return str(asked)


async def texts(api: Api, query: str = "") -> list[str]:
    return [line["message"] for line in await api.get(f"{PATH}{query}")]


async def again(api: Api, id_: str, **fields: Any) -> tuple[int, Any]:
    return await api.post("/api/message", {"regenerates": id_, **WEB, **fields}, "send")


async def test_a_regenerated_message_is_a_new_turn_and_keeps_the_old_answer(api: Api) -> None:
    first = await api.say("why?", **WEB)
    await reply(api, "because")
    status, stored = await again(api, first)
    assert status == 200
    assert await reply(api, "therefore") == "why?"
    answered, asked = await api.get(PATH)
    assert (asked["message"], answered["message"]) == ("why?", "therefore")
    assert asked["versions"] == answered["versions"] == [first, stored["messageId"]]
    assert await texts(api, f"?versionsOf={first}") == ["therefore", "why?", "because", "why?"]
    third = (await again(api, stored["messageId"]))[1]["messageId"]
    await reply(api, "it is so")
    answered, _ = await api.get(PATH)
    assert answered["versions"] == [first, stored["messageId"], third]


async def test_an_edited_message_replaces_the_old_one(api: Api) -> None:
    first = await api.say("whi?", **WEB)
    await reply(api, "pardon")
    await api.say("hello", **WEB)
    await reply(api, "hi")
    status, _ = await api.post("/api/message", {"edits": first, "message": "why?", **WEB})
    assert status == 200
    await reply(api, "because")
    assert await texts(api) == ["because", "why?", "hi", "hello"]


async def test_an_old_version_can_be_regenerated_and_stays_one_of_the_same(api: Api) -> None:
    first = await api.say("why?", **WEB)
    await reply(api, "a")
    second = (await again(api, first))[1]["messageId"]
    await reply(api, "b")
    third = (await again(api, first))[1]["messageId"]
    await reply(api, "c")
    answered, asked = await api.get(PATH)
    assert (answered["message"], asked["versions"]) == ("c", [first, second, third])


async def test_older_versions_are_not_in_the_history_of_the_agent(api: Api) -> None:
    first = await api.say("one", **WEB)
    await reply(api, "to one")
    await again(api, first)
    found = await api.store.agent_messages("coder", conversation=TRIP, waiting=False)
    assert found == []
    await reply(api, "to one again")
    found = await api.store.agent_messages("coder", conversation=TRIP, waiting=False)
    assert [line.content for line in found] == ["to one again", "one"]
    everything = await api.store.agent_messages("coder")
    assert len(everything) == 4, "nothing is lost"


async def test_lines_of_hand_offs_go_with_their_message(api: Api) -> None:
    first = await api.say("one", **WEB)
    turn = await api.claim()
    line: dict[str, Any] = {"channel": "web", "conversation": TRIP}
    lines = (
        AgentMessage(
            agent_id="coder", role="user", sender="web", content="one", event_id=turn.primary.id,
            message_id=first, **line,
        ),
        AgentMessage(
            agent_id="writer", role="assistant", sender="writer", content="by a teammate",
            message_id=f"internal_{first}/1", origin=first, **line,
        ),
    )  # fmt: skip
    await api.store.settle([(turn, Done(records=lines))])
    teammate, _ = await api.get(PATH)
    assert (teammate["origin"], teammate["message"]) == (first, "by a teammate")
    await again(api, first)
    await reply(api, "again")
    assert await texts(api) == ["again", "one"]
    assert "by a teammate" in await texts(api, f"?versionsOf={first}")


async def test_the_same_agent_is_asked_again_unless_another_is_named(api: Api) -> None:
    first = await api.say("why?", agent="writer", **WEB)
    await reply(api, "because", "writer")
    second = (await again(api, first))[1]["messageId"]
    turn = await api.claim()
    assert turn.primary.target == "writer"
    await api.store.settle([(turn, Done(records=()))])
    # Without a line there is nothing to ask again.
    assert (await again(api, second))[0] == 404
    status, _ = await again(api, first, agent="coder")
    assert status == 200
    assert (await api.claim()).primary.target == "coder"


async def test_a_message_that_names_its_agent_is_routed_as_before(api: Api) -> None:
    first = await api.say("@writer why?", **WEB)
    await reply(api, "because", "writer")
    await again(api, first)
    turn = await api.claim()
    assert (turn.primary.target, turn.primary.text) == ("writer", "why?")


async def test_files_are_asked_about_again(api: Api) -> None:
    file = await uploaded(api, b"content")
    first = await api.say("what is it?", files=[file], **WEB)
    await reply(api, "text")
    await again(api, first)
    event = (await api.claim()).primary.event
    [copy] = event["files"]
    assert (copy["name"], copy["id"] != file) == ("plan.txt", True)
    [asked] = await api.get(PATH)
    assert asked["files"] == [copy]
    assert len(contents(api)) == 2
    headers = {"authorization": f"Bearer {api.tokens['send']}"}
    assert (await api.client.get(f"/api/files/{copy['id']}", headers=headers)).text == "content"


async def test_an_edited_message_may_keep_its_files(api: Api) -> None:
    file = await uploaded(api, b"content")
    first = await api.say("what is it?", files=[file], **WEB)
    await reply(api, "text")
    body = {"edits": first, "message": "what kind?", "files": [file], **WEB}
    assert (await api.post("/api/message", body))[0] == 200
    [asked] = await api.get(PATH)
    assert [one["name"] for one in asked["files"]] == ["plan.txt"]


async def test_a_message_that_is_worked_is_not_replaced(api: Api) -> None:
    first = await api.say("why?", **WEB)
    busy = (409, {"error": "the message is still being worked on; stop it first"})
    assert await again(api, first) == busy
    await api.claim()
    assert await again(api, first) == busy


async def test_a_dead_message_is_asked_again(api: Api) -> None:
    first = await api.say("why?", **WEB)
    await api.bury()
    assert (await again(api, first))[0] == 200
    await reply(api, "because")
    assert await texts(api) == ["because", "why?"]


async def test_messages_of_others_and_unknown_ones_are_not_found(api: Api) -> None:
    ada, bob = await create(api, "ada"), await create(api, "bob")
    first = await say(api, ada, "secret", **WEB)
    await reply(api, "psst")
    missing = (404, {"error": "message not found"})
    for fields in ({"regenerates": first}, {"edits": first, "message": "x"}):
        assert await ask(api, bob, "POST", "/api/message", WEB | fields) == missing
        elsewhere = WEB | fields | {"conversation": "other"}
        assert await ask(api, ada, "POST", "/api/message", elsewhere) == missing
    assert await ask(api, ada, "POST", "/api/message", WEB | {"regenerates": "web_x"}) == missing
    assert (await ask(api, ada, "POST", "/api/message", WEB | {"regenerates": first}))[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        {"regenerates": "x", "message": "y"},
        {"regenerates": "x", "edits": "y"},
        {"regenerates": "x", "files": ["y"]},
        {"edits": "x"},
        {"regenerates": 7},
        {"edits": "", "message": "x"},
        {"regenerates": "a\nb"},
    ],
)
async def test_contradictions_are_refused(api: Api, body: dict[str, Any]) -> None:
    assert (await api.post("/api/message", WEB | body))[0] in (400, 404)
    assert await api.get("/api/conversations") == []

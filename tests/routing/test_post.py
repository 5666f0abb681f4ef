"""A post to a team's room stores one line and one message for each member, all or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.agents.base import Team
from holdfast.chat import ChatStore
from holdfast.errors import HoldfastError, Unknown
from holdfast.queue.event import INBOX, NewEvent
from holdfast.routing import rooms as room
from holdfast.routing.rooms import post
from holdfast.routing.router import Routing

ROUTING = Routing(
    default="coder",
    lanes={"coder": "conversation", "writer": "agent", "tester": "none"},
    teams={"Dev": Team(name="Devs", agents=("coder", "writer", "tester"), leader="coder")},
)


async def test_a_post_is_a_line_and_a_copy_for_every_member(store: ChatStore) -> None:
    line = await post(store, ROUTING, "dev", "hello all", max_attempts=5)
    [row] = await store.chat_messages("Dev")
    assert (row.id, row.from_agent, row.message) == (line, "user", "hello all")
    copies = [await store.waiting(INBOX, agent) for agent in ("coder", "writer", "tester")]
    [[coder], [writer], [tester]] = copies
    assert [one.lane for one in (coder, writer, tester)] == [
        "coder/#Dev/chatroom:Dev",
        "writer",
        "tester/#Dev/chatroom:Dev",
    ]
    source = coder.event["origin_id"]
    assert source.startswith("chatroom_")
    assert [one.message_id for one in (coder, writer, tester)] == [
        f"chat_{source}/{n}" for n in (1, 2, 3)
    ]
    assert coder.event == {
        "kind": "room",
        "channel": "chatroom",
        "sender": "user",
        "sender_id": None,
        "conversation": "chatroom:Dev",
        "origin_id": source,
        "origin_message": "hello all",
        "origin_room": "Dev",
        "room": "Dev",
        "message": "[In room #Dev, from @user]\nhello all",
        "from_agent": "user",
        "line": f"line_{source}",
    }
    assert coder.routed_team == "Dev"


async def test_all_copies_of_a_post_have_one_root(store: ChatStore) -> None:
    await post(store, ROUTING, "dev", "hello all", max_attempts=5)
    copies = [
        one for agent in ("coder", "writer", "tester") for one in await store.waiting(INBOX, agent)
    ]
    assert {(one.root_id, one.hops) for one in copies} == {(copies[0].id, 0)}


async def test_an_agent_named_user_gets_the_posts_of_people(store: ChatStore) -> None:
    team = Team(name="solo", agents=("user",), leader="user")
    await post(
        store,
        Routing(default="user", lanes={"user": "none"}, teams={"solo": team}),
        "solo",
        "x",
        max_attempts=5,
    )
    assert len(await store.waiting(INBOX, "user")) == 1


async def test_each_post_has_a_line_of_its_own(store: ChatStore) -> None:
    first = await post(store, ROUTING, "Dev", "one", max_attempts=5)
    second = await post(store, ROUTING, "Dev", "two \x00 \ud800", max_attempts=5)
    assert second > first
    assert [row.message for row in await store.chat_messages("Dev")] == ["two \ufffd \ufffd", "one"]


@pytest.mark.parametrize("text", ["", " \n"])
async def test_an_empty_post_is_refused(store: ChatStore, text: str) -> None:
    with pytest.raises(HoldfastError, match="needs a text"):
        await post(store, ROUTING, "dev", text, max_attempts=5)


async def test_an_unknown_team_is_refused(store: ChatStore) -> None:
    with pytest.raises(Unknown, match="no team named 'ops'; known are: Dev"):
        await post(store, ROUTING, "ops", "hello", max_attempts=5)
    assert await store.counts() == []


async def test_an_id_that_is_taken_is_drawn_again_and_nothing_is_posted_twice(
    store: ChatStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = iter(["chatroom_taken", "chatroom_free"])

    def draw(prefix: str) -> Any:
        return next(ids)

    monkeypatch.setattr(room, "new_id", draw)
    await store.put([NewEvent(event={}, message_id="chat_chatroom_taken/2", target="other")])
    await post(store, ROUTING, "dev", "hello", max_attempts=5)
    assert len(await store.chat_messages("Dev")) == 1
    [copy] = await store.waiting(INBOX, "coder")
    assert copy.message_id == "chat_chatroom_free/1"

"""A team's room: what is said there is one line of its history and a message to every other member."""

from __future__ import annotations

from dataclasses import replace

from holdfast.errors import HoldfastError
from holdfast.event import ROOM, ChatMessage, NewEvent, Payload, new_id
from holdfast.router import Route, Routing
from holdfast.store.base import Store

CHANNEL = "chatroom"
"""Where a message comes from that a person posted to a room; answers to it are lines of that room."""
PERSON = "user"


class _IdTaken(Exception):
    """Rolls the post back, to be stored under another id."""


async def post(store: Store, routing: Routing, team: str, text: str, *, max_attempts: int) -> int:
    """A person says something in a team's room: stored as a line, whose id is returned, and for every member."""
    if not text.strip():
        raise HoldfastError("a message to a room needs a text")
    team_id, _ = routing.team(team)
    while True:
        id_ = new_id(CHANNEL)
        new = copies(routing, team_id, None, text, _origin(team_id, id_, text), max_attempts)
        first, *others = [replace(one, message_id=f"chat_{id_}/{nth}") for nth, one in enumerate(new, 1)]
        try:
            async with store.transaction() as tx:
                line = await store.say(ChatMessage(team_id=team_id, from_agent=PERSON, message=text), tx=tx)
                # One root for all: what is made of one post has one budget.
                [root] = await store.put([first], tx=tx)
                if root is None or None in await store.put([replace(one, root_id=root) for one in others], tx=tx):
                    raise _IdTaken
                return line
        except _IdTaken:
            continue


def _origin(team_id: str, id_: str, text: str) -> Payload:
    return {
        "channel": CHANNEL,
        "sender": PERSON,
        "sender_id": None,
        "conversation": f"{CHANNEL}:{team_id}",
        "origin_id": id_,
        "origin_message": text,
        "origin_room": team_id,
    }


def copies(
    routing: Routing, team_id: str, from_agent: str | None, text: str, origin: Payload, max_attempts: int | None
) -> list[NewEvent]:
    """What an agent or a person said in a room, for every member but the one who said it."""
    sender = from_agent or PERSON
    message = f"[In room #{team_id}, from @{sender}]\n{text}"
    payload: Payload = {"kind": ROOM, **origin, "room": team_id, "message": message, "from_agent": sender}
    return [
        _copy(routing, payload, team_id, agent, max_attempts)
        for agent in routing.teams[team_id].agents
        if agent != from_agent
    ]


def _copy(routing: Routing, payload: Payload, team_id: str, agent: str, max_attempts: int | None) -> NewEvent:
    """In a lane of their own, so that those that wait are worked together; '#' begins no conversation."""
    return routing.event(
        payload,
        Route(agent, team_id),
        f"#{team_id}/{payload['conversation']}",
        message_id=None,
        max_attempts=max_attempts,
        policy="agent" if routing.lanes.get(agent) == "agent" else "conversation",
    )

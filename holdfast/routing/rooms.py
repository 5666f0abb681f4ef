"""A team's room: a post is one line of its history and a message to every other member."""

from __future__ import annotations

from dataclasses import replace

from holdfast.chat import ChatMessage, ChatStore
from holdfast.errors import HoldfastError
from holdfast.message import ROOM, Payload, subject_of, written_of
from holdfast.queue.event import NewEvent, new_id
from holdfast.routing.router import Route, Routing

CHANNEL = "chatroom"
"""Channel of messages that a person posted to a room; answers become lines of that room."""
PERSON = "user"


class _IdTaken(Exception):
    """Rolls the post back, to be stored under another id."""


async def post(
    store: ChatStore,
    routing: Routing,
    team: str,
    text: str,
    *,
    max_attempts: int,
    sent_by: str | None = None,
) -> int:
    """Store a person's post: a line of the room, and a copy per member. Returns the line's id."""
    if not text.strip():
        raise HoldfastError("a message to a room needs a text")
    team_id, _ = routing.team(team)
    while True:
        id_ = new_id(CHANNEL)
        origin = _origin(team_id, id_, text)
        line = ChatMessage(
            team_id=team_id,
            from_agent=PERSON,
            message=text,
            subject=subject_of(origin),
            key=f"line_{id_}",
        )
        new = copies(routing, line, origin, max_attempts)
        first, *others = [
            replace(one, message_id=f"chat_{id_}/{nth}", sent_by=sent_by)
            for nth, one in enumerate(new, 1)
        ]
        try:
            async with store.transaction() as tx:
                line_id = await store.say(line, tx=tx)
                # One root for all copies, so that one post has one budget.
                [root] = await store.put([first], tx=tx)
                if root is None or None in await store.put(
                    [replace(one, root_id=root) for one in others], tx=tx
                ):
                    raise _IdTaken
                return line_id
        except _IdTaken:
            continue


def _origin(team_id: str, id_: str, text: str) -> Payload:
    return {
        "kind": ROOM,
        "channel": CHANNEL,
        "sender": PERSON,
        "sender_id": None,
        "conversation": f"{CHANNEL}:{team_id}",
        "origin_id": id_,
        "origin_message": text,
        "origin_room": team_id,
    }


def copies(
    routing: Routing,
    line: ChatMessage,
    origin: Payload,
    max_attempts: int | None,
    *,
    speaker: str | None = None,
) -> list[NewEvent]:
    """Return the copies of a line for every member but its author; each carries its key."""
    payload: Payload = origin | {
        "kind": ROOM,
        "room": line.team_id,
        "message": prompt_of(line),
        "from_agent": line.from_agent,
        "line": line.key,
    }
    return [
        _copy(routing, payload, line.team_id, agent, max_attempts)
        for agent in routing.teams[line.team_id].agents
        if agent != speaker
    ]


def prompt_of(line: ChatMessage) -> str:
    """Return the prompt that gives a line of a room to a member."""
    return _frame(line.team_id, line.from_agent) + line.message


def line_text(payload: Payload) -> str:
    """Return the line itself from the payload of a copy, without the frame for its member."""
    frame = _frame(payload.get("room"), payload.get("from_agent"))
    return written_of(payload).removeprefix(frame)


def _frame(team_id: str | None, from_agent: str | None) -> str:
    return f"[In room #{team_id}, from @{from_agent}]\n"


def _copy(
    routing: Routing, payload: Payload, team_id: str, agent: str, max_attempts: int | None
) -> NewEvent:
    """Build a copy in a lane of the room, so that waiting copies are worked together.

    No conversation begins with '#', so that the lanes are distinct."""
    return routing.event(
        payload,
        Route(agent, team_id),
        f"#{team_id}/{payload['conversation']}",
        message_id=None,
        max_attempts=max_attempts,
        policy="agent" if routing.lanes.get(agent) == "agent" else "conversation",
    )

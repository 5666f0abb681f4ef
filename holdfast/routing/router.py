"""Routing: agent, team and lane of a message, and the lane of a response, when it is stored."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property

from holdfast.agents.base import LanePolicy, Team, lane_of
from holdfast.channels.base import response_event
from holdfast.errors import HoldfastError, Unknown
from holdfast.message import (
    SCHEDULE,
    Payload,
    channel_of,
    conversation_of,
    own_workspace,
    written_of,
)
from holdfast.queue.event import NewEvent, new_id
from holdfast.queue.record import Record
from holdfast.queue.store import Store, Transaction
from holdfast.telemetry import spans

SETTING = "routing"
"""Key of the routing in the settings of the store, for processes and SQL callers."""

ID = re.compile(r"[^\s@#,:/\[\]]+")
NOT_CHATS = ("api", "slack", "chatroom", "heartbeat", SCHEDULE)
"""Channels where `@agent` alone is plain text; elsewhere it chooses the default agent."""

PLATFORMS = ("slack", "discord", "telegram", "whatsapp", "matrix", "email")
"""Channels whose names are prefixes of message ids; all others come by the API."""

MOST_CHOICES = 10_000
"""Conversations per platform that keep a chosen agent; other channels share one such number."""

ALONE = re.compile(r"\A@(\S++)\s*+")
PREFIX = re.compile(r"\A@(\S++)\s++(?=\S)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The sender of a message, and its channel."""

    channel: str = "api"
    sender: str = "API"
    sender_id: str | None = None
    topic: str | None = None
    """Distinguishes several conversations of one sender."""

    @property
    def conversation(self) -> str:
        own = f"{self.channel}:{self.sender_id or self.sender}"
        return own if self.topic is None else f"{own}/{self.topic}"


@dataclass(frozen=True, slots=True)
class Route:
    """The agent and team of a text; '' is the default agent.

    `text` is the rest without the prefix, None if there was none."""

    agent: str = ""
    team: str | None = None
    text: str | None = None


DEFAULT = Route()


@dataclass(frozen=True, kw_only=True)
class Routing:
    """The agents and teams that messages can be stored for, in any process."""

    default: str = ""
    lanes: Mapping[str, LanePolicy] = field(default_factory=dict)
    attempts: Mapping[str, int] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    teams: Mapping[str, Team] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    """Maximum number of turns of an agent at once, over all processes."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """The kind of each agent: function, command or language model."""
    descriptions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, written: Payload) -> Routing:
        """Read a routing that a process wrote."""
        # Another release may have written more, or less.
        known = {one.name: written[one.name] for one in fields(cls) if one.name in written}
        known["teams"] = {
            id_: Team(
                name=team["name"],
                agents=tuple(team["agents"]),
                leader=team["leader"],
                description=str(team.get("description") or ""),
            )
            for id_, team in known.get("teams", {}).items()
        }
        return cls(**known)

    async def write(self, store: Store) -> None:
        """Write this as the routing of all processes."""
        await store.set_setting(SETTING, asdict(self))

    @cached_property
    def _ids(self) -> dict[str, Route]:
        """Routes by id in lower case; an agent's wins over a team's."""
        teams = {id_.lower(): Route(team.leader, id_) for id_, team in self.teams.items()}
        return teams | {id_.lower(): Route(id_) for id_ in self.lanes}

    @cached_property
    def _routes(self) -> dict[str, Route]:
        """Routes by id or name in lower case; an id wins over a name."""
        teams = {team.name.lower(): Route(team.leader, id_) for id_, team in self.teams.items()}
        return teams | {name.lower(): Route(id_) for id_, name in self.names.items()} | self._ids

    def route_to(self, agent: str) -> Route:
        """Return the route of an agent or team that is given beside a text; raise Unknown."""
        route = self._ids.get(agent.lower())
        if route is None:
            known = ", ".join(sorted(self.lanes)) or "none yet, start `holdfast up`"
            raise Unknown(f"there is no agent named {agent!r}; known are: {known}")
        return route

    def find_route(self, name: str) -> Route | None:
        """Return the route of an id or a name, None if it is unknown."""
        return self._routes.get(name.lower())

    def route(self, text: str) -> Route:
        """Return the route of a text: by `@id body`, else the default agent and all of it."""
        prefix = PREFIX.match(text) if text.startswith("@") else None
        route = None if prefix is None else self.find_route(prefix[1])
        if prefix is None or route is None:
            return DEFAULT
        return Route(route.agent, route.team, text[prefix.end() :])

    def choice(self, text: str) -> Route | None:
        """Return the route that `@agent` alone chooses for a conversation; `@default` resets it."""
        alone = ALONE.fullmatch(text) if text.startswith("@") else None
        if alone is None:
            return None
        return DEFAULT if alone[1].lower() == "default" else self.find_route(alone[1])

    def team(self, id: str) -> tuple[str, Team]:
        """Return a team and its id, given the id in any case; raise Unknown."""
        for known, team in self.teams.items():
            if known.lower() == id.lower():
                return known, team
        known = ", ".join(sorted(self.teams)) or "none"
        raise Unknown(f"there is no team named {id!r}; known are: {known}")

    def apply_route(self, new: NewEvent, route: Route) -> NewEvent:
        """Return the event on its route, in its own lane or that of its conversation."""
        conversation = conversation_of(new.event)
        if new.lane is not None or not conversation:
            return new
        routed = self.event(
            new.event, route, conversation, message_id=new.message_id, max_attempts=new.max_attempts
        )
        return replace(
            routed, queue=new.queue, event_ts=new.event_ts, vt=new.vt, sent_by=new.sent_by
        )

    def event(
        self,
        payload: Payload,
        route: Route,
        conversation: str,
        *,
        message_id: str | None,
        max_attempts: int | None,
        policy: LanePolicy | None = None,
    ) -> NewEvent:
        """Build the event of a message, with its target and lane."""
        worker = route.agent or self.default
        return NewEvent(
            event=payload,
            routed_text=route.text,
            routed_team=route.team,
            target=route.agent,
            lane=lane_of(worker, conversation, policy or self.lanes.get(worker, "conversation")),
            message_id=message_id,
            max_attempts=self.attempts.get(worker, max_attempts),
        )


def checked_id(id: str) -> str:
    """Return an id that texts and tags can name; raise HoldfastError for any other."""
    if not ID.fullmatch(id):
        raise HoldfastError(
            f"{id!r} cannot be an id: it is empty, or has a space or one of @ # , : / [ ]"
        )
    return id


def message(text: str, address: Address) -> Payload:
    return {
        "kind": "message",
        "channel": address.channel,
        "sender": address.sender,
        "sender_id": address.sender_id,
        "message": text,
        "conversation": address.conversation,
    }


async def put_message(
    store: Store,
    routing: Routing,
    text: str,
    address: Address,
    *,
    max_attempts: int,
    agent: str | None = None,
    message_id: str | None = None,
    sent_by: str | None = None,
    records: Callable[[str], Sequence[Record]] = lambda _: (),
    files: Sequence[Payload] = (),
    tx: Transaction | None = None,
) -> tuple[str, int | None]:
    """Store a message and records. Returns its id, and that of its event or None if it is known.

    `records` takes the id of the message. `files` are the uploads that the message carries."""
    if not text.strip():
        raise HoldfastError("a message needs a text")
    payload = message(text, address) | ({"files": list(files)} if files else {})
    while True:
        id_ = message_id or new_id(address.channel if address.channel in PLATFORMS else "api")
        new = NewEvent(event=payload, message_id=id_, max_attempts=max_attempts, sent_by=sent_by)
        stored = await receive(store, routing, new, text, agent=agent, records=records(id_), tx=tx)
        # Draw again if a generated id is taken, or the message would be lost.
        if stored is not None or message_id is not None:
            return id_, stored


async def receive(
    store: Store,
    routing: Routing,
    new: NewEvent,
    text: str,
    *,
    agent: str | None = None,
    records: Sequence[Record] = (),
    tx: Transaction | None = None,
) -> int | None:
    """Store a message for the agent that is given, named by its text or chosen before.

    Returns the id of the stored event, None if the message is known already."""
    since = time.monotonic()
    # An agent that is given wins, and the text stays as it is.
    route = (
        routing.route_to(agent)
        if agent
        else Route(new.target)
        if new.target
        else routing.route(text)
    )
    if route is DEFAULT and channel_of(new.event) not in NOT_CHATS:
        choice = routing.choice(text)
        if choice is not None:
            return await _choose(store, routing, choice, new, records, tx)
        route = await _find_choice(store, routing, conversation_of(new.event), tx)
    routed, stored_since = routing.apply_route(new, route), time.monotonic()
    [stored] = await store.put([routed], records=records, tx=tx)
    if spans.tracing is not None and stored is not None:
        spans.tracing.record_receipt(stored, since, stored_since, _about(routed, stored))
    return stored


def _about(new: NewEvent, stored: int) -> dict[str, str | int]:
    """Return the attributes of the span of a received message."""
    return {
        "holdfast.agent": new.target,
        "holdfast.channel": channel_of(new.event),
        "holdfast.event_id": stored,
        "holdfast.message_id": new.message_id or "",
    }


def _key(conversation: str) -> str:
    return f"default/{conversation}"


async def _find_choice(
    store: Store, routing: Routing, conversation: str, tx: Transaction | None
) -> Route:
    """Return the route that this conversation chose, if its agent or team still exists."""
    chosen = await store.setting(_key(conversation)) or {}
    if "unused_since" in chosen:
        await store.use_choice(_key(conversation), tx=tx)
    team = routing.teams.get(chosen.get("team") or "")
    if team is not None:
        return Route(team.leader, chosen["team"])
    return Route(chosen["agent"]) if chosen.get("agent") in routing.lanes else DEFAULT


async def _choose(
    store: Store,
    routing: Routing,
    choice: Route,
    new: NewEvent,
    records: Sequence[Record],
    tx: Transaction | None,
) -> int | None:
    """Store the chosen agent of a conversation and the confirmation, in one transaction."""
    conversation = conversation_of(new.event)
    value = None if choice is DEFAULT else {"agent": choice.agent, "team": choice.team}
    async with store.transaction() if tx is None else nullcontext(tx) as joined:
        [stored] = await store.put(
            [_confirmation(routing, choice, new)], records=records, tx=joined
        )
        if stored is not None:
            await store.set_setting(_key(conversation), value, tx=joined)
    return stored


def _confirmation(routing: Routing, choice: Route, new: NewEvent) -> NewEvent:
    agent = choice.agent or routing.default
    meant = f"@{choice.team or agent}"
    text = (
        f"{meant} answers here again."
        if choice is DEFAULT
        else f"{meant} answers here from now on; @default ends it."
    )
    payload = {
        name: new.event.get(name) for name in ("channel", "conversation", "sender", "sender_id")
    }
    payload |= own_workspace(new.event)
    answer = {
        "message": text,
        "original_message": written_of(new.event),
        "message_id": new.message_id,
        "agent": agent,
    }
    id_ = None if new.message_id is None else f"{new.message_id}/1"
    return replace(
        response_event({"kind": "response", **payload, **answer}),
        message_id=id_,
        sent_by=new.sent_by,
    )

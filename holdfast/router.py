"""Where a message goes: its agent, its conversation and its lane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from holdfast.agent import LanePolicy, lane_of
from holdfast.errors import HoldfastError
from holdfast.event import NewEvent, new_id
from holdfast.store.base import Store, Transaction

SETTING = "routing"
"""Under this key processes and SQL callers find the routing of the harness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Who says something, and where."""

    channel: str = "api"
    sender: str = "API"
    sender_id: str | None = None

    @property
    def conversation(self) -> str:
        return f"{self.channel}:{self.sender_id or self.sender}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """What must be known of agents to store a message for one of them."""

    default: str = ""
    lanes: Mapping[str, LanePolicy] = field(default_factory=dict)
    attempts: Mapping[str, int] = field(default_factory=dict)
    leaders: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    async def read(cls, store: Store) -> Routing:
        return cls(**(await store.setting(SETTING) or {}))

    async def write(self, store: Store) -> None:
        await store.set_setting(SETTING, asdict(self))

    def target(self, agent: str | None) -> str:
        """The agent meant by an id or a team's, in any case; '' is the default agent."""
        name = (agent or "").lower()
        name = self.leaders.get(name, name)
        if name and name not in self.lanes:
            known = ", ".join(sorted(self.lanes)) or "none yet, start `holdfast up`"
            raise HoldfastError(f"there is no agent named {agent!r}; known are: {known}")
        return name

    def message(self, text: str, address: Address, target: str, message_id: str, max_attempts: int) -> NewEvent:
        worker = target or self.default
        payload: dict[str, Any] = {
            "kind": "message",
            "channel": address.channel,
            "sender": address.sender,
            "sender_id": address.sender_id,
            "message": text,
            "conversation": address.conversation,
        }
        return NewEvent(
            event=payload,
            target=target,
            lane=lane_of(worker, address.conversation, self.lanes.get(worker, "conversation")),
            message_id=message_id,
            max_attempts=self.attempts.get(worker, max_attempts),
        )


async def put_message(
    store: Store,
    routing: Routing,
    text: str,
    address: Address,
    *,
    max_attempts: int,
    agent: str | None = None,
    message_id: str | None = None,
    tx: Transaction | None = None,
) -> tuple[str, int | None]:
    """The id of the message and of its event; None where that message is known already."""
    target = routing.target(agent)
    while True:
        id_ = message_id or new_id(address.channel)
        [stored] = await store.put([routing.message(text, address, target, id_, max_attempts)], tx=tx)
        # A generated id that was taken is drawn again, or the message would be lost.
        if stored is not None or message_id is not None:
            return id_, stored

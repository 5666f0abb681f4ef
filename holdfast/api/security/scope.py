"""Limits of callers: bound tokens, and tokens of role send, which see only their own events."""

from __future__ import annotations

from collections.abc import Callable, Collection

from starlette.requests import Request

from holdfast.agents.base import Team
from holdfast.api.response import ApiError
from holdfast.api.security.caller import Caller, caller_of
from holdfast.api.security.guard import find_caller
from holdfast.api.state import state_of
from holdfast.chat import ChatStore
from holdfast.errors import StoreUnavailable
from holdfast.message import SCHEDULE, Payload
from holdfast.routing.rooms import CHANNEL
from holdfast.routing.router import DEFAULT, Routing
from holdfast.store.activity import SENT_BY
from holdfast.store.schedules import HEARTBEAT
from holdfast.store.scoped import Scope, ScopedReads, open_scoped


async def scope_of(request: Request) -> Scope | None:
    """Return the limits of what the caller sees; None if it sees everything."""
    caller = caller_of(request)
    rights = caller.credential
    if rights is None:
        return None
    if caller.role == "send" and rights.owner is not None:
        return Scope(sent_by=rights.owner)
    if rights.channels is None and rights.agents is None:
        return None
    agents = rights.agents
    if agents is not None and (await state_of(request).routing()).default in agents:
        # Messages that name no agent are for the default one.
        agents = (*agents, "")
    return Scope(channels=rights.channels, agents=agents)


async def visible_reads(request: Request) -> ChatStore | ScopedReads:
    """Return the part of the store that the caller may read."""
    store, scope = state_of(request).store, await scope_of(request)
    return store if scope is None else open_scoped(store, scope)


async def refuse_limited(request: Request) -> None:
    """Refuse callers with limits, for routes whose rows cannot be filtered."""
    if await scope_of(request) is not None:
        name = caller_of(request).name
        raise ApiError(
            403,
            f"this shows messages of others; {name!r} may see only its own or its bounds",
        )


async def refuse_foreign(request: Request, event_id: int, otherwise: str) -> None:
    """Answer 404 for an event that the caller may not see, as for one that does not exist."""
    scope = await scope_of(request)
    if scope is not None and not await open_scoped(state_of(request).store, scope).has(event_id):
        raise ApiError(404, otherwise)


async def owns(request: Request, sent_by: str | None, channel: str) -> bool:
    """Whether the caller may end what was sent in a channel: an admin all, others their own.

    A bootstrap token of role send owns what came by HTTP without a token of a person, but nothing
    of channels that a process of ours delivers to, of heartbeats and of schedules."""
    caller = caller_of(request)
    if caller.role == "admin":
        return True
    if caller.owner is not None or sent_by is not None:
        return sent_by == caller.owner
    directory = await state_of(request).directory()
    return channel not in (HEARTBEAT, SCHEDULE) and not directory.is_delivered(channel)


async def is_still_allowed(request: Request) -> bool:
    """Whether the caller of a long request still has access: its token may be revoked.

    False if that cannot be found out now: the response has begun, and the client resumes."""
    before = request.scope.pop("holdfast.caller")
    try:
        again = await find_caller(request)
    except (ApiError, StoreUnavailable):
        return False
    return again is not None and again.is_same_credential(before)


async def frame_filter(request: Request) -> Callable[[Payload], bool]:
    """Return a filter for the frames that the caller may see."""
    scope = await scope_of(request)
    if scope is None:
        return lambda _: True
    channels, agents = scope.channels, scope.agents

    def sees(frame: Payload) -> bool:
        if scope.sent_by is not None:
            return frame.get(SENT_BY) == scope.sent_by
        return (channels is None or frame.get("channel") in channels) and (
            agents is None or frame.get("agent") in agents
        )

    return sees


def bound_sender(caller: Caller, given: str | None) -> str | None:
    """Return the name to speak under: the bound one, if there is one."""
    bound = None if caller.credential is None else caller.credential.sender
    if bound is not None and given not in (None, "", bound):
        raise ApiError(403, f"{caller.name!r} may only speak as {bound!r}")
    return given if bound is None else bound


def bound_sender_id(caller: Caller, given: str | None) -> str | None:
    """Return the sender id to use. Refuse one beside a bound name: it could be another person's."""
    bound = None if caller.credential is None else caller.credential.sender
    if bound is not None and given not in (None, "", bound):
        raise ApiError(403, f"{caller.name!r} may only speak as {bound!r}; leave senderId out")
    return given if bound is None else None


def bound_channel(caller: Caller, given: str | None, default: str) -> str:
    """Return the channel to use: the given one, the default, or the first bound one."""
    channels = None if caller.credential is None else caller.credential.channels
    if channels is None:
        return given or default
    if not given:
        return default if default in channels else channels[0]
    _refuse_outside(caller, "channel", given, channels)
    return given


def refuse_agents(caller: Caller, agents: Collection[str]) -> None:
    """Refuse agents that the caller is not bound to."""
    bound = None if caller.credential is None else caller.credential.agents
    for agent in agents:
        if bound is not None:
            _refuse_outside(caller, "agent", agent, bound)


def bound_agent(caller: Caller, routing: Routing, text: str, given: str | None) -> str | None:
    """Return the agent to store a message for, None if its text or its conversation decides.

    For a caller bound to agents the conversation does not decide: others may have chosen its agent.
    """
    bound = None if caller.credential is None else caller.credential.agents
    if bound is None:
        return given
    route = routing.route_to(given) if given else routing.route(text)
    if route is DEFAULT:
        return routing.default if routing.default in bound else bound[0]
    if route.team not in bound:
        _refuse_outside(caller, "agent", route.agent, bound)
    return given


def refuse_team(caller: Caller, team_id: str, team: Team) -> None:
    """Refuse a team's room to a caller bound to other channels, to a sender, or to other agents."""
    rights = caller.credential
    if rights is None:
        return
    if rights.channels is not None:
        _refuse_outside(caller, "channel", CHANNEL, rights.channels)
    if rights.sender is not None:
        raise ApiError(
            403, f"{caller.name!r} may only speak as {rights.sender!r}, and a room has no senders"
        )
    if not sees_team(caller, team_id, team.agents):
        refuse_agents(caller, team.agents)


def sees_channel(caller: Caller, channel: str) -> bool:
    bound = None if caller.credential is None else caller.credential.channels
    return bound is None or channel in bound


def sees_agent(caller: Caller, agent: str) -> bool:
    bound = None if caller.credential is None else caller.credential.agents
    return bound is None or agent in bound


def sees_team(caller: Caller, team_id: str, agents: Collection[str]) -> bool:
    """Whether a caller may use a team: bound to it by its id, or to all its agents."""
    return sees_agent(caller, team_id) or all(sees_agent(caller, agent) for agent in agents)


def _refuse_outside(caller: Caller, what: str, given: str, bound: Collection[str]) -> None:
    if given not in bound:
        raise ApiError(
            403, f"{caller.name!r} may not use the {what} {given!r}, only {', '.join(bound)}"
        )

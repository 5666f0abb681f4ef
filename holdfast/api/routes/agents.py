"""Agents and their histories."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from typing_extensions import TypedDict

from holdfast.api.paging import Paged, list_response
from holdfast.api.response import ApiError, JsonResponse, millis
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.security.caller import caller_of
from holdfast.api.security.scope import sees_agent, visible_reads
from holdfast.api.state import state_of
from holdfast.chat import AgentMessage
from holdfast.queue.event import INBOX
from holdfast.queue.pages import Page
from holdfast.routing.directory import Directory

routes = APIRouter(route_class=AuthorizedRoute, tags=["agents"])

AgentId = Annotated[str, Path(description="An agent's id.")]


class AgentPause(TypedDict):
    """The pause of an agent: its reason, by whom and since when."""

    reason: str | None
    by: str
    at: int


class Agent(TypedDict):
    """An agent that a live process serves or the configuration names."""

    name: str
    description: str
    default: bool
    lane: str
    kind: str | None
    processes: list[str]
    paused: AgentPause | None


class AgentLine(TypedDict):
    """A line of an agent's history."""

    id: int
    agent_id: str
    role: str
    channel: str
    sender: str
    message_id: str
    content: str
    created_at: int


AGENT: dict[str, Any] = {
    "name": "coder",
    "description": "writes and fixes code",
    "default": True,
    "lane": "conversation",
    "kind": "function",
    "processes": ["host-4711_m8boovyb"],
    "paused": None,
}
LINE: dict[str, Any] = {
    "id": 3,
    "agent_id": "coder",
    "role": "user",
    "channel": "api",
    "sender": "Ada",
    "message_id": "api_m8boovyb",
    "content": "what broke the build?",
    "created_at": 1767225600000,
}


@routes.get(
    "/api/agents",
    summary="List the agents",
    **route_options("read", dict[str, Agent], {"coder": AGENT}),
)
async def get_agents(request: Request) -> JsonResponse:
    """Return agents by id. `lane` is the unit that is worked one at a time: conversation, agent or
    none. `processes` serve the agent; if there are none, its messages wait."""
    directory = await state_of(request).directory()
    ids = sorted(directory.routing.lanes)
    caller = caller_of(request)
    return JsonResponse({id_: _agent(id_, directory) for id_ in ids if sees_agent(caller, id_)})


@routes.get(
    "/api/agents/{id}/messages",
    summary="List the history of an agent",
    **route_options("read", list[AgentLine], [LINE], 400, 404),
)
async def get_agent_messages(request: Request, id: AgentId, page: Paged) -> JsonResponse:
    """List messages and answers of an agent, newest first."""
    state = state_of(request)
    named = {known.lower(): known for known in (await state.routing()).lanes}.get(id.lower())
    # An agent that was removed still has a history.
    reads = await visible_reads(request)
    found = (
        await reads.agent_messages(named or id, **page.within(request))
        if id.isprintable()
        else Page()
    )
    if not found and named is None:
        raise ApiError(404, "agent not found")
    return list_response(request, found, _line)


def _agent(id_: str, directory: Directory) -> Agent:
    routing = directory.routing
    return Agent(
        name=routing.names.get(id_, id_),
        description=routing.descriptions.get(id_, ""),
        default=id_ == routing.default,
        lane=routing.lanes[id_],
        kind=routing.kinds.get(id_),
        processes=directory.servers.get(id_, []),
        paused=agent_pause(directory, id_),
    )


def agent_pause(directory: Directory, agent: str) -> AgentPause | None:
    """Return why an agent is paused, None if it is not."""
    pause = directory.paused.find("agent", agent) or directory.paused.find("queue", INBOX)
    if pause is None:
        return None
    return AgentPause(reason=pause.reason, by=pause.paused_by, at=millis(pause.paused_at))


def _line(line: AgentMessage) -> AgentLine:
    assert line.id is not None
    assert line.created_at is not None
    return AgentLine(
        id=line.id,
        agent_id=line.agent_id,
        role=line.role,
        channel=line.channel,
        sender=line.sender,
        message_id=line.message_id,
        content=line.content,
        created_at=millis(line.created_at),
    )

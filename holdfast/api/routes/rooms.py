"""Teams and their rooms."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from typing_extensions import TypedDict

from holdfast.api.body import Body, read_body
from holdfast.api.markdown import PAGE_BYTES, render_all
from holdfast.api.names import Text
from holdfast.api.paging import ByteBounds, Page, list_response
from holdfast.api.response import ApiError, JsonResponse, millis
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.security.caller import caller_of
from holdfast.api.security.scope import refuse_limited, refuse_team, sees_team
from holdfast.api.state import state_of
from holdfast.chat import ChatMessage
from holdfast.errors import Unknown
from holdfast.routing.rooms import post

routes = APIRouter(route_class=AuthorizedRoute, tags=["teams"])

NO_TEAM = "team not found"
TeamId = Annotated[str, Path(description="A team's id.")]


class Team(TypedDict):
    """Agents that know each other; messages to the team go to its leader."""

    name: str
    description: str
    agents: list[str]
    leader: str


class RoomLine(TypedDict):
    """A line of a team's room."""

    id: int
    team_id: str
    from_agent: str
    message: str
    created_at: int
    html: NotRequired[str]


class RoomPage(Page):
    """Lines of a room, newest first."""

    html: bool = Field(False, description="Add each line as HTML, to be inserted as it is.")

    def within(self, request: Request) -> ByteBounds:
        """Return the bounds. A page that is rendered has fewer bytes."""
        bounds = super().within(request)
        return {**bounds, "most_bytes": PAGE_BYTES} if self.html else bounds


class NewLine(Body):
    """A line for the room of a team."""

    message: Text = Field(description="The text.")


class PostedLine(TypedDict):
    """The line is stored, and a copy of it for every agent of the team."""

    ok: bool
    id: int


LINE: dict[str, Any] = {
    "id": 3,
    "team_id": "dev",
    "from_agent": "coder",
    "message": "the build is green again",
    "created_at": 1767225600000,
}


@routes.get(
    "/api/teams",
    summary="List the teams",
    **route_options(
        "read",
        dict[str, Team],
        {
            "dev": {
                "name": "Devs",
                "description": "build the product",
                "agents": ["coder", "writer"],
                "leader": "coder",
            }
        },
    ),
)
async def get_teams(request: Request) -> JsonResponse:
    """Return teams by id."""
    routing = await state_of(request).routing()
    return JsonResponse(
        {
            id_: Team(
                name=team.name,
                description=team.description,
                agents=list(team.agents),
                leader=team.leader,
            )
            for id_, team in sorted(routing.teams.items())
            if sees_team(caller_of(request), id_, team.agents)
        }
    )


@routes.get(
    "/api/chatroom/{team}",
    summary="List the lines of a team's room",
    **route_options("read", list[RoomLine], [LINE], 400, 404),
)
async def get_room(
    request: Request, team: TeamId, page: Annotated[RoomPage, Query()]
) -> JsonResponse:
    """List lines, newest first."""
    await refuse_limited(request)
    state = state_of(request)
    is_known = True
    try:
        team, _ = (await state.routing()).team(team)
    except Unknown:
        is_known = False
        if not team.isprintable():
            raise ApiError(404, NO_TEAM) from None
    found = await state.store.chat_messages(team, **page.within(request))
    # The room of a removed team stays readable.
    if not found and not is_known:
        raise ApiError(404, NO_TEAM)
    texts = await render_all([line.message for line in found]) if page.html else []
    html = dict(zip((line.id for line in found), texts, strict=False))
    return list_response(request, found, lambda line: _line(line, html.get(line.id)))


@routes.post(
    "/api/chatroom/{team}",
    summary="Post to a team's room",
    **route_options(
        "send",
        PostedLine,
        {"ok": True, "id": 3},
        404,
        body=NewLine,
        given={"message": "what is new?"},
    ),
)
async def post_to_room(request: Request, team: TeamId) -> JsonResponse:
    """Add a line to the room, and send a message to every agent of the team."""
    state = state_of(request)
    new = await read_body(request, NewLine)
    caller, routing = caller_of(request), await state.routing()
    most = state.settings.max_attempts
    try:
        refuse_team(caller, *routing.team(team))
        line = await post(
            state.store, routing, team, new.message, max_attempts=most, sent_by=caller.owner
        )
    except Unknown:
        raise ApiError(404, NO_TEAM) from None
    return JsonResponse(PostedLine(ok=True, id=line))


def _line(line: ChatMessage, html: str | None) -> RoomLine:
    assert line.id is not None
    assert line.created_at is not None
    shown = RoomLine(
        id=line.id,
        team_id=line.team_id,
        from_agent=line.from_agent,
        message=line.message,
        created_at=millis(line.created_at),
    )
    if html is not None:
        shown["html"] = html
    return shown

"""Who a request acts for, as the audit log names them."""

from __future__ import annotations

from starlette.requests import Request

ACTOR = "holdfast.actor"
"""Key of the scope that holds the actor: the guard sets it for named tokens and sessions."""


def actor_of(request: Request) -> str:
    """Return the actor of a request: the token's name or the session's person, else the role."""
    actor: str | None = request.scope.get(ACTOR)
    return actor or f"api:{request.scope['holdfast.role']}"

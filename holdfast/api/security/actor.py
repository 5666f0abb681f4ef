"""The actor of a request, as the audit log names it."""

from __future__ import annotations

from starlette.requests import Request

from holdfast.api.security.caller import caller_of


def actor_of(request: Request) -> str:
    """Return the actor of a request: the token's name or the session's person, else the role."""
    return caller_of(request).actor

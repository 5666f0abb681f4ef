"""JSON responses, and errors as {"error": …}."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NotRequired

from pydantic_core import to_json
from starlette.responses import Response
from typing_extensions import TypedDict

MILLISECOND = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def millis(moment: datetime) -> int:
    """Return a time as the API shows it: milliseconds since 1970."""
    return (moment - EPOCH) // MILLISECOND


class Ok(TypedDict):
    """The request succeeded."""

    ok: bool


class Error(TypedDict):
    """The reason of a refusal, and what to do."""

    error: str


class StoredMessage(TypedDict):
    """The message is stored durably."""

    ok: bool
    messageId: str
    warning: NotRequired[str]


class JsonResponse(Response):
    """A JSON response, encoded by pydantic_core."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return to_json(content)


class ApiError(Exception):
    """Ends a request with a status and a message for the client."""

    def __init__(
        self,
        status: int,
        error: str,
        *,
        further: Mapping[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(error)
        self.status = status
        self.error = error
        self.further = further or {}
        self.headers = headers

    @property
    def answer(self) -> JsonResponse:
        return JsonResponse({"error": self.error, **self.further}, self.status, self.headers)


OK = Ok(ok=True)

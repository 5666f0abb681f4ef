"""What goes back: JSON of plain values, and refusals as {"error": …}."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic_core import to_json
from starlette.responses import Response
from typing_extensions import TypedDict

MILLISECOND = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def millis(moment: datetime) -> int:
    """As times are told here: milliseconds since 1970."""
    return (moment - EPOCH) // MILLISECOND


class Ok(TypedDict):
    """It is done."""

    ok: bool


class Error(TypedDict):
    """What was wrong, and what to do."""

    error: str


class JsonResponse(Response):
    """JSON, written by pydantic_core."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return to_json(content)


class ApiError(Exception):
    """Ends a request; the message is for the one who asked."""

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

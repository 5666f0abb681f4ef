"""Paging of lists: limit, before_id and since_id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import Query, Request
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
)
from typing_extensions import TypedDict

from holdfast.api.names import printable
from holdfast.api.response import JsonResponse
from holdfast.api.state import state_of
from holdfast.queue.pages import Page as Rows

GREATEST_ID = 2**63 - 1

T = TypeVar("T")


class Page(BaseModel):
    """Newest first: `before_id` pages back, `since_id` follows on."""

    model_config = ConfigDict(frozen=True)

    limit: int = Field(
        20, ge=1, le=1000, description="Maximum number of rows; a page also ends at 4 MiB."
    )
    before_id: int | None = Field(
        None, ge=0, le=GREATEST_ID, description="Only ids less than this."
    )
    since_id: int | None = Field(
        None, ge=0, le=GREATEST_ID, description="Only ids greater than this."
    )

    @property
    def bounds(self) -> Bounds:
        return {"limit": self.limit, "before_id": self.before_id, "since_id": self.since_id}

    def within(self, request: Request) -> ByteBounds:
        """Return the bounds, with the server's limit in bytes."""
        return {**self.bounds, "most_bytes": state_of(request).limits.page_bytes}


class KeyedPage(BaseModel):
    """Rows in an order of their own: `after` continues behind a row."""

    model_config = ConfigDict(frozen=True)

    limit: int = Field(
        1000, ge=1, le=1000, description="Maximum number of rows; a page also ends at 4 MiB."
    )
    after: Annotated[str, StringConstraints(max_length=500), AfterValidator(printable)] | None = (
        Field(None, description="Only rows after this one; the header `Link` has it.")
    )

    def within(self, request: Request) -> RowAndByteLimits:
        """Return the limits in rows and in bytes."""
        return {"limit": self.limit, "most_bytes": state_of(request).limits.page_bytes}


class RowAndByteLimits(TypedDict):
    """The limits of a page in rows and in bytes."""

    limit: int
    most_bytes: int


class Bounds(TypedDict):
    """The bounds of a page, as the store takes them."""

    limit: int
    before_id: int | None
    since_id: int | None


class ByteBounds(Bounds):
    """The bounds of a page, with a limit in bytes."""

    most_bytes: int


def list_response(
    request: Request, found: Rows[Any], shape: Callable[[Any], Any], *, oldest_first: bool = False
) -> JsonResponse:
    """Return a JSON array of rows. If there may be more, headers name the next page."""
    if not found.has_more or not found:
        return JsonResponse([shape(row) for row in found])
    name = "since_id" if oldest_first else "before_id"
    headers = {
        f"x-next-{name.replace('_', '-')}": str(found[-1].id),
        **next_page_header(request, name, found[-1].id),
    }
    return JsonResponse([shape(row) for row in found], headers=headers)


def keyed_response(
    request: Request,
    found: Rows[T],
    shape: Callable[[T], Any],
    key: Callable[[T], object],
    *,
    name: str = "after",
) -> JsonResponse:
    """Return a JSON array of rows. If there may be more, a header `Link` names the next page."""
    headers = next_page_header(request, name, key(found[-1])) if found and found.has_more else {}
    return JsonResponse([shape(row) for row in found], headers=headers)


def next_page_header(request: Request, name: str, value: object) -> dict[str, str]:
    """Return the header that names the next page: the same address, with this parameter."""
    following = request.url.include_query_params(**{name: value})
    return {"link": f'<{following.path}?{following.query}>; rel="next"'}


def _id(value: Any) -> int:
    """Read an id. Invalid ids become 0, which matches no row."""
    text = str(value)
    return (
        int(text) if text.isascii() and text.isdigit() and len(text) < len(str(GREATEST_ID)) else 0
    )


Paged = Annotated[Page, Query()]
EventId = Annotated[int, BeforeValidator(_id)]

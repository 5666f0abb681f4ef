"""Lists in parts: how many, and before or after which id."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from typing_extensions import TypedDict

GREATEST_ID = 2**63 - 1


class Page(BaseModel):
    """Newest first: `before_id` pages back, `since_id` follows on."""

    model_config = ConfigDict(frozen=True)

    limit: int = Field(20, ge=1, le=1000, description="At most so many.")
    before_id: int | None = Field(None, ge=0, le=GREATEST_ID, description="Only ids less than this.")
    since_id: int | None = Field(None, ge=0, le=GREATEST_ID, description="Only ids greater than this.")

    @property
    def bounds(self) -> Bounds:
        return {"limit": self.limit, "before_id": self.before_id, "since_id": self.since_id}


class Bounds(TypedDict):
    """What the store takes."""

    limit: int
    before_id: int | None
    since_id: int | None


def _id(value: Any) -> int:
    """What is no id at all is the id of nothing."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < len(str(GREATEST_ID)) else 0


Paged = Annotated[Page, Query()]
EventId = Annotated[int, BeforeValidator(_id)]

"""Names in requests: short, and with printable characters."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, StringConstraints
from pydantic_core import PydanticCustomError

LONGEST_NAME = 200
"""Names are parts of index keys, which have a limited length."""


def printable(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError("must be printable characters, at least one")
    return text


def require_text(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("missing", "is required")
    return text


Name = Annotated[str, StringConstraints(max_length=LONGEST_NAME)]
Printable = Annotated[Name, AfterValidator(printable)]
Named = Annotated[Name, AfterValidator(require_text)]
Text = Annotated[str, AfterValidator(require_text)]
Channel = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]{1,32}$")]

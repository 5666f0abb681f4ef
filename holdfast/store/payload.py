"""Payloads as JSON that every engine can hold."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import from_json

from holdfast.errors import HoldfastError

parse = from_json
"""JSON text to a value, five times as fast as json.loads."""


def dump(value: Any) -> str:
    """JSON text of a payload. What no engine could store (NUL, half a surrogate pair) becomes U+FFFD."""
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise HoldfastError(f"a payload must be plain JSON: {error}") from error
    # Such escapes are rare; only then is it worth looking at each string.
    if "\\u0000" in text or "\\ud" in text:
        text = json.dumps(_storable(value), allow_nan=False, separators=(",", ":"))
    return text


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_storable(str(key)): _storable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_storable(item) for item in value]
    return value

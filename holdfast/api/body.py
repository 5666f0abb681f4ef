"""Reads and validates request bodies, within limits of size, time and depth."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any, BinaryIO, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails
from starlette.requests import ClientDisconnect, Request

from holdfast.api.limits import Limits
from holdfast.api.response import ApiError

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 32
MIN_BYTES_PER_SECOND = 32 * 1024
"""Lowest accepted speed of a body, which may lag behind it by `Limits.body_stall_seconds`."""

HAS_WHOLE_BODY = "holdfast.has_whole_body"
"""Scope key: whether the whole body had arrived when the request was handed on."""

TOO_SLOW = f"the body is too slow; send at least {MIN_BYTES_PER_SECOND // 1024} KiB a second"
INCOMPLETE = "the body is incomplete"
TOO_LARGE = f"the body is over {MAX_BYTES // 1024 // 1024} MiB"

B = TypeVar("B", bound="Body")


class Body(BaseModel):
    """A JSON body. Keys are in camel case, types are strict, unknown keys are ignored."""

    model_config = ConfigDict(alias_generator=to_camel, strict=True, frozen=True)

    @classmethod
    def is_optional(cls) -> bool:
        """Say whether a request may leave the body out: all its fields have defaults."""
        return not any(field.is_required() for field in cls.model_fields.values())


async def read_body(request: Request, kind: type[B]) -> B:
    try:
        content = await read(request)
        given = parse_json(content) if content or not kind.is_optional() else {}
        if not isinstance(given, dict):
            raise ApiError(400, "the body is not a JSON object")
        return kind.model_validate(given)
    except ValidationError as error:
        raise ApiError(400, describe_error(error.errors(include_url=False)[0])) from None


def describe_error(problem: ErrorDetails) -> str:
    """Describe a validation error in one line, without repeating the given value."""
    name = ".".join(str(part) for part in problem["loc"] if part not in ("query", "path"))
    if problem["type"] == "missing" or problem["input"] is None:
        return f"{name} is required"
    message = problem["msg"].removeprefix("Value error, ")
    message = f"{message[:1].lower()}{message[1:]}"
    return f"{name}: {message}" if name else message


async def read(request: Request) -> bytes:
    """Read the whole body. Refuse one that is too large, too slow or cut short."""
    limits: Limits = request.app.state.api.limits
    try:
        if request.scope.get(HAS_WHOLE_BODY):
            # The usual case. A time limit would cost three timers, and is not needed.
            return await _read_chunks(request, lambda _: None)
        began_at = asyncio.get_running_loop().time()
        async with asyncio.timeout(limits.body_stall_seconds) as limit:

            def extend(size: int) -> None:
                late = limits.body_stall_seconds + size / MIN_BYTES_PER_SECOND
                limit.reschedule(began_at + min(late, limits.body_seconds))

            return await _read_chunks(request, extend)
    except TimeoutError:
        raise ApiError(408, TOO_SLOW) from None
    except ClientDisconnect:
        raise ApiError(400, INCOMPLETE) from None


async def _read_chunks(request: Request, on_size: Callable[[int], None]) -> bytes:
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BYTES:
            raise ApiError(413, TOO_LARGE)
        # An empty chunk is the end of the body: there is nothing left to wait for.
        if chunk:
            chunks.append(chunk)
            on_size(size)
    return b"".join(chunks)


async def read_file(request: Request, file: BinaryIO, most_bytes: int) -> int:
    """Write the body, at most `most_bytes`, to a file as it arrives. Returns its size.

    Refuse one that is too large, too slow or cut short."""
    stall = request.app.state.api.limits.body_stall_seconds
    now = asyncio.get_running_loop().time
    began_at, size = now(), 0
    try:
        async with asyncio.timeout(stall) as limit:
            async for chunk in request.stream():
                size += len(chunk)
                if size > most_bytes:
                    raise ApiError(413, file_too_large(most_bytes))
                # The client does not answer for the time that the disk takes.
                limit.reschedule(None)
                writes_since = now()
                await asyncio.to_thread(file.write, chunk)
                began_at += now() - writes_since
                limit.reschedule(began_at + stall + size / MIN_BYTES_PER_SECOND)
    except TimeoutError:
        raise ApiError(408, TOO_SLOW) from None
    except ClientDisconnect:
        raise ApiError(400, INCOMPLETE) from None
    return size


def file_too_large(most_bytes: int) -> str:
    return f"the file is over {most_bytes // 1024 // 1024} MiB, the setting `max_upload`"


def parse_json(body: bytes) -> Any:
    try:
        value = _DECODER.decode(body.decode())
        _check(value, MAX_DEPTH)
    except UnicodeDecodeError:
        raise ApiError(400, "the body is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from None
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply") from None
    except ValueError as error:
        raise ApiError(400, f"the body is invalid: {error}") from None
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key appears twice in one object")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_without_duplicates, parse_constant=_refuse)


def _check(value: Any, depth: int) -> None:
    """Raise ValueError for values that a database cannot store or JSON cannot express."""
    match value:
        case str():
            _check_text(value)
        case float() if not math.isfinite(value):
            raise ValueError("a number is too large")
        case dict() | list() if depth == 0:
            raise ValueError("the body is nested too deeply")
        case dict():
            for key, item in value.items():
                _check_text(key)
                _check(item, depth - 1)
        case list():
            for item in value:
                _check(item, depth - 1)


def _check_text(text: str) -> None:
    if "\x00" in text:
        raise ValueError("a text contains NUL")
    if not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
        raise ValueError("a text contains half a surrogate pair")

"""Results of steps as JSON: checked by pydantic against the return type of their function."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation
from pydantic_core import from_json, to_json

LARGEST_RESULT = 1024 * 1024
"""Largest number of bytes of a result as JSON."""


class Unencodable(ValueError):
    """A result cannot be stored, or not restored."""


class Codec:
    """Encodes results as JSON text and restores them, as values of a type if it is known."""

    def __init__(self, adapter: TypeAdapter[Any] | None = None) -> None:
        self._adapter = adapter

    def encode(self, value: object) -> str:
        """Return the JSON text of a result. Raises Unencodable."""
        try:
            if self._adapter is None:
                text = to_json(value, inf_nan_mode="constants")
            else:
                text = self._adapter.dump_json(
                    value, by_alias=False, round_trip=True, warnings="error"
                )
        except ValueError as error:
            raise Unencodable(f"cannot be stored: {_first_lines(error)}") from error
        if len(text) > LARGEST_RESULT:
            raise Unencodable(
                f"has {len(text):,} bytes, more than {LARGEST_RESULT:,}; "
                "keep it in a file beside those of turn.files and return its path"
            )
        if text == b"null" and value is not None:
            raise Unencodable(f"cannot be stored: JSON has no {value!r}")
        return text.decode()

    def decode(self, text: str | None) -> Any:
        """Return the value of a stored text. Raises ValueError if it does not fit the type."""
        if text is None or text == "null":
            return None
        if self._adapter is None:
            return from_json(text)
        return self._adapter.validate_json(text, by_alias=False, by_name=True)


UNTYPED = Codec()


_codecs: WeakKeyDictionary[types.FunctionType, Codec] = WeakKeyDictionary()


def codec_of(function: Callable[..., Any]) -> Codec:
    """Return the codec for the results of a function. Raises ValueError for a bad type."""
    if not isinstance(function, types.FunctionType):
        return _build_codec(function)
    # Cached: evaluating annotations takes half as long as the rest of a step, commit excluded.
    codec = _codecs.get(function)
    if codec is None:
        codec = _codecs[function] = _build_codec(function)
    return codec


def _build_codec(function: Callable[..., Any]) -> Codec:
    kind = _return_type(function)
    if kind is inspect.Signature.empty or kind is Any:
        return UNTYPED
    try:
        return _typed_codec(kind)
    except TypeError:
        # Not hashable, such as Annotated[int, {}]: not worth a cache.
        return Codec(TypeAdapter(kind))
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation) as error:
        raise ValueError(f"returns {kind}, which pydantic cannot read back") from error


@functools.lru_cache(maxsize=1000)
def _typed_codec(kind: Any) -> Codec:
    return Codec(TypeAdapter(kind))


def _return_type(function: Any) -> Any:
    """Return the type of a function's results; of an async one, the type that it resolves to."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type):
        return function
    function = inspect.unwrap(function)
    if not inspect.isroutine(function):
        function = type(function).__call__
    hint = getattr(function, "__annotations__", {}).get("return", inspect.Signature.empty)
    if isinstance(hint, str):
        hint = _evaluate(function, hint)
    if typing.get_origin(hint) in (Awaitable, Coroutine):
        return typing.get_args(hint)[-1]
    return type(None) if hint is None else hint


def _evaluate(function: Any, hint: str) -> Any:
    """Evaluate the return annotation alone: those of parameters need not be importable."""
    function = getattr(function, "__func__", function)
    enclosing = {
        name: cell.cell_contents
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        )
        if _has_value(cell)
    }
    holder = types.SimpleNamespace(__annotations__={"return": hint})
    try:
        return typing.get_type_hints(holder, function.__globals__, enclosing, include_extras=True)[
            "return"
        ]
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise ValueError(f"returns {hint!r}, which cannot be resolved: {error}") from error


def _has_value(cell: types.CellType) -> bool:
    """Return whether a variable of an enclosing function has a value yet."""
    try:
        cell.cell_contents  # noqa: B018 - raises if it is empty
    except ValueError:
        return False
    return True


def _first_lines(error: ValueError) -> str:
    return " ".join(str(error).split())[:300]

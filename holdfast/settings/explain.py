"""Explain a wrong setting in one line: its location, its key, and valid values."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from holdfast.settings.duration import duration_text
from holdfast.settings.environment import is_set, variable_of
from holdfast.settings.table import Keys, headers_of, models_at, tables_in

_OPTIONS = {"api_port": "--port", "api_host": "--host"}
_KIND_ERRORS = ("union_tag_not_found", "union_tag_invalid")

_SHAPES = {
    "tuple_type": "a list is needed",
    "path_type": "a path is needed",
    "dict_type": "a table is needed",
    "model_type": "a table is needed",
    "model_attributes_type": "a table is needed",
    "missing": "this key is required",
}
"""Words for errors that pydantic describes in terms of Python."""

_BOUND = re.compile(r"datetime\.timedelta\((?:(\w+)=)?([0-9]+)\)")
"""A limit of durations in pydantic's messages."""

KIND = "kind"
"""The key that chooses among kinds of tables."""


def explain(
    problem: ErrorDetails, model: type[BaseModel], path: Path, given: Mapping[str, object]
) -> str:
    """Describe the first problem: file and line, variable or option; key; valid values."""
    keys = _without_kinds(problem["loc"], path)
    if problem["type"] == "extra_forbidden":
        return (
            f"{locate(path, keys)}: there is no setting {join_keys(keys)}; {_suggest(model, keys)}"
        )
    if problem["type"] in _KIND_ERRORS:
        # The error is that of the table; its cause is the key `kind`.
        return f"{_source(path, (*keys, KIND), given)}: {_kinds(problem)}"
    wrong = f"{_source(path, keys, given)}: {_message(problem)}{_header_hint(problem, model, keys)}"
    return f"{wrong}{_show_value(problem, model, keys)}"


def wrong_option(problem: ErrorDetails, model: type[BaseModel]) -> str:
    """Describe a wrong option of an agent in code, and valid ones."""
    keys = problem["loc"]
    if problem["type"] == "extra_forbidden":
        like = get_close_matches(str(keys[-1]), model.model_fields, n=1)
        known = f"did you mean {like[0]}?" if like else f"there are {', '.join(model.model_fields)}"
        return f"there is no option {join_keys(keys)}; {known}"
    return f"{join_keys(keys)}: {_message(problem)}{_show_value(problem, model, keys)}"


def _message(problem: ErrorDetails) -> str:
    """Return pydantic's message in lower case, with readable shapes and durations."""
    if problem["type"] in _SHAPES:
        return _SHAPES[problem["type"]]
    message = _BOUND.sub(_bound_text, problem["msg"].removeprefix("Value error, "))
    return f"{message[:1].lower()}{message[1:]}"


def _header_hint(problem: ErrorDetails, model: type[BaseModel], keys: Keys) -> str:
    """Show how a table of this setting begins, if one is needed."""
    name, hint, fields = "", "", model.model_fields
    for rest in range(len(keys), 0, -1):
        key = str(keys[-rest])
        if key not in fields or not tables_in(fields[key]):
            # One key may follow: the name or number of the table itself.
            return hint if rest == 1 and problem["type"] in _SHAPES else ""
        name = f"{name}.{key}".removeprefix(".")
        hint = f", such as {headers_of(name, fields[key])[0]}"
        fields = tables_in(fields[key])[0].model_fields
    return hint if problem["type"] in _SHAPES else ""


def _bound_text(found: re.Match[str]) -> str:
    return duration_text(timedelta(**{found[1] or "days": int(found[2])}))


def _kinds(problem: ErrorDetails) -> str:
    context = problem.get("ctx", {})
    return (
        f"input should be {context['expected_tags']} (it is {context['tag']!r})"
        if "tag" in context
        else _SHAPES["missing"]
    )


def locate(path: Path, keys: Keys) -> str:
    """Return file and line of a key, or of the table that lacks it; else the file alone."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return str(path)
    while keys and not _holds(_beginning(lines, len(lines)), keys):
        keys = keys[:-1]
    if not keys:
        return str(path)
    # Find the shortest beginning of the file that holds the key.
    before = bisect_left(
        range(1, len(lines)), True, key=lambda count: _holds(_beginning(lines, count), keys)
    )
    return f"{path}:{before + 1}"


def join_keys(keys: Keys) -> str:
    """Join keys by dots; the tables of a list count from 1."""
    return ".".join(str(key + 1) if isinstance(key, int) else key for key in keys)


def _source(path: Path, keys: Keys, given: Mapping[str, object]) -> str:
    """Name the option, the variable, or the file and line that a value came from."""
    name = str(keys[0]) if keys else ""
    if name in given:
        return _OPTIONS.get(name, f"--{name.replace('_', '-')}")
    if is_set(variable_of(name)):
        return variable_of(name)
    return f"{locate(path, keys)}: {join_keys(keys)}"


def _beginning(lines: Sequence[str], count: int) -> object:
    """Parse the shortest valid beginning of a file with at least `count` lines."""
    for end in range(count, len(lines) + 1):
        try:
            return tomllib.loads("\n".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue
    return {}


def _holds(data: object, keys: Keys) -> bool:
    return _value(data, keys) is not None


def _value(data: object, keys: Keys) -> object:
    """Return the value at these keys; None, which TOML cannot express, if there is none."""
    for key in keys:
        # The tables of a list have numbers as keys.
        known = dict(enumerate(data)) if isinstance(data, list) else data
        if not isinstance(known, dict) or key not in known:
            return None
        data = known[key]
    return data


def _without_kinds(location: Keys, path: Path) -> Keys:
    """Remove the kinds that pydantic adds to a location; they are not keys of the file."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return location
    # Pydantic appends this mark if the key itself is wrong.
    location = location[:-1] if location[-1:] == ("[key]",) else location
    keys: Keys = ()
    chosen: Keys = ()
    for key in location[:-1]:
        # A table of kind "command" may also have a key "command"; the kind comes first.
        if keys and keys != chosen and _value(data, (*keys, KIND)) == key:
            chosen = keys
        elif not keys or _holds(data, (*keys, key)):
            keys = (*keys, key)
    return (*keys, *location[-1:])


def _suggest(model: type[BaseModel], keys: Keys) -> str:
    """Suggest a setting with a similar name."""
    names = [name for one in models_at(model, keys[:-1]) for name in one.model_fields]
    like = get_close_matches(str(keys[-1]), names, n=1)
    return f"did you mean {like[0]}?" if like else "`holdfast init` writes a file with all settings"


def _show_value(problem: ErrorDetails, model: type[BaseModel], keys: Keys) -> str:
    """Show the value, unless there is none or it may hold a password."""
    fields = (
        [one.model_fields.get(str(keys[-1])) for one in models_at(model, keys[:-1])] if keys else []
    )
    is_open = any(field is not None and field.repr for field in fields)
    if problem["type"] == "missing" or not is_open:
        return ""
    value = problem["input"]
    return f" (it is {duration_text(value) if isinstance(value, timedelta) else repr(value)})"

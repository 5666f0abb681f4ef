"""What is wrong with a setting, in one line: the place, the key, and what would be right."""

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
from holdfast.settings.table import Keys, models_at

_OPTIONS = {"api_port": "--port", "api_host": "--host"}
_OF_KINDS = ("union_tag_not_found", "union_tag_invalid")

_BOUND = re.compile(r"datetime\.timedelta\((?:(\w+)=)?([0-9]+)\)")
"""A bound of durations, as pydantic writes it."""

KIND = "kind"
"""The key by which tables are told apart."""


def explain(
    problem: ErrorDetails, model: type[BaseModel], path: Path, given: Mapping[str, object]
) -> str:
    """Which place the value came from, which setting it is, and what would be right."""
    keys = _without_kinds(problem["loc"], path)
    if problem["type"] == "extra_forbidden":
        return f"{place(path, keys)}: there is no setting {dotted(keys)}; {_instead(model, keys)}"
    if problem["type"] in _OF_KINDS:
        # The table is what does not fit, the reason is one key of it.
        return f"{_source(path, (*keys, KIND), given)}: {_kinds(problem)}"
    return f"{_source(path, keys, given)}: {_message(problem)}{_shown(problem, model, keys)}"


def wrong_option(problem: ErrorDetails, model: type[BaseModel]) -> str:
    """Which option of an agent in code is wrong, and what would be right."""
    keys = problem["loc"]
    if problem["type"] == "extra_forbidden":
        like = get_close_matches(str(keys[-1]), model.model_fields, n=1)
        known = f"did you mean {like[0]}?" if like else f"there are {', '.join(model.model_fields)}"
        return f"there is no option {dotted(keys)}; {known}"
    return f"{dotted(keys)}: {_message(problem)}{_shown(problem, model, keys)}"


def _message(problem: ErrorDetails) -> str:
    """The reason in lower case, with durations as people write them."""
    message = _BOUND.sub(_bound, problem["msg"].removeprefix("Value error, "))
    return f"{message[:1].lower()}{message[1:]}"


def _bound(found: re.Match[str]) -> str:
    return duration_text(timedelta(**{found[1] or "days": int(found[2])}))


def _kinds(problem: ErrorDetails) -> str:
    context = problem.get("ctx", {})
    return (
        f"input should be {context['expected_tags']} (it is {context['tag']!r})"
        if "tag" in context
        else "field required"
    )


def place(path: Path, keys: Keys) -> str:
    """File and line of a key, or of the table that lacks it; the file alone where neither is there."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return str(path)
    while keys and not _holds(_beginning(lines, len(lines)), keys):
        keys = keys[:-1]
    if not keys:
        return str(path)
    # The first line from which on the file holds the key; inside a value of several lines nothing can be read.
    before = bisect_left(
        range(1, len(lines)), True, key=lambda count: _holds(_beginning(lines, count), keys)
    )
    return f"{path}:{before + 1}"


def dotted(keys: Keys) -> str:
    return ".".join(str(key + 1) if isinstance(key, int) else key for key in keys)


def _source(path: Path, keys: Keys, given: Mapping[str, object]) -> str:
    name = str(keys[0]) if keys else ""
    if name in given:
        return _OPTIONS.get(name, f"--{name.replace('_', '-')}")
    if is_set(variable_of(name)):
        return variable_of(name)
    return f"{place(path, keys)}: {dotted(keys)}"


def _beginning(lines: Sequence[str], count: int) -> object:
    """What the shortest beginning of the file says that has so many lines at least and can be read."""
    for end in range(count, len(lines) + 1):
        try:
            return tomllib.loads("\n".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue
    return {}


def _holds(data: object, keys: Keys) -> bool:
    return _value(data, keys) is not None


def _value(data: object, keys: Keys) -> object:
    """Return what stands below these keys, None if nothing does; TOML has no value like it."""
    for key in keys:
        # The tables of a list are known by their numbers.
        known = dict(enumerate(data)) if isinstance(data, list) else data
        if not isinstance(known, dict) or key not in known:
            return None
        data = known[key]
    return data


def _without_kinds(location: Keys, path: Path) -> Keys:
    """Leave out the kinds that a choice of tables adds to a location: they are no keys of the file."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return location
    # A name that is itself wrong is told of by this mark behind it.
    location = location[:-1] if location[-1:] == ("[key]",) else location
    keys: Keys = ()
    chosen: Keys = ()
    for key in location[:-1]:
        # A table of kind "command" may have a key of this name, too; the kind comes first.
        if keys and keys != chosen and _value(data, (*keys, KIND)) == key:
            chosen = keys
        elif not keys or _holds(data, (*keys, key)):
            keys = (*keys, key)
    return (*keys, *location[-1:])


def _instead(model: type[BaseModel], keys: Keys) -> str:
    names = [name for one in models_at(model, keys[:-1]) for name in one.model_fields]
    like = get_close_matches(str(keys[-1]), names, n=1)
    return (
        f"did you mean {like[0]}?" if like else "`holdfast init` writes a file with all there are"
    )


def _shown(problem: ErrorDetails, model: type[BaseModel], keys: Keys) -> str:
    """The value, unless there is none or it may hold a password."""
    fields = (
        [one.model_fields.get(str(keys[-1])) for one in models_at(model, keys[:-1])] if keys else []
    )
    is_open = any(field is not None and field.repr for field in fields)
    if problem["type"] == "missing" or not is_open:
        return ""
    value = problem["input"]
    return f" (it is {duration_text(value) if isinstance(value, timedelta) else repr(value)})"

"""Texts that make a pattern backtrack: repetitions of its own parts, and near-misses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

sre: Any = import_module("re._constants")
parser: Any = import_module("re._parser")

Hostile = Callable[[int], str]

UNITS = (
    *(
        "a",
        "A",
        "0",
        " ",
        "\n",
        "\t",
        "é",
        "\0",
        "-",
        "_",
        "*",
        "`",
        "~",
        "[",
        "(",
        "<",
        "&",
        "#",
        ">",
        ":",
        "@",
        "=",
    ),
    *(
        "a://",
        "a://a:",
        "://:",
        "a:b@",
        "sk-",
        "sk_a-",
        "xoxb-",
        "eyJ",
        "eyJaaaaaaaa.",
        "**",
        "**a ",
        "__a ",
        "~~a ",
    ),
    *(
        "token ",
        "token=",
        'token"',
        "-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----",
        "[@a",
        "[send_file ",
        "<@U1|",
        "a ",
    ),
    *(
        "```\n",
        "``` \n",
        "# ",
        "> ",
        "- ",
        "1.",
        "1,",
        "a.",
        "000-a",
        "@a ",
        "[a](https://",
        "(a)",
        "\ud800",
    ),
)
SAMPLES = "aA0 -_.:/@#<>[](){}*`~|&=,;!?'\"\\\n\t\ré"


def hostile_texts(pattern: re.Pattern[str]) -> Iterator[tuple[str, Hostile]]:
    """Yield names and factories of hostile texts of any length for this pattern."""
    units = dict.fromkeys(UNITS)
    for prefix, pump in pumps(pattern):
        yield f"{prefix!r} + {pump!r} * n", _pumped(prefix, pump, "")
        yield f"{prefix!r} + {pump!r} * n + NUL", _pumped(prefix, pump, "\0")
        units |= dict.fromkeys((pump, prefix + pump, prefix + pump * 2))
    sample = _sample(parser.parse(pattern.pattern, pattern.flags), 1)
    units |= dict.fromkeys(sample[:end] for end in range(1, min(len(sample), 16) + 1))
    units |= dict.fromkeys((sample, f"{sample}\0"))
    for unit in units:
        if unit:
            yield f"{unit!r} * n", _pumped("", unit, "")


def pumps(pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    """Return pairs of a prefix that leads to a repetition and the repeated text."""
    return list(dict.fromkeys(_pumps("", parser.parse(pattern.pattern, pattern.flags))))


def _pumped(prefix: str, unit: str, suffix: str) -> Hostile:
    return lambda size: prefix + unit * (size // len(unit) + 1) + suffix


REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)


def _pumps(prefix: str, tree: Sequence[tuple[Any, Any]]) -> Iterator[tuple[str, str]]:
    for operation, argument in tree:
        if operation in REPEATS and (unit := _sample(argument[2], 1)):
            yield prefix, unit
        for inner in _children(operation, argument):
            yield from _pumps(prefix, inner)
        prefix += _node(operation, argument, 1)


def _children(operation: Any, argument: Any) -> list[Any]:
    if operation in REPEATS:
        return [argument[2]]
    if operation is sre.SUBPATTERN:
        return [argument[3]]
    if operation is sre.BRANCH:
        return list(argument[1])
    return [argument] if operation is sre.ATOMIC_GROUP else []


def _sample(tree: Any, times: int) -> str:
    """Build a text that the tree would match, as far as that can be told without looking around."""
    return "".join(_node(operation, argument, times) for operation, argument in tree)


def _node(operation: Any, argument: Any, times: int) -> str:
    if operation is sre.LITERAL:
        return chr(argument)
    if operation is sre.NOT_LITERAL:
        return next(sign for sign in SAMPLES if ord(sign) != argument)
    if operation is sre.ANY:
        return "a"
    if operation is sre.IN:
        return _one_of(argument)
    if operation in REPEATS:
        low, high, inner = int(argument[0]), int(argument[1]), argument[2]
        return _sample(inner, times) * max(low, min(times, high))
    children = _children(operation, argument)
    return _sample(children[0], times) if children else ""


def _one_of(members: Any) -> str:
    matches = re.compile(_class(members))
    return next((sign for sign in SAMPLES if matches.match(sign)), "")


CATEGORIES = {
    sre.CATEGORY_DIGIT: r"\d",
    sre.CATEGORY_NOT_DIGIT: r"\D",
    sre.CATEGORY_SPACE: r"\s",
    sre.CATEGORY_NOT_SPACE: r"\S",
    sre.CATEGORY_WORD: r"\w",
    sre.CATEGORY_NOT_WORD: r"\W",
}


def _class(members: Any) -> str:
    parts = []
    for operation, argument in members:
        if operation is sre.NEGATE:
            parts.append("^")
        elif operation is sre.LITERAL:
            parts.append(re.escape(chr(argument)))
        elif operation is sre.RANGE:
            parts.append("-".join(re.escape(chr(end)) for end in argument))
        else:
            parts.append(CATEGORIES[argument])
    return f"[{''.join(parts)}]"

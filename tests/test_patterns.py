"""Every regular expression of the package takes linear time, also for hostile texts."""

from __future__ import annotations

import ast
import importlib
import logging
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.agents.transcript import transcript_of
from holdfast.channels.slack.incoming import Bot, text_without_mention
from holdfast.channels.slack.mrkdwn import mrkdwn
from holdfast.channels.split import split
from holdfast.memory.indexing import split_text
from holdfast.memory.ranking import search_words, terms
from holdfast.message import text_before_routing
from holdfast.routing.router import Routing
from holdfast.routing.tags import tags, without
from holdfast.telemetry.logs import Entry, JsonLines, TextLines
from holdfast.telemetry.redaction import redact, redact_prose
from tests.growth import superlinear
from tests.hostile import UNITS, hostile_texts

PACKAGE = Path(holdfast.__file__).parent


def calls_of_re(path: Path) -> Iterator[tuple[ast.Call, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=name)):
                yield node, name


def lines_of_functions(path: Path) -> set[int]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    return {
        line
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, functions)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def compiled(values: Iterable[object]) -> Iterator[re.Pattern[str]]:
    for value in values:
        if isinstance(value, re.Pattern):
            yield value
        elif isinstance(value, tuple | list | set | frozenset):
            yield from compiled(value)
        elif isinstance(value, dict):
            yield from compiled(value.values())


def patterns() -> dict[str, re.Pattern[str]]:
    """Every compiled pattern that a module of the package holds, by module and number."""
    found: dict[re.Pattern[str], str] = {}
    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if not module.name.endswith("__main__"):
            for number, pattern in enumerate(
                compiled(vars(importlib.import_module(module.name)).values())
            ):
                found.setdefault(pattern, f"{module.name.removeprefix('holdfast.')}-{number}")
    return {name: pattern for pattern, name in found.items()}


PATTERNS = patterns()


def test_every_pattern_is_a_constant_of_its_module_so_that_this_test_finds_it() -> None:
    faults = []
    expressions = {pattern.pattern for pattern in PATTERNS.values()}
    for path in sorted(PACKAGE.glob("**/*.py")):
        inner = lines_of_functions(path)
        for call, name in calls_of_re(path):
            position = f"{path.relative_to(PACKAGE)}:{call.lineno}"
            if name not in ("compile", "escape") or (name == "compile" and call.lineno in inner):
                faults.append(
                    f"{position}: re.{name}; compile the pattern as a constant of the module"
                )
            if (
                name == "compile"
                and isinstance(call.args[0], ast.Constant)
                and call.args[0].value not in expressions
            ):
                faults.append(
                    f"{position}: keep this pattern where tests/test_patterns.py finds it"
                )
    assert faults == []


@pytest.mark.parametrize("name", PATTERNS)
def test_issue_13_2_a_pattern_grows_linearly_with_hostile_texts(name: str) -> None:
    pattern = PATTERNS[name]
    faults = [
        f"{way.__name__}, {text}: {fault}"
        for text, hostile in hostile_texts(pattern)
        for way in (pattern.findall, pattern.fullmatch)
        if (fault := superlinear(_on_text(pattern, way), hostile))
    ]
    assert faults == []


def _on_text(pattern: re.Pattern[Any], way: Callable[..., object]) -> Callable[[str], object]:
    """Patterns over bytes get the same texts."""
    return (
        way if isinstance(pattern.pattern, str) else lambda text: way(text.encode(errors="replace"))
    )


def logged(formatter: logging.Formatter) -> Callable[[str], object]:
    def log(text: str) -> str:
        return formatter.format(
            logging.LogRecord("x", logging.INFO, "", 1, Entry("x", error=text), (), None)
        )

    return log


FUNCTIONS: dict[str, Callable[[str], object]] = {
    "split_text": split_text,
    "json lines": logged(JsonLines()),
    "mrkdwn": mrkdwn,
    "redact": redact,
    "redact_prose": redact_prose,
    "route": Routing().route,
    "split": lambda text: split(text, 100),
    "tags": lambda text: without(text, tags(text)),
    "search_words": search_words,
    "terms": terms,
    "text lines": logged(TextLines()),
    "text_without_mention": lambda text: text_without_mention(Bot("T1", "U1", "B1"), text),
    "text_before_routing": lambda text: text_before_routing({"type": "app_mention", "text": text}),
    "transcript_of": transcript_of,
}
NEAR_MISSES = (
    "<@U1> ",
    " <@U1>",
    "[@a: b]",
    "[@a: b] ",
    "postgres://a:b@c ",
    "sk-1234567890 ",
    "{",
    "[",
    '{"a":',
    "x@",
)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_issue_13_2_a_function_grows_linearly_with_hostile_texts(name: str) -> None:
    units = (*UNITS, *NEAR_MISSES, "|-|\n", "a|b\n-|-\n")
    texts = {unit: (lambda size, unit=unit: unit * (size // len(unit) + 1)) for unit in units}
    assert [
        fault for hostile in texts.values() if (fault := superlinear(FUNCTIONS[name], hostile))
    ] == []


def test_issue_13_2_a_long_field_of_a_log_line_is_cut() -> None:
    line = str(logged(TextLines())("a" * 1_000_000))
    assert len(line) < 5_000
    assert "more characters" in line

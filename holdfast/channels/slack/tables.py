"""Markdown tables as aligned text: Slack's mrkdwn has none, but shows code blocks in columns."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

FENCE = "```"
MOST_COLUMNS = 20
WIDEST = 60
"""Cells are padded to at most this width. Longer ones exceed their column."""
MOST_GROWTH = 4
"""A table that alignment would make larger than this many times its source stays as it is."""

_PIPE = re.compile(r"(?<!\\)\|")
_SIGNS = re.compile(r"\*\*|__|~~|`")


def align_tables(text: str) -> str:
    """Replace every table by a code block with aligned columns."""
    if "|" not in text or "-" not in text:
        return text
    lines = text.split("\n")
    shown: list[str] = []
    at = 0
    while at < len(lines):
        end = _table_end(lines, at)
        shown += [lines[at]] if end is None else _block(lines[at:end])
        at = at + 1 if end is None else end
    return "\n".join(shown)


def _table_end(lines: Sequence[str], start: int) -> int | None:
    """Return the line after the table that starts here, None if none does."""
    if "|" not in lines[start] or start + 1 == len(lines) or not _is_rule(lines[start + 1]):
        return None
    columns = len(_cells(lines[start]))
    if columns != len(_cells(lines[start + 1])) or columns > MOST_COLUMNS:
        return None
    end = start + 2
    while end < len(lines) and "|" in lines[end]:
        end += 1
    return end


def _is_rule(line: str) -> bool:
    """Return whether a line is the rule below a table's head, such as `|---|:-:|`."""
    cells = [cell.removeprefix(":").removesuffix(":") for cell in _cells(line)]
    return "-" in line and "|" in line and all(cell and not cell.strip("-") for cell in cells)


def _cells(line: str) -> list[str]:
    line = line.strip()
    line = line.removeprefix("|")
    if line.endswith("|") and not line.endswith("\\|"):
        line = line[:-1]
    return [cell.strip() for cell in _PIPE.split(line)]


def _block(lines: Sequence[str]) -> list[str]:
    head, rule, *body = lines
    columns = len(_cells(head))
    rows = [_fit_cells(_cells(line), columns) for line in (head, *body)]
    widths = [min(max(map(_width, column)), WIDEST) for column in zip(*rows, strict=True)]
    sides = [_is_right(cell) for cell in _cells(rule)]
    if len(rows) * sum(widths) > MOST_GROWTH * sum(map(len, lines)) + 4_000:
        return list(lines)
    aligned = [_line(row, widths, sides) for row in rows]
    return [FENCE, aligned[0], "  ".join("-" * width for width in widths), *aligned[1:], FENCE]


def _fit_cells(cells: list[str], columns: int) -> list[str]:
    """Return as many cells as the head has; the last one takes all further cells."""
    cells = [_SIGNS.sub("", cell).replace("\\|", "|") for cell in cells]
    cells += [""] * (columns - len(cells))
    return [*cells[: columns - 1], " | ".join(cells[columns - 1 :])]


def _line(row: Sequence[str], widths: Sequence[int], is_right: Sequence[bool]) -> str:
    cells = []
    for cell, width, right in zip(row, widths, is_right, strict=True):
        gap = " " * (width - _width(cell))
        cells.append(gap + cell if right else cell + gap)
    return "  ".join(cells).rstrip()


def _is_right(rule: str) -> bool:
    return rule.endswith(":") and not rule.startswith(":")


def _width(text: str) -> int:
    """Return the columns of a text in a fixed-width font."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in text)
    return len(text) + wide - sum(bool(unicodedata.combining(sign)) for sign in text)

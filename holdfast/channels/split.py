"""Splits long texts at paragraphs, lines or words, and closes code blocks that are cut."""

from __future__ import annotations

import re
from collections.abc import Callable

FENCE = "```"
_BREAKS = ("\n\n", "\n", " ")
_OPENING = re.compile(r"^```.*$", re.MULTILINE)
_NEWLINES = re.compile(r"\n*+")

Reach = Callable[[str, int, int], int]
"""Takes a text, a position and a number of units. Returns the position up to which they reach."""


def reach_characters(text: str, at: int, units: int) -> int:
    """Count code points."""
    return min(at + units, len(text))


def reach_utf16(text: str, at: int, units: int) -> int:
    """Count UTF-16 units, of which an emoji has two or more."""
    units = max(units, 0)
    found = text[at : at + units].encode("utf-16-le", "surrogatepass")[: 2 * units]
    return at + len(found.decode("utf-16-le", "ignore"))


def split(text: str, limit: int, reach: Reach = reach_characters) -> list[str]:
    """Return parts of at most `limit` characters. A cut code block is closed and opened again.

    `reach` counts them as the platform does. The text is never copied as a whole: copying the rest
    for each part would take quadratic time."""
    parts: list[str] = []
    text, at, reopen = text.strip("\n"), 0, ""
    while at < len(text):
        # The fence that opens a block again is short. Count each of its characters as an emoji.
        space = limit - len(reopen) * (1 if reach is reach_characters else 2)
        if reach(text, at, space) == len(text):
            parts.append(reopen + text[at:])
            break
        # Leave space for a closing fence.
        cut = _cut(text, at, max(reach(text, at, space - len(FENCE) - 1), at + 1))
        part = reopen + text[at:cut].rstrip("\n")
        opening = _open_fence(part)
        if opening is None:
            parts.append(part)
            at, reopen = _after_newlines(text, cut), ""
        else:
            parts.append(f"{part}\n{FENCE}")
            at, reopen = cut + text.startswith("\n", cut), f"{opening}\n"
    return [part for part in parts if part.strip()]


def _after_newlines(text: str, at: int) -> int:
    found = _NEWLINES.match(text, at)
    return found.end() if found else at


def _cut(text: str, start: int, end: int) -> int:
    """Return where to cut: at a break in the second half if there is one, else at `end`."""
    for separator in _BREAKS:
        position = text.rfind(separator, start + (end - start) // 2, end)
        if position > start:
            return position + len(separator)
    # Without a break, do not cut inside an entity or a link.
    for sign, closing in (("<", ">"), ("&", ";")):
        position = text.rfind(sign, max(end - 200, start + 1), end)
        if position > start and closing not in text[position:end]:
            return position
    return end


def _open_fence(part: str) -> str | None:
    """Return the line that opened a code block which the part leaves open, shortened; else None."""
    fences = _OPENING.findall(part)
    return None if len(fences) % 2 == 0 else str(fences[-1][:40])

"""Split long texts: at paragraphs, else lines, else words, and never with a code block left open."""

from __future__ import annotations

import re

FENCE = "```"
_BREAKS = ("\n\n", "\n", " ")
_OPENING = re.compile(r"^```.*$", re.MULTILINE)
_NEWLINES = re.compile(r"\n*+")


def split(text: str, limit: int) -> list[str]:
    """Parts of at most `limit` characters; a code block that is cut is closed and opened again.

    The text stays in one piece while it is read: cutting the rest anew for each part would take
    time in proportion to the square of the text.
    """
    parts: list[str] = []
    text, at, reopen = text.strip("\n"), 0, ""
    while at < len(text):
        room = limit - len(reopen)
        if len(text) - at <= room:
            parts.append(reopen + text[at:])
            break
        # Room for the fence that may have to be closed.
        cut = _cut(text, at, at + max(room - len(FENCE) - 1, 1))
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
    """Where to cut, so that at least half of the room is used, unless there is no break."""
    for separator in _BREAKS:
        place = text.rfind(separator, start + (end - start) // 2, end)
        if place > start:
            return place + len(separator)
    # No break at all: at least not inside an entity or a link.
    for sign, closing in (("<", ">"), ("&", ";")):
        place = text.rfind(sign, max(end - 200, start + 1), end)
        if place > start and closing not in text[place:end]:
            return place
    return end


def _open_fence(part: str) -> str | None:
    """The line that opened a block which this part leaves open; without what is too long to be repeated."""
    fences = _OPENING.findall(part)
    return None if len(fences) % 2 == 0 else str(fences[-1][:40])

"""Long texts in parts: at paragraphs, else lines, else words, and never with a code block left open."""

from __future__ import annotations

import re

FENCE = "```"
_BREAKS = ("\n\n", "\n", " ")
_OPENING = re.compile(r"^```.*$", re.MULTILINE)


def split(text: str, limit: int) -> list[str]:
    """Parts of at most `limit` characters; a code block that is cut is closed and opened again."""
    parts: list[str] = []
    rest, reopen = text.strip("\n"), ""
    while rest:
        room = limit - len(reopen)
        if len(rest) <= room:
            parts.append(reopen + rest)
            break
        # Room for the fence that may have to be closed.
        cut = _cut(rest, room - len(FENCE) - 1)
        part = reopen + rest[:cut].rstrip("\n")
        opening = _open_fence(part)
        parts.append(part if opening is None else f"{part}\n{FENCE}")
        rest = rest[cut:].lstrip("\n") if opening is None else rest[cut:].removeprefix("\n")
        reopen = "" if opening is None else f"{opening}\n"
    return [part for part in parts if part.strip()]


def _cut(text: str, room: int) -> int:
    """Where to cut, so that at least half of the room is used, unless there is no break."""
    for separator in _BREAKS:
        place = text.rfind(separator, room // 2, room)
        if place > 0:
            return place + len(separator)
    # No break at all: at least not inside an entity or a link.
    for sign, end in (("<", ">"), ("&", ";")):
        start = text.rfind(sign, max(room - 200, 1), room)
        if start > 0 and end not in text[start:room]:
            return start
    return room


def _open_fence(part: str) -> str | None:
    """The line that opened a block which this part leaves open; without what is too long to be repeated."""
    fences = _OPENING.findall(part)
    return None if len(fences) % 2 == 0 else str(fences[-1][:40])

"""Splits long texts at paragraphs, lines or words, and closes code blocks that are cut."""

from __future__ import annotations

import re

FENCE = "```"
_BREAKS = ("\n\n", "\n", " ")
_OPENING = re.compile(r"^```.*$", re.MULTILINE)
_NEWLINES = re.compile(r"\n*+")


def split(text: str, limit: int) -> list[str]:
    """Return parts of at most `limit` characters. A cut code block is closed and opened again.

    The text is never copied as a whole: copying the rest for each part would take quadratic time.
    """
    parts: list[str] = []
    text, at, reopen = text.strip("\n"), 0, ""
    while at < len(text):
        space = limit - len(reopen)
        if len(text) - at <= space:
            parts.append(reopen + text[at:])
            break
        # Leave space for a closing fence.
        cut = _cut(text, at, at + max(space - len(FENCE) - 1, 1))
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

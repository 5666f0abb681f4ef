"""Tags in replies: `[@mate: text]`, `[#team: text]`, `[send_file: path]`, in linear time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

TagKind = Literal["mate", "room", "file"]

HEAD = re.compile(r"\[(?:([@#])([^\[\]:\n]*)|send_file\s*):")
MARK = re.compile(r"`{3,}|^~{3,}|[\[\]]", re.MULTILINE)
FILE_START = re.compile(r"\[(?:send_file|s?e?n?d?_?f?i?l?e?\Z)")
ANY_START = re.compile(r"\[(?:[@#]|send_file|s?e?n?d?_?f?i?l?e?\Z)")
KINDS: dict[str | None, TagKind] = {"@": "mate", "#": "room", None: "file"}


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag and its position in the text; `names` are ids as written."""

    kind: TagKind
    names: tuple[str, ...]
    text: str
    start: int
    end: int


def tags(text: str) -> list[Tag]:
    """Return the outermost tags of a text, in order."""
    found: list[Tag] = []
    # Most replies have no tag: this is all that they cost.
    if "[@" not in text and "[#" not in text and "[send_file" not in text:
        return found
    after = 0
    for start, end in _pairs(text).items():
        head = HEAD.match(text, start, end) if end and start >= after else None
        if head is not None:
            names = tuple(
                name for part in (head[2] or "").split(",") if (name := part.strip().lstrip("@#"))
            )
            found.append(Tag(KINDS[head[1]], names, text[head.end() : end - 1].strip(), start, end))
            after = end
    return found


def length_before_tags(text: str, *, has_mates: bool) -> int:
    """Return the length of an unfinished text before its first tag, or what may become one.

    The space before the tag does not count: it goes with the tag. Without mates, only tags of files
    count."""
    found = (ANY_START if has_mates else FILE_START).search(text)
    return len(text) if found is None else len(text[: found.start()].rstrip())


def _pairs(text: str) -> dict[int, int]:
    """Map each opening bracket to its closing one, or 0; brackets in code fences do not count."""
    ends: dict[int, int] = {}
    opened: list[int] = []
    fence = ""
    for mark in MARK.finditer(text):
        sign = mark[0]
        if fence:
            # A fence is closed by at least as many of the same characters, else by the end.
            fence = "" if sign.startswith(fence) else fence
        elif sign == "[":
            opened.append(mark.start())
            ends[mark.start()] = 0
        elif sign != "]":
            fence = sign
        elif opened:
            ends[opened.pop()] = mark.end()
    return ends


def without(text: str, taken: Iterable[Tag]) -> str:
    """Return the text without these tags, and without the gaps that they leave."""
    pieces: list[str] = []
    at = 0
    for tag in taken:
        _add(pieces, text[at : tag.start])
        at = tag.end
    _add(pieces, text[at:])
    return "".join(pieces).strip()


def _add(pieces: list[str], piece: str) -> None:
    """Add the text after a tag, without a double space or an empty line in the tag's stead."""
    if pieces and piece[:1].isspace() and (not pieces[-1] or pieces[-1][-1].isspace()):
        piece = piece[1:]
    pieces.append(piece)

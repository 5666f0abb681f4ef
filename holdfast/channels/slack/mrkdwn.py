"""Markdown, as language models write it, converted to Slack's mrkdwn in linear time."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

# Unicode reserves these noncharacters for internal use. They are removed from every text first.
_STAR = "\ufdd0"
"""Stands for the sign of bold text until single stars have become italics."""
_HELD = "\ufdd1"
"""Stands for a piece that must not be changed, such as code. Pieces are restored in order."""
_NO_MARKERS = {ord(_STAR): None, ord(_HELD): None}

_FENCED = re.compile(r"(^```[^`\n]*$.*?(?:^```[ \t]*$|\Z))", re.MULTILINE | re.DOTALL)
_LANGUAGE = re.compile(r"^```.*")
_VERBATIM = re.compile(
    r"(?P<code>`[^`\n]+`)"
    r"|<(?:@[UW][A-Z0-9]+|#[CG][A-Z0-9]+)(?:\|[^<>|]*)?>"
    r"|<https?://[^<>\s|]+(?:\|[^<>|]+)?>"
)
_LINK = re.compile(
    r"!?\[([^\[\]]*+)\]\((https?://[^\s()]*+(?:\([^\s()]*+\)[^\s()]*+)*+|mailto:[^\s()]++)\)"
)
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]")
_QUOTE = re.compile(r"^(?:&gt; ?)++")
_BULLET = re.compile(r"^([ \t]*+)[-*+][ \t]++(?=\S)")
_ITALIC = re.compile(r"(?<![\w*])\*(?=[^\s*])([^*]+?)(?<=[^\s*])\*(?![\w*])")

_BOLD_OPENS = re.compile(r"(?<![\w*])\*\*(?=\S)|(?<![\w_])__(?=\S)")
_BOLD_CLOSES = {
    "**": re.compile(r"(?<=\S)\*\*(?![\w*])"),
    "__": re.compile(r"(?<=\S)__(?![\w_])"),
}
_STRIKE_OPENS = re.compile(r"~~(?=\S)")
_STRIKE_CLOSES = {"~~": re.compile(r"(?<=\S)~~")}

FENCE = "```"
MOST_COLUMNS = 20
WIDEST = 60
"""Cells are padded to at most this width. Longer ones exceed their column."""
MOST_GROWTH = 4
"""A table that alignment would make larger than this many times its source stays as it is."""

_PIPE = re.compile(r"(?<!\\)\|")
_SIGNS = re.compile(r"\*\*|__|~~|`")


def mrkdwn(text: str) -> str:
    """Convert bold, italics, strikes, links, lists, headings and tables; leave code as it is."""
    # Every second piece is a code block.
    pieces = _FENCED.split(text)
    pieces[::2] = [align_tables(piece) for piece in pieces[::2]]
    return "".join(map(_convert_piece, _FENCED.split("".join(pieces)) if "|" in text else pieces))


def _convert_piece(piece: str) -> str:
    if not _FENCED.match(piece):
        return _convert_text(piece)
    # Slack would show the language as a line of code.
    return escape(_LANGUAGE.sub("```", piece, count=1))


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def unescape(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _convert_text(text: str) -> str:
    """Convert a text outside of code blocks; put code, mentions and links aside meanwhile."""
    held: list[str] = []

    def hold(found: re.Match[str]) -> str:
        held.append(escape(found[0]) if found["code"] else found[0])
        return _HELD

    text = _VERBATIM.sub(hold, text.translate(_NO_MARKERS))
    text, held = _hold_links(text, iter(held))
    text = "\n".join(_convert_line(line) for line in escape(text).split("\n"))
    return _restore(text.replace(_STAR, "*"), iter(held))


def _hold_links(text: str, held: Iterator[str]) -> tuple[str, list[str]]:
    """Convert links and put them aside, too. Pieces inside a link become part of it.

    Returns the text and all pieces that were put aside, in order."""
    pieces: list[str] = []
    outer: list[str] = []
    at = 0
    for link in _LINK.finditer(text):
        between = text[at : link.start()]
        outer += [next(held) for _ in range(between.count(_HELD))]
        label, address = _restore(escape(link[1]), held), _restore(escape(link[2]), held)
        outer.append(f"<{address}|{label or address}>")
        pieces += (between, _HELD)
        at = link.end()
    return "".join([*pieces, text[at:]]), [*outer, *held]


def _restore(text: str, held: Iterator[str]) -> str:
    """Put the held pieces back in one pass. Their content is not searched again."""
    first, *others = text.split(_HELD)
    return "".join([first, *(part for other in others for part in (next(held), other))])


def _convert_line(line: str) -> str:
    line = _QUOTE.sub(lambda found: found[0].replace("&gt;", ">"), line)
    line = _convert_heading(line)
    line = _BULLET.sub(r"\1• ", line)
    line = _replace_delimiters(line, _BOLD_OPENS, _BOLD_CLOSES, _STAR)
    line = _ITALIC.sub(r"_\1_", line)
    return _replace_delimiters(line, _STRIKE_OPENS, _STRIKE_CLOSES, "~")


def _convert_heading(line: str) -> str:
    """Make a heading bold, and remove the signs of bold words inside."""
    found = _HEADING.match(line)
    if found is None:
        return line
    title = line[found.end() :].strip(" \t")
    opened = title.rstrip("#")
    if opened[-1:] in ("", " ", "\t"):
        title = opened.rstrip(" \t")
    title = _replace_delimiters(title, _BOLD_OPENS, _BOLD_CLOSES, "")
    return f"{_STAR}{title}{_STAR}" if title else line


def _replace_delimiters(
    line: str, opens: re.Pattern[str], closes: dict[str, re.Pattern[str]], sign: str
) -> str:
    """Replace pairs of delimiters by `sign`.

    A delimiter that is not closed from here to the end of the line is not looked for again, so
    that the line is read a bounded number of times.
    """
    pieces: list[str] = []
    unclosed: set[str] = set()
    at = 0
    for opening in opens.finditer(line):
        if opening.start() < at or opening[0] in unclosed:
            continue
        closing = closes[opening[0]].search(line, opening.end() + 1)
        if closing is None:
            unclosed.add(opening[0])
            continue
        content = line[opening.end() : closing.start()]
        pieces += (line[at : opening.start()], sign, content, sign)
        at = closing.end()
    return "".join([*pieces, line[at:]])


def align_tables(text: str) -> str:
    """Replace every table by a code block with aligned columns; mrkdwn has no tables."""
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

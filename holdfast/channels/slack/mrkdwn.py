"""Markdown, as language models write it, converted to Slack's mrkdwn in linear time."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.channels.slack.tables import align_tables

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
    """Convert a text outside of code blocks, with code, mentions and links held out of it."""
    held: list[str] = []

    def hold(found: re.Match[str]) -> str:
        held.append(escape(found[0]) if found["code"] else found[0])
        return _HELD

    text = _VERBATIM.sub(hold, text.translate(_NO_MARKERS))
    text, held = _hold_links(text, iter(held))
    text = "\n".join(_convert_line(line) for line in escape(text).split("\n"))
    return _restore(text.replace(_STAR, "*"), iter(held))


def _hold_links(text: str, held: Iterator[str]) -> tuple[str, list[str]]:
    """Hold links, too. Pieces inside a link become part of it."""
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
    """Make a heading bold, without further signs for bold words in it."""
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

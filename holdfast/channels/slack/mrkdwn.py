"""Markdown, which language models write, as mrkdwn, which Slack shows."""

from __future__ import annotations

import re

_FENCED = re.compile(r"(^```.*?(?:^```[ \t]*$|\Z))", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]+`")
_KEPT = re.compile(r"<(?:@[UW][A-Z0-9]+|#[CG][A-Z0-9]+)(?:\|[^<>|]*)?>|<https?://[^<>\s|]+(?:\|[^<>|]+)?>")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\((https?://[^\s()]*(?:\([^\s()]*\)[^\s()]*)*|mailto:[^\s()]+)\)")
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.+?)[ \t]*#*$", re.MULTILINE)
_QUOTE = re.compile(r"^(?:&gt; ?)+", re.MULTILINE)
_BULLET = re.compile(r"^([ \t]*)[-*+][ \t]+(?=\S)", re.MULTILINE)
_BOLD = re.compile(r"(?<![\w*])\*\*(?=\S)(.+?)(?<=\S)\*\*(?![\w*])|(?<![\w_])__(?=\S)(.+?)(?<=\S)__(?![\w_])")
_ITALIC = re.compile(r"(?<![\w*])\*(?=[^\s*])([^*\n]+?)(?<=[^\s*])\*(?![\w*])")
_STRUCK = re.compile(r"~~(?=\S)(.+?)(?<=\S)~~")
# Stands for a bold sign until single stars have become italics.
_STAR = "\ue000"
_HELD = re.compile("\ue001([0-9]+)\ue002")


def mrkdwn(text: str) -> str:
    """Code stays as it is; bold, italics, strikes, links, lists and headings become Slack's."""
    pieces = _FENCED.split(text)
    return "".join(escape(piece) if piece.startswith("```") else _styled(piece) for piece in pieces)


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def unescape(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _styled(text: str) -> str:
    """What is not to be touched is held while the rest is changed: emphasis may go around it."""
    held: list[str] = []

    def hold(piece: str) -> str:
        held.append(piece)
        return f"\ue001{len(held) - 1}\ue002"

    text = _CODE.sub(lambda found: hold(escape(found[0])), text)
    text = _KEPT.sub(lambda found: hold(found[0]), text)
    text = _LINK.sub(lambda found: hold(f"<{escape(found[2])}|{escape(found[1] or found[2])}>"), text)
    text = _quoted(escape(text))
    text = _HEADING.sub(lambda found: f"{_STAR}{_plain(found[1])}{_STAR}", text)
    text = _BULLET.sub(r"\1• ", text)
    text = _BOLD.sub(lambda found: f"{_STAR}{found[1] or found[2]}{_STAR}", text)
    text = _ITALIC.sub(r"_\1_", text)
    text = _STRUCK.sub(r"~\1~", text)
    return _released(text.replace(_STAR, "*"), held)


def _released(text: str, held: list[str]) -> str:
    """A link may hold code, so what is put back may hold something, too."""
    while _HELD.search(text):
        text = _HELD.sub(lambda found: held[int(found[1])], text)
    return text


def _plain(heading: str) -> str:
    """A heading is bold already."""
    return _BOLD.sub(lambda found: str(found[1] or found[2]), heading)


def _quoted(text: str) -> str:
    """A sign at the beginning of a line is a quotation for Slack, too."""
    return _QUOTE.sub(lambda found: found[0].replace("&gt;", ">"), text)

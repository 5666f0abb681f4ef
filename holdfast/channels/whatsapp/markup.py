"""Markdown as WhatsApp's own markup: *bold*, _italic_, ~struck~; code stays as it is."""

from __future__ import annotations

import re

from holdfast.channels.split import reach_utf16, split

LONGEST_PART = 4096
FENCE = "```"
_HEADING = re.compile(r"#{1,6} +(?=\S)")
# Every repetition is bounded or possessive, so that no text takes more than linear time.
_INLINE = re.compile(
    r"(?P<code>`[^`\n]++`)"
    r"|\[(?P<label>[^\[\]\n]{1,500}+)\]\((?P<url>https?:[^\s()<>]{1,1000}+)\)"
    r"|\*\*(?=\S)(?P<bold>[^*\n]{1,1000}+)(?<=\S)\*\*"
    r"|~~(?=\S)(?P<struck>[^~\n]{1,1000}+)(?<=\S)~~"
)


def texts_of(text: str) -> list[str]:
    """Return a text as WhatsApp's messages: in its markup, and cut at its limit."""
    return split(whatsapp_text(text), LONGEST_PART, reach_utf16)


def whatsapp_text(text: str) -> str:
    """Return a Markdown text in WhatsApp's markup. It is never longer."""
    lines, is_code = [], False
    for line in text.split("\n"):
        if line.startswith(FENCE):
            is_code = not is_code
            # WhatsApp would show the name of the language.
            line = FENCE
        lines.append(line if is_code or line == FENCE else _line(line))
    return "\n".join(lines)


def _line(line: str) -> str:
    heading = _HEADING.match(line)
    if heading:
        return f"*{line[heading.end() :].strip().strip('*')}*"
    return _INLINE.sub(_span, line)


def _span(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "url":
            return f"{found['label']} ({found['url']})"
        case "bold":
            return f"*{found['bold']}*"
        case "struck":
            return f"~{found['struck']}~"
    return found[0]

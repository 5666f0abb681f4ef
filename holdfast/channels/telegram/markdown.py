"""Markdown as the HTML that Telegram understands: only its tags, and everything else escaped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

FENCE = "```"
_HEADING = re.compile(r"#{1,6} +(?=\S)")
_BULLET = re.compile(r"( {0,8})[-*+] +(?=\S)")
# Every repetition is bounded or possessive, so that no text takes more than linear time.
_INLINE = re.compile(
    r"`(?P<code>[^`\n]++)`"
    r"|\[(?P<label>[^\[\]\n]{1,500}+)\]\((?P<url>(?:https?|mailto|tg):[^\s()<>]{1,1000}+)\)"
    r"|\*\*(?=\S)(?P<bold>[^*\n]{1,1000}+)(?<=\S)\*\*"
    r"|~~(?=\S)(?P<struck>[^~\n]{1,1000}+)(?<=\S)~~"
    r"|(?<![\w*])\*(?=\S)(?P<italic>[^*\n]{1,1000}+)(?<=\S)\*(?![\w*])"
    r"|(?<![\w_])_(?=\S)(?P<under>[^_\n]{1,1000}+)(?<=\S)_(?![\w_])"
)
_TAGS = {"bold": "b", "struck": "s", "italic": "i", "under": "i"}


def telegram_html(text: str) -> str:
    """Return a Markdown text as HTML. It is never longer than the text, once Telegram parsed it."""
    return "\n".join(_blocks(text.split("\n")))


def _blocks(lines: list[str]) -> Iterator[str]:
    """Yield lines of text, and each code block or quotation as one piece."""
    at = 0
    while at < len(lines):
        line = lines[at]
        start = at
        if line.startswith(FENCE):
            at += 1
            while at < len(lines) and not lines[at].startswith(FENCE):
                at += 1
            yield _code_block(line, lines[start + 1 : at])
            at += 1
        elif line.startswith(">"):
            while at < len(lines) and lines[at].startswith(">"):
                at += 1
            quoted = (_inline(one[1:].removeprefix(" ")) for one in lines[start:at])
            yield f"<blockquote>{chr(10).join(quoted)}</blockquote>"
        else:
            yield _line(line)
            at += 1


def _code_block(opening: str, lines: list[str]) -> str:
    language = opening.removeprefix(FENCE).strip()
    code = escape("\n".join(lines), quote=False)
    if not language or not language.isalnum():
        return f"<pre>{code}</pre>"
    return f'<pre><code class="language-{escape(language)}">{code}</code></pre>'


def _line(line: str) -> str:
    if heading := _HEADING.match(line):
        return f"<b>{escape(line[heading.end() :].strip('*'), quote=False)}</b>"
    if bullet := _BULLET.match(line):
        return f"{bullet[1]}• {_inline(line[bullet.end() :])}"
    return _inline(line)


def _inline(text: str) -> str:
    pieces, at = [], 0
    for found in _INLINE.finditer(text):
        pieces += [escape(text[at : found.start()], quote=False), _span(found)]
        at = found.end()
    return "".join([*pieces, escape(text[at:], quote=False)])


def _span(found: re.Match[str]) -> str:
    kind = str(found.lastgroup)
    if kind == "code":
        return f"<code>{escape(found['code'], quote=False)}</code>"
    if kind == "url":
        return f'<a href="{escape(found["url"])}">{escape(found["label"], quote=False)}</a>'
    tag = _TAGS[kind]
    return f"<{tag}>{_inline(found[kind])}</{tag}>"

"""The text of a message: plain if it has one, else from its HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from email.message import EmailMessage
from html import unescape

LONGEST_TEXT = 200_000
"""Characters of a text that an agent gets."""
LONGEST_HTML = 1_000_000
"""Characters of HTML that are read."""
BREAKS = frozenset(("br", "p", "div", "tr", "li", "h1", "h2", "h3", "h4", "blockquote", "pre"))
HIDDEN = frozenset(("script", "style", "title"))
_BLANK_LINES = re.compile(r"\n{3,}+")
_BLANKS = re.compile(r"\s++")
_TAG = re.compile(r"([a-z][a-z0-9]{0,20})", re.ASCII | re.IGNORECASE)
_ENDS = {name: re.compile(f"</{name}", re.ASCII | re.IGNORECASE) for name in HIDDEN}


def html_text(html: str) -> str:
    """Return the visible text of HTML, with line breaks.

    The parser of the standard library takes quadratic time for hostile texts. Here, a search that
    fails ends the loop, so each character is scanned only a few times."""
    html = html[:LONGEST_HTML]
    lines = (line.strip() for line in "".join(_visible_pieces(html)).split("\n"))
    return _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip()


def _visible_pieces(html: str) -> Iterator[str]:
    """Yield the texts between tags, and a line break for each tag that makes one."""
    at = 0
    while (start := html.find("<", at)) >= 0:
        yield _flow(html[at:start])
        is_comment = html.startswith("<!--", start)
        end = html.find("-->" if is_comment else ">", start)
        if end < 0:
            return
        at = end + (3 if is_comment else 1)
        found = _TAG.match(html, start + 1)
        name = found[1].lower() if found else ""
        if name in BREAKS:
            yield "\n"
        if name in HIDDEN:
            # The closing tag is read next; without one, the rest is hidden.
            closing = _ENDS[name].search(html, at)
            if closing is None:
                return
            at = closing.start()
    yield _flow(html[at:])


def _flow(text: str) -> str:
    """Return a text as a browser shows it: with single blanks, and entities as characters."""
    return _BLANKS.sub(" ", unescape(text))


def text_of(message: EmailMessage) -> str:
    """Return the text of a message without the quotation of earlier ones at its end."""
    body = message.get_body(("plain", "html"))
    if body is None:
        return ""
    try:
        content = str(body.get_content())
    except (LookupError, UnicodeError, ValueError):
        # An unknown charset. Read what can be read.
        payload = body.get_payload(decode=True)
        content = payload.decode("utf-8", "replace") if isinstance(payload, bytes) else ""
    text = html_text(content) if body.get_content_subtype() == "html" else content
    return without_quotation(text.replace("\r\n", "\n"))[:LONGEST_TEXT].strip()


def without_quotation(text: str) -> str:
    """Return a text without the quoted lines at its end and the line that introduces them."""
    lines = text.rstrip().split("\n")
    end = len(lines)
    while end and (lines[end - 1].startswith(">") or not lines[end - 1].strip()):
        end -= 1
    if end == len(lines) or not any(line.startswith(">") for line in lines[end:]):
        return text
    introduces = end > 0 and lines[end - 1].rstrip().endswith(":")
    kept = lines[: end - introduces]
    # The introduction may have two lines.
    while kept and kept[-1].strip() and introduces and kept[-1].startswith("On "):
        kept.pop()
    return "\n".join(kept).rstrip() or text

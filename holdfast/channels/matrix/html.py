"""Converts Markdown, as language models write it, to Matrix messages with safe HTML."""

from __future__ import annotations

import json
from functools import cache
from html import escape
from typing import TYPE_CHECKING

from holdfast.channels.split import split
from holdfast.message import Payload

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

LONGEST_PART = 8000
"""Characters of one message. An event has at most 65,536 bytes, and holds text and HTML."""
LARGEST_CONTENT = 55_000
"""Maximum size of a message's content in bytes; a larger one is sent without its HTML."""
SHORT_BODY = 500
"""Characters of the text that clients without support for edits show."""
HTML_FORMAT = "org.matrix.custom.html"


def texts_of(text: str) -> list[str]:
    """Return a text as the texts of messages, cut at their limit."""
    return split(text, LONGEST_PART)


def text_content(text: str) -> Payload:
    """Return the content of a message: the text, and its HTML if it has any markup."""
    content: Payload = {"msgtype": "m.text", "body": text}
    html = to_html(text)
    if html == escape(text, quote=False):
        return content
    formatted = content | {"format": HTML_FORMAT, "formatted_body": html}
    size = len(json.dumps(formatted, ensure_ascii=False).encode(errors="replace"))
    return formatted if size <= LARGEST_CONTENT else content


def edit_content(event: str, text: str) -> Payload:
    """Return the content of an event that replaces the text of a message."""
    return {
        "msgtype": "m.text",
        "body": f"* {text[:SHORT_BODY]}",
        "m.new_content": text_content(text),
        "m.relates_to": {"rel_type": "m.replace", "event_id": event},
    }


def to_html(text: str) -> str:
    """Return HTML without scripts, images or any tag that the text itself contains."""
    html = str(_markdown().render(text)).strip()
    # A single paragraph needs no tag.
    if html.startswith("<p>") and html.endswith("</p>") and html.count("<p>") == 1:
        html = html[3:-4]
    return html.replace("<br />\n", "<br />")


@cache
def _markdown() -> MarkdownIt:
    """Return the converter: linear in the length of a text, raw HTML escaped, links checked."""
    from markdown_it import MarkdownIt

    options = {"html": False, "breaks": True, "linkify": False}
    # Images would be links to servers that learn who reads the message.
    return MarkdownIt("commonmark", options).enable(["table", "strikethrough"]).disable(["image"])

"""Make texts of others safe for terminals: no control characters, no change of direction."""

from __future__ import annotations

import unicodedata

REPLACEMENT = "\ufffd"

_KEPT = "\n\t"
_BIDI = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Embeddings, overrides and isolates, which reorder the text on the screen."""
_CONTROL = [
    code
    for code in range(0xA0)
    if unicodedata.category(chr(code)) == "Cc" and chr(code) not in _KEPT
]
_UNPRINTABLE = (*_CONTROL, *_BIDI, 0x2028, 0x2029, *range(0xD800, 0xE000))
_REPLACED = dict.fromkeys(_UNPRINTABLE, REPLACEMENT)
_ESCAPED = {code: f"\\u{code:04x}" for code in _UNPRINTABLE}


def printable(text: str) -> str:
    """Replace control characters, except line feeds and tabs, and direction marks."""
    return text if text.isascii() and text.isprintable() else text.translate(_REPLACED)


def printable_json(text: str) -> str:
    """Escape the same characters in JSON, so that programs read them unchanged."""
    return text.translate(_ESCAPED)

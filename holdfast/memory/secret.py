"""What looks like a secret is not remembered."""

from __future__ import annotations

import re

HIDDEN = "[secret]"

_SHAPES = re.compile(
    r"""
      \b(?:sk|pk|rk)[-_](?:[a-z]+[-_])*[A-Za-z0-9]{16,}[A-Za-z0-9_-]*   # model providers, payment services
    | \bxox[abeoprs]-[A-Za-z0-9-]{8,} | \bxapp-[A-Za-z0-9-]{8,}           # Slack
    | \bgh[oprsu]_[A-Za-z0-9]{20,} | \bgithub_pat_\w{20,} | \bglpat-[\w-]{16,}
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b
    | \bAIza[\w-]{30,}
    | \beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}                                # JSON web tokens
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----.*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|\Z)
    """,
    re.VERBOSE | re.DOTALL,
)
_NAMED = re.compile(
    r"(?P<before>\b(?:password|passwd|passphrase|secret|api[_ -]?key|access[_ -]?token|token|pin)\b\s*(?:is|=|:)\s*)"
    r"(?P<value>\"[^\"]+\"|'[^']+'|\S+)",
    re.IGNORECASE,
)
_USER_INFO = re.compile(r"(?P<before>\b[a-z][a-z0-9+.-]*://[^\s:/@]+):[^\s@/]+@")


def redacted(text: str) -> str:
    """The text without what looks like a password, a key or a token."""
    text = _SHAPES.sub(HIDDEN, text)
    text = _USER_INFO.sub(rf"\g<before>:{HIDDEN}@", text)
    return _NAMED.sub(rf"\g<before>{HIDDEN}", text)

"""Redact secrets in texts, in linear time, before they are logged or stored.

Registered secrets are found anywhere; others by their shape, their name or their position in a URL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

HIDDEN = "***"
SHORTEST_SECRET = 4
"""Shorter strings occur in ordinary words, so they are redacted in URLs only."""
MARGIN = 4_096
"""Characters read beyond a cut, so that a secret at the edge is recognised as a whole.
A private key has about that many."""

_SHAPES = re.compile(
    r"""
    (?<![A-Za-z0-9])(?:
      (?:sk|pk|rk)[-_][A-Za-z0-9_-]{8,}+  # model providers, payment services
    | xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9%-]{6,}+ | xapp-[A-Za-z0-9-]{6,}+  # Slack
    | hf[tsc]_[\w-]{16,}+  # our own tokens, sessions and login codes
    | gh[a-z]_[A-Za-z0-9]{16,}+ | github_pat_\w{16,}+ | glpat-[\w-]{16,}+
    | (?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])
    | AIza[\w-]{30,}+
    | (?<![\w-])eyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+)?  # JSON web tokens
    | [0-9]{6,12}:[A-Za-z0-9_-]{30,}+  # Telegram bots
    | (?i:bearer)[ ][A-Za-z0-9._~+/=-]{8,}+
    )
    | -----BEGIN[ ][A-Z ]{0,40}PRIVATE[ ]KEY-----.*?(?:-----END[ ][A-Z ]{0,40}PRIVATE[ ]KEY-----|\Z)
    """,
    re.VERBOSE | re.DOTALL,
)
_PROVIDER_KEY = re.compile(r"(?:sk|pk|rk)[-_]")
_RANDOM = re.compile(r"[0-9]|[A-Za-z]{16}")
_NAMES = r"password|passwd|passphrase|passfile|sslpassword|secret|api[_ -]?key|token|authorization"
_VALUE = r"""(?P<quote>["']?)(?:(?:bearer|basic)\ )?(?:(?<=")[^"\n]++|(?<=')[^'\n]++|[^\s&'"]++)"""
# "SLACK_BOT_TOKEN: Slack refuses it" is a sentence. A plain word after a colon is hidden only after
# the name of a password.
_WORD = (
    r"(?<=:\ )(?<!password:\ )(?<!passwd:\ )(?<!passphrase:\ )"
    r"(?!(?:bearer|basic)\ )[a-z]++(?:[\s.,;:!?]|\Z)"
)
_NAMED = re.compile(
    rf"""(?<![A-Za-z0-9])(?P<before>(?:{_NAMES})(?![A-Za-z0-9_])["']?\ {{0,8}}[=:]\ {{0,8}})
    (?!{_WORD}){_VALUE}""",
    re.VERBOSE | re.IGNORECASE,
)
_NAMED_IN_PROSE = re.compile(
    rf"""(?<![A-Za-z0-9])(?P<before>(?:{_NAMES}|pin)(?![A-Za-z0-9_])\s{{0,8}}(?:is|=|:)\s{{0,8}})
    {_VALUE}""",
    re.VERBOSE | re.IGNORECASE,
)
_USER = re.compile(r"://[^\s:/@]*+:(?!password@)")
_WHITESPACE = re.compile(r"\s")
_QUERY = re.compile(r"[?&](?:ssl)?password=([^&\s]+)")

Span = tuple[int, int]
"""Start and end of a secret in a text."""

_secrets: list[str] = []


def hide(text: str) -> None:
    """Register a secret, or the passwords of a URL, to be redacted from now on."""
    found = [text[start:end] for start, end in _find_passwords(text)] + _QUERY.findall(text)
    for secret in found if "://" in text else [text]:
        for form in (secret, unquote(secret)):
            if len(form) >= SHORTEST_SECRET and form not in _secrets:
                _secrets.append(form)
    # Longest first: a secret may be part of a longer one.
    _secrets.sort(key=len, reverse=True)


def redact(text: str) -> str:
    """Replace registered secrets, and strings that look like secrets, by HIDDEN."""
    # Find all secrets in the original text. If they were replaced one after another, a short one
    # inside a longer one would keep the longer one from being found.
    text = _cover(text, [*_find_known(text), *_find_shapes(text), *_find_passwords(text)])
    return _NAMED.sub(rf"\g<before>\g<quote>{HIDDEN}", text)


def redact_prose(text: str) -> str:
    """Redact a text that people wrote, also sentences such as "the password is hunter2"."""
    return _NAMED_IN_PROSE.sub(rf"\g<before>\g<quote>{HIDDEN}", redact(text))


def redact_start(text: str, limit: int) -> str:
    """Return the first `limit` characters, redacted. The time does not grow with the text."""
    if len(text) <= limit:
        return redact(text)
    kept = redact(text[: limit + MARGIN])[:limit]
    return f"{kept}… ({len(text) - limit:,} more characters)"


def redact_end(text: str, limit: int) -> str:
    """Return the last `limit` characters, redacted: the end of a traceback names the error."""
    if len(text) <= limit:
        return redact(text)
    return f"…{redact(text[-limit - MARGIN :])[-limit:]}"


def _find_known(text: str) -> Iterator[Span]:
    """Find the secrets that `hide` registered."""
    for secret in _secrets:
        at = text.find(secret)
        while at >= 0:
            yield at, at + len(secret)
            at = text.find(secret, at + len(secret))


def _find_shapes(text: str) -> Iterator[Span]:
    """Find keys by their shape. Names such as sk-learn-contrib are no keys."""
    for found in _SHAPES.finditer(text):
        if not _PROVIDER_KEY.match(found[0]) or _RANDOM.search(found[0]):
            yield found.span()


def _cover(text: str, spans: list[Span]) -> str:
    """Replace each run of overlapping spans by HIDDEN."""
    pieces: list[str] = []
    kept_from = 0
    for start, end in sorted(spans):
        if start >= kept_from:
            pieces += (text[kept_from:start], HIDDEN)
        kept_from = max(kept_from, end)
    return "".join([*pieces, text[kept_from:]]) if pieces else text


def _find_passwords(text: str) -> Iterator[Span]:
    """Find the passwords of URLs.

    They may contain `@` and `/`, so each ends at the last `@` of its word."""
    at = 0
    for user in _USER.finditer(text):
        if user.start() < at:
            continue
        space = _WHITESPACE.search(text, user.end())
        at = space.start() if space else len(text)
        end = text.rfind("@", user.end() + 1, at)
        if end >= 0:
            yield user.end(), end

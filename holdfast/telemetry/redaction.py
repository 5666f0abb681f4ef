"""Take secrets out of texts before they are logged, stored as errors or remembered, in linear time.

Known secrets are found anywhere; others by their shape, their name or their position in a URL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

HIDDEN = "***"
SHORTEST_SECRET = 4
"""Shorter ones occur in ordinary words; in a URL they are hidden all the same."""
SLACK = 4_096
"""Characters read beyond a cut, so that a secret at its edge is still recognised as a whole:
a private key has that many."""

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
_SENTENCE = re.compile(
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
    """Hide this secret, or the password of this URL, in all texts from now on."""
    found = [text[start:end] for start, end in _find_passwords(text)] + _QUERY.findall(text)
    for secret in found if "://" in text else [text]:
        for form in (secret, unquote(secret)):
            if len(form) >= SHORTEST_SECRET and form not in _secrets:
                _secrets.append(form)
    # A secret may be a part of a longer one.
    _secrets.sort(key=len, reverse=True)


def redact(text: str) -> str:
    """Return the text without secrets: registered ones, and strings that look like one."""
    # Search the original text for all of them: a secret inside another must not hide the longer one
    # from the search.
    text = _cover(text, [*_find_known(text), *_find_shapes(text), *_find_passwords(text)])
    return _NAMED.sub(rf"\g<before>\g<quote>{HIDDEN}", text)


def redact_prose(text: str) -> str:
    """Redact a text of people, in which "the password is hunter2" counts, too."""
    return _SENTENCE.sub(rf"\g<before>\g<quote>{HIDDEN}", redact(text))


def redact_start(text: str, limit: int) -> str:
    """Redact at most the first `limit` characters; a text of any length takes bounded time."""
    if len(text) <= limit:
        return redact(text)
    kept = redact(text[: limit + SLACK])[:limit]
    return f"{kept}… ({len(text) - limit:,} more characters)"


def redact_end(text: str, limit: int) -> str:
    """Redact at most the last `limit` characters: the end of a traceback says what happened."""
    if len(text) <= limit:
        return redact(text)
    return f"…{redact(text[-limit - SLACK :])[-limit:]}"


def _find_known(text: str) -> Iterator[Span]:
    """Find the secrets that `hide` was called with."""
    for secret in _secrets:
        at = text.find(secret)
        while at >= 0:
            yield at, at + len(secret)
            at = text.find(secret, at + len(secret))


def _find_shapes(text: str) -> Iterator[Span]:
    """Find keys by their shape, but not names such as sk-learn-contrib."""
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

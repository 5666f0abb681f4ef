"""Take secrets out of texts before they are logged, stored as errors or remembered, in linear time.

Known secrets are found wherever they stand; others by their shape, their name or their place in a URL.
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
      (?:sk|pk|rk)[-_][A-Za-z0-9_-]{8,}+                                  # model providers, payment services
    | xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9%-]{6,}+ | xapp-[A-Za-z0-9-]{6,}+  # Slack
    | hf[tsc]_[\w-]{16,}+                                                 # our own tokens, sessions and login codes
    | gh[a-z]_[A-Za-z0-9]{16,}+ | github_pat_\w{16,}+ | glpat-[\w-]{16,}+
    | (?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])
    | AIza[\w-]{30,}+
    | (?<![\w-])eyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+)?                   # JSON web tokens
    | [0-9]{6,12}:[A-Za-z0-9_-]{30,}+                                     # Telegram bots
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
# "SLACK_BOT_TOKEN: Slack refuses it" is a sentence. A plain word after a colon is hidden only if a password is named.
_WORD = r"(?<=:\ )(?<!password:\ )(?<!passwd:\ )(?<!passphrase:\ )(?!(?:bearer|basic)\ )[a-z]++(?:[\s.,;:!?]|\Z)"
_NAMED = re.compile(
    rf"""(?<![A-Za-z0-9])(?P<before>(?:{_NAMES})(?![A-Za-z0-9_])["']?\ {{0,8}}[=:]\ {{0,8}})(?!{_WORD}){_VALUE}""",
    re.VERBOSE | re.IGNORECASE,
)
_SAID = re.compile(
    rf"""(?<![A-Za-z0-9])(?P<before>(?:{_NAMES}|pin)(?![A-Za-z0-9_])\s{{0,8}}(?:is|=|:)\s{{0,8}}){_VALUE}""",
    re.VERBOSE | re.IGNORECASE,
)
_USER = re.compile(r"://[^\s:/@]*+:(?!password@)")
_WHITESPACE = re.compile(r"\s")
_QUERY = re.compile(r"[?&](?:ssl)?password=([^&\s]+)")

_secrets: list[str] = []


def hide(text: str) -> None:
    """From now on hide this secret, or the password of this URL, wherever it stands."""
    found = [text[start:end] for start, end in _passwords(text)] + _QUERY.findall(text)
    for secret in found if "://" in text else [text]:
        for form in (secret, unquote(secret)):
            if len(form) >= SHORTEST_SECRET and form not in _secrets:
                _secrets.append(form)
    # A secret may be a part of a longer one.
    _secrets.sort(key=len, reverse=True)


def redact(text: str) -> str:
    """Return the text without secrets: those that were named, and what looks like one."""
    for secret in _secrets:
        text = text.replace(secret, HIDDEN)
    text = _SHAPES.sub(_unless_a_word, text)
    text = _without_passwords(text)
    return _NAMED.sub(rf"\g<before>\g<quote>{HIDDEN}", text)


def redact_prose(text: str) -> str:
    """Like `redact`, for what people say: "the password is hunter2" counts, too."""
    return _SAID.sub(rf"\g<before>\g<quote>{HIDDEN}", redact(text))


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


def _unless_a_word(found: re.Match[str]) -> str:
    """Hide a key, but not a name such as sk-learn-contrib."""
    text = found[0]
    is_word = _PROVIDER_KEY.match(text) and not _RANDOM.search(text)
    return text if is_word else HIDDEN


def _without_passwords(text: str) -> str:
    pieces: list[str] = []
    at = 0
    for start, end in _passwords(text):
        pieces += (text[at:start], HIDDEN)
        at = end
    return "".join([*pieces, text[at:]]) if pieces else text


def _passwords(text: str) -> Iterator[tuple[int, int]]:
    """Find the passwords of URLs: they may contain `@` and `/`, so each goes to the last `@` of its word."""
    at = 0
    for user in _USER.finditer(text):
        if user.start() < at:
            continue
        space = _WHITESPACE.search(text, user.end())
        at = space.start() if space else len(text)
        end = text.rfind("@", user.end() + 1, at)
        if end >= 0:
            yield user.end(), end

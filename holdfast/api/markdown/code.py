"""Highlighted code, within a time budget: some lexers take quadratic time."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import cache
from html import escape
from typing import Any

from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
from pygments.token import STANDARD_TYPES, Token  # type: ignore[import-untyped]

LONGEST_CODE = 16 * 1024
"""Characters of a block that is highlighted."""
LONGEST_LINE = 500
"""Longest line of such a block: most slow lexers are slow on long lines."""
CPU_SECONDS = 0.25
"""CPU time for highlighting one text. The block that exceeds it and later ones stay plain."""

LANGUAGES = frozenset({
    "bash", "c", "clojure", "console", "cpp", "csharp", "css", "dart", "diff", "docker", "elixir",
    "erlang", "go", "graphql", "haskell", "html", "ini", "java", "javascript", "json", "julia",
    "kotlin", "latex", "lua", "markdown", "matlab", "nginx", "objective-c", "perl", "php",
    "postgresql", "powershell", "protobuf", "pycon", "python", "pytb", "r", "ruby", "rust",
    "scala", "scss", "sql", "swift", "toml", "typescript", "vim", "xml", "yaml", "zig",
})  # fmt: skip
"""Languages whose lexers were tried with hostile texts: no single step of theirs takes long."""
ALIASES = {
    "c++": "cpp", "c#": "csharp", "cs": "csharp", "dockerfile": "docker", "golang": "go",
    "h": "c", "hs": "haskell", "js": "javascript", "jsx": "javascript", "kt": "kotlin",
    "md": "markdown", "objc": "objective-c", "plpgsql": "postgresql", "ps1": "powershell",
    "pwsh": "powershell", "py": "python", "python3": "python", "rb": "ruby", "rs": "rust",
    "sh": "bash", "shell": "bash", "shell-session": "console", "svg": "xml", "tex": "latex",
    "ts": "typescript", "tsx": "typescript", "yml": "yaml", "zsh": "bash",
}  # fmt: skip
NAME = re.compile(r"[A-Za-z0-9+#._-]{1,30}")
CLASSES = frozenset(f"hl-{name}" for name in STANDARD_TYPES.values() if name)


class Highlighter:
    """Renders the code of one text."""

    def __init__(self) -> None:
        self._left = CPU_SECONDS

    def block(self, code: str, info: str) -> str:
        """Return a block of code as HTML. `info` is what follows the fence."""
        found = NAME.match(info.strip())
        name = "" if found is None else found[0].lower()
        language = ALIASES.get(name, name)
        inner = self._highlight(code, language) if language in LANGUAGES else None
        if inner is None:
            inner = escape(code, quote=False)
        shown = f' data-language="{escape(language)}"' if language else ""
        return f'<pre class="code"{shown}><code>{inner}</code></pre>\n'

    def _highlight(self, code: str, language: str) -> str | None:
        """Return highlighted code, None if it is too long or takes too long."""
        if self._left <= 0 or len(code) > LONGEST_CODE:
            return None
        if max(map(len, code.split("\n"))) > LONGEST_LINE:
            return None
        began_at = time.thread_time()
        pieces: list[str] = []
        for piece in _pieces(_lexer(language), code):
            pieces.append(piece)
            if time.thread_time() - began_at > self._left:
                self._left = 0
                return None
        self._left -= time.thread_time() - began_at
        return "".join(pieces)


def _pieces(lexer: Any, code: str) -> Iterator[str]:
    for kind, text in lexer.get_tokens(code):
        name = _class(kind)
        shown = escape(text, quote=False)
        yield f'<span class="hl-{name}">{shown}</span>' if name and text.strip() else shown


@cache
def _class(kind: Any) -> str:
    """Return the short name of a kind of token, or that of the next wider kind."""
    while kind is not Token and kind not in STANDARD_TYPES:
        kind = kind.parent
    return str(STANDARD_TYPES.get(kind, ""))


@cache
def _lexer(language: str) -> Any:
    # The text stays as it is: no stripped lines, no added end of line, no guessed encoding.
    return get_lexer_by_name(language, stripnl=False, ensurenl=False)

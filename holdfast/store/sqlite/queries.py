"""Named SQL statements, read from the .sql files beside this module."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from holdfast.errors import HoldfastError

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


@cache
def load(folder: Path = Path(__file__).parent) -> dict[str, str]:
    """All statements by name; a name is given once."""
    queries: dict[str, str] = {}
    for file in sorted(folder.glob("*.sql")):
        for name, body in parse(file.read_text(encoding="utf-8")):
            if name in queries:
                raise HoldfastError(f"the query {name} is defined twice, again in {file.name}")
            queries[name] = body
    return queries


def parse(text: str) -> list[tuple[str, str]]:
    """The `-- name: x` sections of a file; what stands before the first is a comment."""
    parts = _NAME.split(text)[1:]
    return [(name, body.strip()) for name, body in zip(parts[::2], parts[1::2], strict=True)]

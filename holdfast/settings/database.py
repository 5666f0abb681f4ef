"""Database URLs: which store they mean, without ever repeating a password."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.errors import HoldfastError

_USER = r"(?:[^:@/?#\s]*(?::[^@/?#\s]*)?@)?"
_HOST = r"(?:\[[^\]\s]*\]|[^:@/?#,\[\]\s]*)(?::[0-9]*)?"
_POSTGRES = re.compile(rf"\Apostgres(?:ql)?://{_USER}{_HOST}(?:,{_HOST})*(?:/[^@?#\s]*)?(?:\?\S*)?")


def sqlite_path(url: str) -> Path | None:
    """The file a database URL names, None for PostgreSQL; anything else is refused."""
    if url.startswith(("postgresql://", "postgres://")):
        if not _POSTGRES.fullmatch(url):
            # Else a part of the password would be taken for a host or a port, and named in the error.
            raise HoldfastError(
                "the database URL cannot be read: expected postgresql://user:password@host:port/database with special"
                " characters percent-encoded (@ is %40, / is %2F)"
            )
        return None
    scheme, path = url[: len("sqlite:///")], url[len("sqlite:///") :]
    if scheme != "sqlite:///" or path in ("", ":memory:"):
        # The URL itself is not repeated: a mistyped one may hold a password.
        raise HoldfastError(
            "a database URL is sqlite:///path/to/file.db or postgresql://user:password@host/database"
        )
    return Path(path).expanduser()

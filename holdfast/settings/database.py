"""Parse database URLs without ever repeating a password."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.errors import HoldfastError

_USER = r"(?:[^:@/?#\s]*(?::[^@/?#\s]*)?@)?"
_HOST = r"(?:\[[^\]\s]*\]|[^:@/?#,\[\]\s]*)(?::[0-9]*)?"
_POSTGRES = re.compile(rf"\Apostgres(?:ql)?://{_USER}{_HOST}(?:,{_HOST})*(?:/[^@?#\s]*)?(?:\?\S*)?")


INVALID_URL = (
    "the database URL is invalid: expected postgresql://user:password@host:port/database"
    " with special characters percent-encoded (@ is %40, / is %2F)"
)
UNKNOWN_URL = (
    "a database URL is sqlite:///path/to/file.db or postgresql://user:password@host/database"
)


def sqlite_path(url: str) -> Path | None:
    """Return the file of a SQLite URL, None for PostgreSQL; refuse any other URL."""
    if url.startswith(("postgresql://", "postgres://")):
        if not _POSTGRES.fullmatch(url):
            # libpq would take a part of the password for a host, and name it in its error.
            raise HoldfastError(INVALID_URL)
        return None
    scheme, path = url[: len("sqlite:///")], url[len("sqlite:///") :]
    if scheme != "sqlite:///" or path in ("", ":memory:"):
        # Do not repeat the URL: a mistyped one may hold a password.
        raise HoldfastError(UNKNOWN_URL)
    return Path(path).expanduser()

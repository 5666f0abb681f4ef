"""A copy of a SQLite database that is whole, taken while others read and write it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from holdfast.errors import HoldfastError


def back_up(database: Path, target: Path, *, replace: bool = False) -> int:
    """Write a checked copy, its owner's alone, and give it its name when it is whole. Returns its size in bytes."""
    if not database.exists():
        raise HoldfastError(f"there is no database {database}")
    if target.exists() and not replace:
        raise HoldfastError(f"{target} is there already: --force writes over it")
    draft = target.with_name(f".{target.name}-{os.getpid()}.part")
    try:
        # An empty file may be written into, and this one has its mode from the beginning.
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        _copy(database, draft)
        _check(draft)
        _flush(draft)
        os.replace(draft, target)
        _flush(target.parent)
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise HoldfastError(f"the back-up {target} cannot be written: {reason}") from error
    finally:
        with suppress(OSError):
            draft.unlink()
    return target.stat().st_size


def _copy(database: Path, draft: Path) -> None:
    """Copy one snapshot. Rows that were deleted are not in the copy, nor is their free space."""
    with closing(
        sqlite3.connect(f"{database.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None)
    ) as connection:
        connection.execute("vacuum into ?", (str(draft),))


def _check(draft: Path) -> None:
    with closing(sqlite3.connect(f"{draft.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        [answer] = connection.execute("pragma integrity_check(1)").fetchone()
    if answer != "ok":
        raise HoldfastError(
            f"the copy is damaged ({answer}); run `pragma integrity_check` on the database itself"
        )


def _flush(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

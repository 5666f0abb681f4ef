"""Files that are sent along lie below one folder, wherever a path or a link may point."""

from __future__ import annotations

from pathlib import Path


def place(root: Path, name: str) -> Path | None:
    """Where a path leads, be there a file or not; None where that is not below the folder."""
    try:
        folder = root.resolve()
        # Links are followed first: what counts is where the file is.
        path = (folder / name).resolve()
    except (OSError, ValueError, RuntimeError):
        # A name that no file can have, or links in a circle.
        return None
    return path if folder in path.parents else None


def below(root: Path, name: str) -> str | None:
    """The path of a file relative to the folder; None where there is no such file, or it lies elsewhere."""
    path = place(root, name)
    try:
        return path.relative_to(root.resolve()).as_posix() if path is not None and path.is_file() else None
    except OSError:
        return None

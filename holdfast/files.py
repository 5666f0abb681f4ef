"""Files that are sent along lie below one folder, wherever a path or a link may point."""

from __future__ import annotations

from pathlib import Path


def below(root: Path, name: str) -> str | None:
    """The path of a file relative to the folder; None where there is no such file, or it lies elsewhere."""
    try:
        folder = root.resolve()
        # Links are followed first: what counts is where the file is.
        path = (folder / name).resolve(strict=True)
        is_ours = path.is_file() and path.is_relative_to(folder)
    except (OSError, ValueError, RuntimeError):
        # No such file, a name that no file can have, or links in a circle.
        return None
    return path.relative_to(folder).as_posix() if is_ours else None

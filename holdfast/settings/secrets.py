"""Files that hold secrets of ours: the home folder, the database, .env and the settings themselves."""

from __future__ import annotations

from pathlib import Path

from holdfast.settings.database import sqlite_path
from holdfast.settings.fields import Settings
from holdfast.settings.secret_files import secret_files

DATABASE_FILES = ("", "-wal", "-shm", "-journal", ".lock")
"""Endings of the files of a SQLite database."""


def secret_paths(settings: Settings) -> tuple[Path, ...]:
    """List the files and folders that programs of others must not see."""
    config = settings.model_config.get("toml_file")
    files = [Path(".env").absolute(), *database_files(settings), *secret_files()]
    if isinstance(config, Path):
        files += [config.absolute(), config.absolute().with_name(".env")]
    return (settings.home, *dict.fromkeys(files))


def exposed_paths(settings: Settings) -> list[Path]:
    """List what other users of the machine may read or write of the home, the tokens and the database."""
    tokens = sorted(settings.home.glob("*token*"))
    found = [path for path in (settings.home, *tokens, *database_files(settings)) if path.exists()]
    # Passing through a folder is harmless: it takes the name of a file that is open itself.
    return [path for path in found if path.stat().st_mode & (0o066 if path.is_dir() else 0o077)]


def database_files(settings: Settings) -> list[Path]:
    """List the files of a SQLite database, whether or not they exist; none for PostgreSQL."""
    path = sqlite_path(settings.database)
    return [] if path is None else [Path(f"{path.absolute()}{ending}") for ending in DATABASE_FILES]

"""Find the files that hold our secrets: home folder, database, .env and settings."""

from __future__ import annotations

from pathlib import Path

from holdfast.settings.database import sqlite_path
from holdfast.settings.fields import Settings
from holdfast.settings.secret_files import secret_files

DATABASE_FILES = ("", "-wal", "-shm", "-journal", ".lock")
"""Suffixes of the files of a SQLite database."""


def secret_paths(settings: Settings) -> tuple[Path, ...]:
    """Return the files and folders that child programs must not see."""
    config = settings.model_config.get("toml_file")
    files = [Path(".env").absolute(), *database_files(settings), *secret_files()]
    if isinstance(config, Path):
        files += [config.absolute(), config.absolute().with_name(".env")]
    # Each program gets its own workspace, and must not see those of others.
    return (settings.home, settings.workspace_folder, *dict.fromkeys(files))


def exposed_paths(settings: Settings) -> list[Path]:
    """Return those of home, tokens and database that other users can read or write."""
    tokens = sorted(settings.home.glob("*token*"))
    paths = [path for path in (settings.home, *tokens, *database_files(settings)) if path.exists()]
    # Entering a folder is harmless: one still needs a file inside that is open to others.
    return [path for path in paths if path.stat().st_mode & (0o066 if path.is_dir() else 0o077)]


def database_files(settings: Settings) -> list[Path]:
    """Return the files of a SQLite database, existing or not; none for PostgreSQL."""
    path = sqlite_path(settings.database)
    return [] if path is None else [Path(f"{path.absolute()}{ending}") for ending in DATABASE_FILES]

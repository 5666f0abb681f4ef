"""Migrate a database to this version of Holdfast: all of it in one transaction, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import __version__
from holdfast.errors import MigrationError
from holdfast.migrations.script import Migration, Report, log_wait, read_scripts
from holdfast.settings import sqlite_path

if TYPE_CHECKING:
    from holdfast.migrations.postgres import Connection

__all__ = ["LOCK_INTERVAL", "SCRIPTS", "Report", "create_schema", "migrate"]

SCRIPTS = Path(__file__).parent
LOCK_INTERVAL = timedelta(seconds=10)


def migrate(
    url: str,
    *,
    dry_run: bool = False,
    scripts: Path = SCRIPTS,
    version: str = __version__,
    on_step: Callable[[str], None] | None = None,
    on_wait: Callable[[str], None] | None = None,
    lock_interval: timedelta = LOCK_INTERVAL,
) -> Report:
    """Bring the database at `url` to `version`. Raises MigrationError; then nothing was changed.

    `on_step` is called as each step begins. The steps take effect only if this function returns.
    `on_wait` is called when the migration has to wait for others; by default, that is logged."""
    path = sqlite_path(url)
    migration = Migration(
        version=version,
        incremental=read_scripts(scripts / ("incremental" if path is None else "sqlite")),
        idempotent=read_scripts(scripts / "idempotent") if path is None else (),
        dry_run=dry_run,
        lock_interval=lock_interval,
        on_step=on_step or _ignore,
        on_wait=on_wait or log_wait,
    )
    _require_scripts(migration, scripts)
    # Imported here, so that either engine works without the driver of the other.
    if path is None:
        from holdfast.migrations.postgres import migrate_postgres

        return migrate_postgres(url, migration)
    from holdfast.migrations.sqlite import migrate_sqlite

    return migrate_sqlite(path, migration)


def create_schema(connection: Connection) -> None:
    """Create schema agent in the open transaction of a connection to PostgreSQL."""
    from holdfast.migrations.postgres import apply

    migration = Migration(
        version=__version__,
        incremental=read_scripts(SCRIPTS / "incremental"),
        idempotent=read_scripts(SCRIPTS / "idempotent"),
        dry_run=False,
        lock_interval=LOCK_INTERVAL,
        on_step=_ignore,
        on_wait=log_wait,
    )
    _require_scripts(migration, SCRIPTS)
    apply(connection, migration, None)


def _require_scripts(migration: Migration, scripts: Path) -> None:
    if not migration.incremental and not migration.idempotent:
        raise MigrationError(f"no scripts in {scripts}: this installation is incomplete")


def _ignore(_step: str) -> None:
    pass

"""Ordered scripts and versions, and the scripts that a database still needs."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from holdfast.errors import MigrationError

logger = logging.getLogger("holdfast.migrations")

_NAME = re.compile(r"\A[0-9]{3}-[A-Za-z0-9][A-Za-z0-9_.-]*\.sql")
_VERSION = re.compile(r"([0-9]+(?:\.[0-9]+)*)(?:\.?(dev|a|b|rc)([0-9]+))?")
_STAGES = ("dev", "a", "b", "rc", None)


@dataclass(frozen=True, slots=True)
class Script:
    """One file of SQL; reports and errors name it by its `label`."""

    folder: str
    file_name: str
    body: str

    @property
    def label(self) -> str:
        return f"{self.folder}/{self.file_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The steps of a migration, done or, in a dry run, to be done.

    `found` is the version before, None for a new database."""

    found: str | None
    version: str
    dry_run: bool = False
    incremental: tuple[str, ...] = ()
    idempotent: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def due(self) -> bool:
        return self.found is None or version_key(self.found) < version_key(self.version)

    def with_warnings(self, *warnings: str) -> Report:
        """Log warnings and add them to the report."""
        for warning in warnings:
            logger.warning(warning)
        return replace(self, warnings=self.warnings + warnings)


def log_wait(reason: str) -> None:
    logger.warning(f"migration: {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """The request for a migration: the version to reach, its scripts, and options."""

    version: str
    incremental: Sequence[Script]
    idempotent: Sequence[Script] = ()
    dry_run: bool
    lock_interval: timedelta
    on_step: Callable[[str], None]
    on_wait: Callable[[str], None]

    def is_due(self, found: str | None) -> bool:
        """Return whether a database at version `found` needs migrating; refuse a newer one."""
        if found is None:
            return True
        if version_key(found) > version_key(self.version):
            raise MigrationError(
                f"the database is at version {found}, newer than this Holdfast ({self.version}): "
                f"install Holdfast {found} or later"
            )
        return version_key(found) < version_key(self.version)

    def missing(self, applied: Mapping[str, str]) -> list[Script]:
        return [script for script in self.incremental if script.file_name not in applied]

    def report(self, found: str | None, applied: Mapping[str, str]) -> Report:
        """Return the steps for a database that has `applied` (bodies by file name)."""
        warnings = tuple(_differences(self.incremental, applied))
        for warning in warnings:
            logger.warning(warning)
        return Report(
            found=found,
            version=self.version,
            dry_run=self.dry_run,
            incremental=tuple(script.label for script in self.missing(applied)),
            idempotent=tuple(script.label for script in self.idempotent),
            warnings=warnings,
        )

    def nothing(self, found: str | None) -> Report:
        return Report(found=found, version=self.version, dry_run=self.dry_run)


def read_scripts(folder: Path) -> list[Script]:
    """Read the scripts of a folder: 000-name.sql, 001-name.sql and so on, without a gap."""
    if not folder.is_dir():
        return []
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() == ".sql")
    return [_read_script(path, number) for number, path in enumerate(paths)]


def version_key(version: str) -> tuple[tuple[int, ...], int, int]:
    """Return a sort key of versions: 0.9 < 0.10.dev1 < 0.10rc1 < 0.10 = 0.10.0."""
    match = _VERSION.fullmatch(version)
    if match is None:
        raise MigrationError(
            f"{version!r} is not a version that can be compared, expected one like 1.2.3"
        )
    numbers = [int(number) for number in match[1].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers), _STAGES.index(match[2]), int(match[3] or 0)


def one_line(text: object) -> str:
    return " ".join(str(text).split())


def _read_script(path: Path, number: int) -> Script:
    label = f"{path.parent.name}/{path.name}"
    if not _NAME.fullmatch(path.name):
        raise MigrationError(f"{label}: a script must be named NNN-name.sql, with three digits")
    if int(path.name[:3]) != number:
        raise MigrationError(
            f"{label}: scripts count from 000 without a gap, so number {number:03d} must come here"
        )
    try:
        return Script(path.parent.name, path.name, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise MigrationError(f"{label} cannot be read: {one_line(error)}") from error


def _differences(scripts: Sequence[Script], applied: Mapping[str, str]) -> list[str]:
    no_effect = "was changed after it was applied; the change has no effect on this database"
    changed = [
        f"{script.label} {no_effect}"
        for script in scripts
        if script.file_name in applied and applied[script.file_name] != script.body
    ]
    known = {script.file_name for script in scripts}
    gone = [name for name in applied if name not in known]
    return changed + [
        f"{name} was applied to this database, but is not among the scripts" for name in gone
    ]

"""Move a whole database to another engine or server: lock, copy, verify, switch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from holdfast.errors import HoldfastError
from holdfast.migrations.runner import migrate
from holdfast.settings import sqlite_path
from holdfast.store.transfer.database import (
    COPYING,
    DONE,
    DRAINING,
    Database,
    Source,
    State,
    Target,
    public_name,
    refuse_contents,
    shared_tables,
)
from holdfast.store.transfer.tables import COUNTERS, TABLES, Table
from holdfast.store.transfer.values import Digest, Fitter, Row, size_of

BATCH_ROWS = 5000
BATCH_BYTES = 8 * 1024**2
WAIT_FOR_TURNS = timedelta(minutes=1)
POLL_SECONDS = 0.1
LONGEST_KEY = 100
COMPLETE = "the target is complete: run the move again to finish it"

OnProgress = Callable[[str, int, int], None]
"""Called with the name of a step, the rows done so far, and the rows of all tables."""


@dataclass(frozen=True, slots=True)
class MovedTable:
    """A table that both databases hold alike; `hash` is None in a dry run."""

    name: str
    rows: int
    hash: str | None = None


@dataclass(slots=True, kw_only=True)
class MoveReport:
    """The result of a move, or of a dry run. `replaced` counts values that the target could not
    hold as they were."""

    source: str
    target: str
    dry_run: bool
    resumed: bool = False
    replaced: int = 0
    seconds: float = 0.0
    tables: list[MovedTable] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)


def move(
    source_url: str,
    target_url: str,
    *,
    dry_run: bool = False,
    wait: timedelta = WAIT_FOR_TURNS,
    on_progress: OnProgress = lambda step, done, total: None,
    batch_rows: int = BATCH_ROWS,
) -> MoveReport:
    """Move everything from one database to another. Raises HoldfastError; then nothing changed.

    A killed move continues where it stopped. `wait` is the longest wait for running turns."""
    since = time.monotonic()
    _refuse_same(source_url, target_url)
    _check_source(source_url)
    with closing(_open_source(source_url)) as source:
        condition = _check_target(source, target_url)
        if dry_run:
            return _preview(source, target_url)
        run = _Move(source, target_url, condition, wait, on_progress, batch_rows)
        try:
            report = run.run()
        except (Exception, KeyboardInterrupt) as error:
            failure = _undone(run, source, target_url, error)
            if failure is error:
                raise
            raise failure from error
    report.seconds = time.monotonic() - since
    return report


def undo_move(source_url: str, target_url: str) -> None:
    """Give up a move that was killed: empty the target, then unlock the source."""
    _refuse_same(source_url, target_url)
    _check_source(source_url)
    with closing(_open_source(source_url)) as source:
        state = source.state("source")
        if state is None or state.phase == DONE:
            raise HoldfastError(f"there is no unfinished move from {source.name}")
        _wipe(target_url, state.id)
        source.unlock()


@dataclass(frozen=True, slots=True)
class _Condition:
    """The condition of a target: whether it has a schema, and whether a killed move filled it."""

    is_new: bool = False
    is_complete: bool = False


class _Move:
    """One run of a move: it begins, or continues one that was killed."""

    def __init__(
        self,
        source: Source,
        target_url: str,
        condition: _Condition,
        wait: timedelta,
        on_progress: OnProgress,
        batch_rows: int,
    ) -> None:
        self._source = source
        self._batch_rows = batch_rows
        self._target_url = target_url
        self._condition = condition
        self._wait = wait
        self._on_progress = on_progress
        self._done = self._total = 0
        self._fitter = Fitter()
        self.is_published = condition.is_complete

    def run(self) -> MoveReport:
        found = self._source.state("source")
        state = found or State(id=uuid4().hex, peer=public_name(self._target_url))
        if state.phase == DRAINING:
            self._drain(state)
            state.phase = COPYING
            self._source.lock(state)
        tables = self._count() if self.is_published else self._fill(state.id)
        state.phase = DONE
        self._source.mark_moved(state)
        return MoveReport(
            source=self._source.name,
            target=public_name(self._target_url),
            dry_run=False,
            resumed=found is not None,
            replaced=self._fitter.replaced,
            tables=tables,
        )

    def _drain(self, state: State) -> None:
        """Refuse new work, and wait until the running turns have ended."""
        self._source.refuse_new_work(state)
        give_up_at = time.monotonic() + self._wait.total_seconds()
        while running := self._source.running_turns():
            if time.monotonic() > give_up_at:
                raise HoldfastError(
                    f"{running} turns are still running on the source: stop its processes,"
                    " or wait longer with --wait"
                )
            self._on_progress(f"waiting for {running} running turns", 0, 0)
            time.sleep(POLL_SECONDS)

    def _count(self) -> list[MovedTable]:
        return [MovedTable(table.name, self._source.count(table)) for table in TABLES]

    def _fill(self, id_: str) -> list[MovedTable]:
        """Copy the rows that are missing, compare all, and let processes use the target."""
        state = State(id=id_, peer=self._source.name, phase=COPYING)
        state.created = self._condition.is_new
        with closing(_open_target(self._target_url)) as target:
            state = target.begin(state)
            tables = shared_tables(self._source, target)
            # Every row is read three times: to copy it, and from both databases to compare.
            self._total = 3 * sum(self._source.count(table) for table in tables)
            for table in tables:
                self._copy(table, target, state)
            target.finish(self._source.counters(), state)
            verified = self._verify(target, tables)
            state.phase = DONE
            target.publish(state)
            self.is_published = True
        return verified

    def _copy(self, table: Table, target: Target, state: State) -> None:
        if table.name in state.cursors:
            self._advance(f"copying {table.name}", target.count(table))
        # Closed at once if a write fails: an open cursor would keep the source from being unlocked.
        with closing(self._source.rows(table, state.cursors.get(table.name))) as rows:
            for batch in _batches(table, rows, self._batch_rows):
                state.cursors[table.name] = _key(table, batch[-1])
                with _naming(table, batch):
                    target.write(table, self._fitting(table, target, batch), state)
                self._advance(f"copying {table.name}", len(batch))

    def _fitting(self, table: Table, target: Database, rows: Sequence[Row]) -> Sequence[Row]:
        if self._source.is_sqlite and not target.is_sqlite:
            return [self._fitter.fit(table, row) for row in rows]
        return rows

    def _verify(self, target: Target, tables: Sequence[Table]) -> list[MovedTable]:
        """Compare counts and hashes of all tables, and the counters."""
        found, expected = target.counters(), self._source.counters()
        for name in COUNTERS:
            if found[name] != expected[name]:
                raise HoldfastError(
                    f"the counter {name} is {found[name]} in the target and"
                    f" {expected[name]} in the source"
                )
        return [self._compare(table, target) for table in tables]

    def _compare(self, table: Table, target: Target) -> MovedTable:
        replaced = self._fitter.replaced
        before = self._digest(self._source, table, target)
        # The values that were replaced just now were counted when they were copied.
        self._fitter.replaced = replaced
        after = self._digest(target, table, target)
        if (before.rows, before.hash) != (after.rows, after.hash):
            raise HoldfastError(
                f"{table.name} differs: {before.rows} rows with hash {before.hash} in the source,"
                f" {after.rows} with {after.hash} in the target"
            )
        return MovedTable(table.name, after.rows, after.hash)

    def _digest(self, database: Database, table: Table, target: Target) -> Digest:
        digest = Digest(table, canonical=self._source.is_sqlite != target.is_sqlite)
        with closing(database.rows(table)) as found:
            for batch in _batches(table, found, self._batch_rows):
                rows = batch if database is target else self._fitting(table, target, batch)
                for row in rows:
                    digest.add(row)
                self._advance(f"verifying {table.name}", len(batch))
        return digest

    def _advance(self, step: str, rows: int) -> None:
        self._done += rows
        self._on_progress(step, self._done, self._total)


def _batches(table: Table, rows: Iterator[Row], most: int) -> Iterator[list[Row]]:
    """Cut rows into batches by number and bytes; rows of one key stay together."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        is_full = len(batch) >= most or size >= BATCH_BYTES
        if is_full and _key(table, row) != _key(table, batch[-1]):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += size_of(row)
    if batch:
        yield batch


@contextmanager
def _naming(table: Table, batch: Sequence[Row]) -> Iterator[None]:
    """Say in an error which rows could not be written."""
    try:
        yield
    except HoldfastError as error:
        first, last = (_key_text(_key(table, row)) for row in (batch[0], batch[-1]))
        which = first if first == last else f"{first} to {last}"
        raise HoldfastError(f"{table.name} {which}: {error}") from error


def _key_text(key: list[Any]) -> str:
    return "/".join(map(str, key))[:LONGEST_KEY]


def _key(table: Table, row: Row) -> list[Any]:
    return [row[table.names.index(name)] for name in table.key]


def _preview(source: Source, target_url: str) -> MoveReport:
    tables = [MovedTable(table.name, source.count(table)) for table in TABLES]
    return MoveReport(
        source=source.name, target=public_name(target_url), dry_run=True, tables=tables
    )


def _check_source(url: str) -> None:
    path = sqlite_path(url)
    if path is not None and not path.is_file():
        raise HoldfastError(f"there is no database {path}")
    report = _inspect(url, "source")
    if report is None:
        raise HoldfastError(f"the source {public_name(url)} is not a database of Holdfast")


def _inspect(url: str, role: str) -> str | None:
    """Return the version of a database, None if it has no schema. Refuses all versions but ours."""
    try:
        report = migrate(url, dry_run=True)
    except HoldfastError as error:
        raise HoldfastError(f"the {role} cannot be used: {error}") from error
    if report.due and report.found is not None:
        raise HoldfastError(
            f"the {role} is at version {report.found}: run `holdfast migrate` on it first"
        )
    return report.found


def _check_target(source: Source, target_url: str) -> _Condition:
    """Refuse a target that holds other data or is in use."""
    state = source.state("source")
    if state is not None and state.phase == DONE:
        raise HoldfastError(f"{source.name} was moved to {state.peer} already")
    if state is not None and state.peer != public_name(target_url):
        raise HoldfastError(
            f"a move to {state.peer} is unfinished: run it again, or give it up with --undo"
        )
    if _inspect(target_url, "target") is None:
        return _Condition(is_new=True)
    with closing(_open_existing(target_url)) as target:
        found = target.state("target")
        if found is not None and state is not None and found.id == state.id:
            return _Condition(is_complete=found.phase == DONE)
        if found is None or found.phase == DONE:
            refuse_contents(target.name, target.find_contents(), target.find_live_processes())
        elif found.peer != source.name:
            raise HoldfastError(f"the target {target.name} is being filled from {found.peer}")
    return _Condition()


def _refuse_same(source_url: str, target_url: str) -> None:
    paths = sqlite_path(source_url), sqlite_path(target_url)
    if None not in paths:
        is_same = os.path.realpath(cast(Path, paths[0])) == os.path.realpath(cast(Path, paths[1]))
    elif paths == (None, None):
        from holdfast.store.transfer.postgres import is_same_database

        is_same = is_same_database(source_url, target_url)
    else:
        return
    if is_same:
        raise HoldfastError("source and target are the same database")


def _open_existing(url: str) -> Database:
    """Open a target that has a schema, to read from it."""
    return _open_source(url)


def _open_source(url: str) -> Source:
    path = sqlite_path(url)
    if path is not None:
        from holdfast.store.transfer.sqlite import SqliteDatabase

        return SqliteDatabase(path)
    from holdfast.store.transfer.postgres import PostgresDatabase

    return PostgresDatabase(url)


def _open_target(url: str) -> Target:
    path = sqlite_path(url)
    if path is not None:
        from holdfast.store.transfer.sqlite import SqliteTarget

        return SqliteTarget(path)
    from holdfast.store.transfer.postgres import PostgresTarget

    return PostgresTarget(url)


def _undone(run: _Move, source: Source, target_url: str, error: BaseException) -> BaseException:
    """Undo a failed move. Returns the error to raise, which says what was left if that failed."""
    reason = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
    if run.is_published:
        return HoldfastError(f"{reason}; the target is complete: run the same command again")
    try:
        state = source.state("source")
        if state is not None:
            _wipe(target_url, state.id)
            source.unlock()
    except HoldfastError as failure:
        return HoldfastError(
            f"{reason}; undoing failed, too ({failure}): run the same command again to go on,"
            " or with --undo to give up"
        )
    is_expected = isinstance(error, HoldfastError | KeyboardInterrupt)
    return HoldfastError(f"{reason}; nothing was changed") if is_expected else error


def _wipe(target_url: str, id_: str) -> None:
    """Remove the rows of an unfinished move, and nothing else."""
    path = sqlite_path(target_url)
    if path is not None:
        from holdfast.store.transfer.sqlite import remove_draft

        _refuse_complete(target_url if path.is_file() and path.stat().st_size else None, id_)
        remove_draft(path)
        return
    from holdfast.store.transfer.postgres import PostgresTarget

    with closing(PostgresTarget(target_url)) as target:
        state = target.state("target") if target.has_schema() else None
        if state is not None and state.id == id_:
            if state.phase == DONE:
                raise HoldfastError(COMPLETE)
            target.wipe(state)


def _refuse_complete(target_url: str | None, id_: str) -> None:
    if target_url is None or _inspect(target_url, "target") is None:
        return
    with closing(_open_existing(target_url)) as target:
        state = target.state("target")
    if state is not None and state.id == id_:
        raise HoldfastError(COMPLETE)

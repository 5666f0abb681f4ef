"""The databases of a move: the operations that both engines offer, and the state of a move."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any, Literal, Protocol

from holdfast.errors import HoldfastError
from holdfast.settings import sqlite_path
from holdfast.store.transfer.tables import TABLES, Table
from holdfast.store.transfer.values import Row

Role = Literal["source", "target"]
DRAINING, COPYING, DONE = "draining", "copying", "done"
ANOTHER_MOVE = "another move uses this database: try again when it has ended"


@dataclass(slots=True)
class State:
    """The state of a move, kept in the settings of both databases.

    `cursors` holds the last key copied of each table. `before` holds the settings of the target
    before the move, and `triggers` the statements of triggers that the copy leaves out."""

    id: str
    peer: str
    phase: str = DRAINING
    created: bool = False
    cursors: dict[str, list[Any]] = field(default_factory=dict)
    before: dict[str, str] = field(default_factory=dict)
    triggers: list[str] = field(default_factory=list)

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> State:
        return cls(**json.loads(text))


class Database(Protocol):
    """A database that a move reads from or writes to."""

    name: str
    """Its URL without a password."""
    is_sqlite: bool

    def close(self) -> None: ...

    def has_vectors(self) -> bool:
        """Return whether the memory index holds vectors."""

    def count(self, table: Table) -> int: ...

    def rows(self, table: Table, after: Sequence[Any] | None = None) -> Generator[Row, None, None]:
        """Yield the rows of a table in the order of their keys, beginning after the key `after`."""

    def counters(self) -> dict[str, int]:
        """Return the last value of each counter."""

    def find_contents(self) -> str | None:
        """Return the name of a table that is not empty, None if there is none."""

    def find_live_processes(self) -> list[str]:
        """Return the processes that use this database."""

    def state(self, role: Role) -> State | None:
        """Return the state of a move from or to this database."""


class Source(Database, Protocol):
    """The database that a move reads from."""

    def refuse_new_work(self, state: State) -> None:
        """Refuse new messages and claims; running turns may still end."""

    def running_turns(self) -> int:
        """Count the turns that live processes hold."""

    def lock(self, state: State) -> None:
        """Refuse every change from now on, even if this process dies."""

    def unlock(self) -> None:
        """Allow changes again."""

    def mark_moved(self, state: State) -> None:
        """Keep the lock for good, and record where the data has moved to."""


class Target(Database, Protocol):
    """The database that a move writes to."""

    def begin(self, state: State) -> State:
        """Create the schema if there is none, and refuse changes by anybody else.

        Returns the stored state if the same move was killed before, else the given one. Removes
        what is left of a move that was given up."""

    def write(self, table: Table, rows: Sequence[Row], state: State) -> None:
        """Store rows and the state, in one transaction."""

    def finish(self, counters: dict[str, int], state: State) -> None:
        """Set the counters, and restore what the copy left out."""

    def publish(self, state: State) -> None:
        """Allow processes to use this database."""

    def wipe(self, state: State) -> None:
        """Restore the database as it was before the move."""


def public_name(url: str) -> str:
    """Return the URL of a database without user, password and options."""
    path = sqlite_path(url)
    if path is not None:
        return f"sqlite:///{path}"
    from holdfast.store.transfer.postgres import name_of

    return name_of(url)


def refuse_contents(name: str, contents: str | None, processes: Sequence[str]) -> None:
    """Refuse a target that holds data or that a process uses."""
    if processes:
        raise HoldfastError(f"the target {name} is used by {', '.join(processes)}: stop it first")
    if contents is not None:
        raise HoldfastError(
            f"the target {name} is not empty ({contents} has rows): move into a new database"
        )


WAIT_FOR_MOVE = timedelta(seconds=10)
"""The server may need this long to notice that a killed move is gone."""


def shared_tables(source: Database, target: Database) -> tuple[Table, ...]:
    """Return the tables with the columns that both databases have.

    Without vectors on one side the index is built again there, since its model differs."""
    if source.has_vectors() and target.has_vectors():
        return TABLES
    return tuple(
        table.without("embedding") if table.name == "knowledge" else table for table in TABLES
    )

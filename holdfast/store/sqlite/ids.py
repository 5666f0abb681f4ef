"""Ids of events, drawn ahead while nobody else writes the file."""

from __future__ import annotations

from sqlite3 import Connection

from holdfast.store.sqlite.queries import load

SQL = load()

MOST_AHEAD = 256


class Ids:
    """Ids in the order of their commits, over all processes, and none twice.

    `sqlite_sequence` says which ids are given out; noting each there would write one page more per commit. So some
    are noted ahead, twice as many each time, and kept for the next transactions of this connection, unless another
    one has written since.
    """

    def __init__(self) -> None:
        self._version = -1
        self._last = self._noted = 0
        self._ahead = 1

    def begin(self, connection: Connection) -> None:
        """To be called in every transaction, before the first id is drawn."""
        [version] = connection.execute("pragma data_version").fetchone()
        if version != self._version:
            self._version = version
            self.forget()

    def forget(self) -> None:
        """What was noted may have been rolled back."""
        self._last = self._noted = 0
        self._ahead = 1

    def draw(self, connection: Connection, count: int) -> int:
        """Take so many ids; returns the one before them."""
        if self._last + count > self._noted:
            more = max(count, self._ahead)
            self._noted = _note(connection, more)
            self._last, self._ahead = self._noted - more, min(2 * self._ahead, MOST_AHEAD)
        before, self._last = self._last, self._last + count
        return before


def _note(connection: Connection, count: int) -> int:
    params = {"count": count}
    found = connection.execute(SQL["draw_ids"], params).fetchone()
    if found is None:
        found = connection.execute(SQL["first_ids"], params).fetchone()
    return int(found[0])

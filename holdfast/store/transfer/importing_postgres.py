"""Writing imported rows to PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from holdfast.migrations.postgres import Connection, connect
from holdfast.store.transfer.postgres import READ, clear_errors, insert_rows
from holdfast.store.transfer.tables import Table
from holdfast.store.transfer.values import Row

_KNOWN = "select message_id from agent.message_key where queue = %s and message_id = any (%s)"


class PostgresWriter:
    """Writes in the open transaction of a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def draw(self, count: int) -> list[int]:
        query = "select nextval('agent.event_id_seq') from generate_series(1, %s)"
        return [int(row[0]) for row in self._connection.execute(query, (count,))]

    def keep_ids(self, last: int) -> None:
        self._connection.execute("select setval('agent.event_id_seq', %s)", (last,))

    def is_unused(self) -> bool:
        row = self._connection.execute("select is_called from agent.event_id_seq").fetchone()
        return row == (False,)

    def find_known(self, queue: str, ids: Sequence[str]) -> set[str]:
        return {row[0] for row in self._connection.execute(_KNOWN, (queue, list(ids)))}

    def insert(self, table: Table, rows: Sequence[Row]) -> None:
        insert_rows(self._connection, table, rows)

    def line_offset(self) -> int:
        row = self._connection.execute("select agent.line_offset()").fetchone()
        return int(row[0]) if row else 0

    def find_lines(self) -> set[Row]:
        at = READ["moment"].format("created_at")
        agents = f"agent_id, role, message_id, content, {at} from agent.agent_message"
        rooms = f"team_id, from_agent, message, {at} from agent.chat_message"
        return {
            *self._connection.execute(f"select {agents}".encode()),
            *self._connection.execute(f"select {rooms}".encode()),
        }


@contextmanager
def writing_postgres(url: str) -> Iterator[PostgresWriter]:
    with connect(url) as connection, clear_errors(), connection.transaction():
        yield PostgresWriter(connection)


def drop_schema(url: str) -> None:
    with connect(url) as connection, clear_errors():
        connection.execute("drop schema agent cascade")

"""PostgreSQL in a move: rows as SQLite holds them, converted by the server."""

from __future__ import annotations

import secrets
import time
from array import array
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import errors, sql

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.migrations.postgres import Connection, connect
from holdfast.migrations.runner import migrate
from holdfast.migrations.script import one_line
from holdfast.store.transfer.database import ANOTHER_MOVE, COPYING, WAIT_FOR_MOVE, Role, State
from holdfast.store.transfer.tables import (
    BY_NAME,
    COUNTERS,
    DERIVED_COUNTERS,
    STATE_KEYS,
    TABLES,
    Column,
    Kind,
    Table,
)
from holdfast.store.transfer.values import Row

FETCH = 5000
GUARD_KEY = 31321898691465845
LOCK_TRIES = 10
LOCK_TIMEOUT_SECONDS = 5
RETRY_SECONDS = 0.1

# Without the case, greatest would make a moment of null.
_FROM_MOMENT = (
    "case when {0} is not null then"
    " (extract(epoch from least(greatest({0}, timestamptz '0001-01-02Z')"
    ", timestamptz '9999-12-30 23:59:59.999999Z')) * 1000000)::int8 end"
)
# In two parts: a number of microseconds may be too large for the exact range of a float.
_TO_MOMENT = (
    "(timestamptz 'epoch' + ({0} / 1000000) * interval '1 second'"
    " + ({0} % 1000000) * interval '1 microsecond')"
)
READ: dict[Kind, str] = {
    "flag": "{0}::int4",
    "moment": _FROM_MOMENT,
    "moments": "case when cardinality({0}) = 0 then '[]' else (select '[' || coalesce(string_agg(("
    + _FROM_MOMENT.replace("{0}", "at")
    + ")::text, ',' order by nth), '') || ']'"
    " from unnest({0}) with ordinality as claims (at, nth)) end",
    "json": "{0}::text",
    "frames": "{0}::text",
    "uuid": "{0}::text",
    "texts": "to_json({0})::text",
    "vector": "{0}::float4[]",
}
_WRITE: dict[Kind, str] = {
    "flag": "{0} <> 0",
    "moment": _TO_MOMENT,
    "moments": "case when {0} = '[]' then '{{}}' else array(select "
    + _TO_MOMENT.replace("{0}", "at::int8")
    + " from jsonb_array_elements_text({0}::jsonb) as at) end",
    "json": "{0}::jsonb",
    "frames": "{0}::json",
    "uuid": "{0}::uuid",
    "texts": "array(select jsonb_array_elements_text({0}::jsonb))",
    "vector": "{0}::float4[]",
}
_STAGED: dict[Kind, str] = {
    "int": "int8",
    "int4": "int4",
    "flag": "int4",
    "real": "float8",
    "moment": "int8",
}
_LIVE = """
select process.id
from agent.process as process
inner join pg_catalog.pg_locks as held
    on held.locktype = 'advisory' and held.granted and held.objsubid = 1
    and held.database = (select oid from pg_catalog.pg_database where datname = current_database())
    and (held.classid::int8 << 32 | held.objid::int8) = agent.process_key(process.id)
order by process.id
"""
_REFUSE = """
create or replace function agent.refuse_changes() returns trigger
language plpgsql security invoker set search_path = pg_catalog, pg_temp
as $$
begin
    raise read_only_sql_transaction using message = tg_argv[0];
end
$$
"""
_LOCK_TRIGGERS = """
select tgrelid::regclass::text, tgname::text from pg_catalog.pg_trigger
where tgname in ('refuse_changes', 'refuse_work_put', 'refuse_work_claim')
    and tgrelid in (select oid from pg_catalog.pg_class where relnamespace = 'agent'::regnamespace)
"""
_LINE_IDS = """
do $$
begin
    execute format('alter table agent.agent_message alter column id'
        ' set default nextval(''agent.event_id_seq'') + %s', agent.line_offset());
end
$$
"""


def name_of(url: str) -> str:
    """Return a URL without user, password and options."""
    parts = urlsplit(url)
    hosts = parts.netloc.rpartition("@")[2] or "local"
    return f"postgresql://{hosts}{parts.path}"


class PostgresDatabase:
    """A database that a move reads from or writes to."""

    is_sqlite = False

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = name_of(url)
        self._stack = ExitStack()
        self._guard: Connection = self._stack.enter_context(connect(url))
        self.connection: Connection = self._stack.enter_context(connect(url))
        try:
            self._take_guard()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._stack.close()

    def has_schema(self) -> bool:
        return bool(self._value("select to_regclass('agent.event') is not null"))

    def has_vectors(self) -> bool:
        return bool(self._value("select agent.has_vectors()"))

    def count(self, table: Table) -> int:
        with clear_errors():
            return int(self._value(f"select count(*) from agent.{table.name} where {table.where}"))

    def rows(self, table: Table, after: Sequence[Any] | None = None) -> Generator[Row, None, None]:
        vectors = [at for at, one in enumerate(table.columns) if one.kind == "vector"]
        with clear_errors(), self.connection.transaction():
            self.connection.execute("set transaction isolation level repeatable read, read only")
            with self.connection.cursor(name="move") as cursor:
                cursor.itersize = FETCH
                cursor.execute(_select(table, after).encode(), tuple(after or ()))
                for row in cursor:
                    yield _with_bytes(row, vectors) if vectors else row

    def counters(self) -> dict[str, int]:
        with clear_errors():
            return {name: self._last(name) for name in (*COUNTERS, *DERIVED_COUNTERS)}

    def _last(self, name: str) -> int:
        if name == "activity":
            return int(self._value("select place from agent.activity_end"))
        last = "case when is_called then last_value else last_value - 1 end"
        return int(self._value(f"select {last} from {_sequence(name)}"))

    def find_contents(self) -> str | None:
        with clear_errors():
            return next(filter(self._has_rows, (one.name for one in TABLES[:-1])), None)

    def find_live_processes(self) -> list[str]:
        with clear_errors():
            return [id_ for (id_,) in self.connection.execute(_LIVE)]

    def state(self, role: Role) -> State | None:
        with clear_errors():
            row = self.connection.execute(
                "select value::text from agent.setting where key = %s", (STATE_KEYS + role,)
            ).fetchone()
        return None if row is None else State.parse(row[0])

    def refuse_new_work(self, state: State) -> None:
        text = sql.Literal(_moving(state.peer))
        with self._changing() as connection:
            self._drop_triggers()
            connection.execute(_REFUSE)
            self._put_state("source", state)
            connection.execute(
                sql.SQL(
                    "create trigger refuse_work_put before insert on agent.event for each row"
                    " when (new.queue = 'inbox' and new.parent_id is null)"
                    " execute function agent.refuse_changes({})"
                ).format(text)
            )
            connection.execute(
                sql.SQL(
                    "create trigger refuse_work_claim before update of fence on agent.event"
                    " for each row when (new.fence > 0 and new.fence <> old.fence)"
                    " execute function agent.refuse_changes({})"
                ).format(text)
            )

    def running_turns(self) -> int:
        with clear_errors():
            return int(
                self._value(
                    "select count(*) from agent.event where fence > 0 and vt > agent.now()"
                    " and holder = any (%s)",
                    self.find_live_processes(),
                )
            )

    def lock(self, state: State) -> None:
        self._lock("source", state, _moving(state.peer))
        self._number_activity()

    def mark_moved(self, state: State) -> None:
        self._lock("source", state, f"this database was moved to {state.peer}: use that one")

    def unlock(self) -> None:
        with self._changing() as connection:
            self._drop_triggers()
            connection.execute("delete from agent.setting where key = %s", (STATE_KEYS + "source",))

    def _lock(self, role: Role, state: State, text: str) -> None:
        """Make every change fail as in a read-only database, except for the move's own."""
        with self._changing() as connection:
            self._drop_triggers()
            connection.execute(_REFUSE)
            for table in _LOCKED:
                connection.execute(
                    sql.SQL(
                        "create trigger refuse_changes before insert or update or delete on {}"
                        " for each statement"
                        " when (current_setting('holdfast.move', true) is distinct from 'on')"
                        " execute function agent.refuse_changes({})"
                    ).format(sql.Identifier("agent", table), sql.Literal(text))
                )
            self._put_state(role, state)

    def _drop_triggers(self) -> None:
        for table, name in self.connection.execute(_LOCK_TRIGGERS).fetchall():
            self.connection.execute(f"drop trigger {name} on {table}".encode())
        self.connection.execute("drop function if exists agent.refuse_changes()")

    def _put_state(self, role: Role, state: State) -> None:
        self.connection.execute(
            "insert into agent.setting (key, value) values (%s, %s)"
            " on conflict (key) do update set value = excluded.value",
            (STATE_KEYS + role, state.dump()),
        )

    def _number_activity(self) -> None:
        """Give every row of the activity its position, by which it is read."""
        with clear_errors():
            numbered = 1
            while numbered:
                with self.transaction():
                    numbered = self._value("select agent.place_activity(_wait => true)")

    @contextmanager
    def _changing(self) -> Iterator[Connection]:
        """Open a transaction that keeps all writers out."""
        names = ", ".join(f"agent.{name}" for name in _LOCKED)
        with clear_errors(), self.connection.transaction():
            self._take_locks(names)
            self.connection.execute("set local holdfast.move = 'on'")
            yield self.connection

    def _take_locks(self, names: str) -> None:
        """Lock tables. Tries several times, as workers may hold one table and wait for another."""
        self.connection.execute(f"set local lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'".encode())
        for tries_left in reversed(range(LOCK_TRIES)):
            try:
                with self.connection.transaction():
                    self.connection.execute(
                        f"lock table {names} in share row exclusive mode".encode()
                    )
                return
            except (errors.LockNotAvailable, errors.DeadlockDetected):
                if not tries_left:
                    raise

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Open a transaction in which the move itself may write; heads stay as they are."""
        with clear_errors(), self.connection.transaction():
            self.connection.execute("set local holdfast.move = 'on'")
            self.connection.execute("set local holdfast.lanes = 'held'")
            yield self.connection

    def _take_guard(self) -> None:
        give_up_at = time.monotonic() + WAIT_FOR_MOVE.total_seconds()
        while True:
            row = self._guard.execute("select pg_try_advisory_lock(%s)", (GUARD_KEY,)).fetchone()
            if row == (True,):
                return
            if time.monotonic() > give_up_at:
                raise HoldfastError(ANOTHER_MOVE)
            time.sleep(RETRY_SECONDS)

    def _has_rows(self, table: str) -> bool:
        return bool(self._value(f"select exists (select from agent.{table})"))

    def _value(self, statement: str, *values: object) -> Any:
        row = self.connection.execute(statement.encode(), values or None).fetchone()
        assert row is not None
        return row[0]


class PostgresTarget(PostgresDatabase):
    """A database to fill. Until it is complete it refuses every change but those of the move."""

    def begin(self, state: State) -> State:
        found = self.state("target") if self.has_schema() else None
        if found is not None and found.id == state.id:
            return found
        if found is not None and found.phase == COPYING:
            self.wipe(found)
            state.created = found.created
        migrate(self.url)
        with clear_errors():
            settings = self.connection.execute("select key, value::text from agent.setting")
            state.before = {str(key): str(value) for key, value in settings}
        self._lock("target", state, f"this database is being filled from {state.peer}")
        with self.transaction() as connection:
            where = BY_NAME["setting"].where
            connection.execute(f"delete from agent.setting where {where}".encode())
        return state

    def write(self, table: Table, rows: Sequence[Row], state: State) -> None:
        with self.transaction():
            insert_rows(self.connection, table, rows)
            self._put_state("target", state)

    def finish(self, counters: dict[str, int], state: State) -> None:
        with self.transaction() as connection:
            for name in (*COUNTERS, *DERIVED_COUNTERS):
                self._set_counter(name, counters[name])
            connection.execute(_LINE_IDS)
            self._put_state("target", state)
        with clear_errors():
            for table in TABLES:
                self.connection.execute(f"analyze agent.{table.name}".encode())

    def _set_counter(self, name: str, value: int) -> None:
        if name == "activity":
            self.connection.execute("update agent.activity_end set place = %s", (value,))
        else:
            statement = f"select setval('{_sequence(name)}', greatest(%s, 1), %s > 0)"
            self.connection.execute(statement.encode(), (value, value))

    def publish(self, state: State) -> None:
        with self._changing():
            self._drop_triggers()
            self._put_state("target", state)

    def wipe(self, state: State) -> None:
        with self._changing() as connection:
            if state.created:
                connection.execute("drop schema agent cascade")
                return
            self._drop_triggers()
            names = ", ".join(f"agent.{table.name}" for table in TABLES)
            connection.execute("alter table agent.audit disable trigger user")
            connection.execute(f"truncate {names} restart identity".encode())
            connection.execute("alter table agent.audit enable trigger user")
            for name in (*COUNTERS, *DERIVED_COUNTERS):
                self._set_counter(name, 0)
            for key, value in state.before.items():
                connection.execute("insert into agent.setting values (%s, %s)", (key, value))
            connection.execute(_LINE_IDS)


_LOCKED = (*BY_NAME, "activity_end")


def _sequence(counter: str) -> str:
    is_own = counter in ("fence", "observation_version")
    return f"agent.{counter}" if is_own else f"agent.{counter}_id_seq"


def _moving(peer: str) -> str:
    return f"this database is being moved to {peer}: wait until that has ended"


def _column(column: Column) -> str:
    return f'"{column.postgres}"'


def _select(table: Table, after: Sequence[Any] | None) -> str:
    columns = ", ".join(READ.get(one.kind, "{0}").format(_column(one)) for one in table.columns)
    key = ", ".join(_order_by(one) for one in table.key_columns)
    marks = ", ".join("%s::int8" if _is_number(one) else "%s" for one in table.key_columns)
    following = f"and ({key}) > ({marks})" if after is not None else ""
    return (
        f"select {columns} from agent.{table.name} where {table.where} {following} order by {key}"
    )


def _order_by(column: Column) -> str:
    """Return the expression that orders a column as SQLite does: numbers, or the bytes of texts."""
    return _column(column) if _is_number(column) else f'{_column(column)} collate "C"'


def _is_number(column: Column) -> bool:
    return column.kind in ("int", "int4")


def _insert(table: Table) -> str:
    columns = ", ".join(map(_column, table.columns))
    values = ", ".join(_WRITE.get(one.kind, "{0}").format(f'"{one.name}"') for one in table.columns)
    return (
        f"insert into agent.{table.name} ({columns}) overriding system value"
        f" select {values} from pg_temp.moving"
    )


def insert_rows(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Insert rows in the open transaction, through a temporary table that takes SQLite's values."""
    staged = ", ".join(f'"{one.name}" {_STAGED.get(one.kind, "text")}' for one in table.columns)
    connection.execute(f"create temp table moving ({staged}) on commit drop".encode())
    vectors = [at for at, one in enumerate(table.columns) if one.kind == "vector"]
    with connection.cursor().copy("copy pg_temp.moving from stdin") as copy:
        for row in rows:
            copy.write_row(_with_text(row, vectors) if vectors else row)
    connection.execute(_insert(table).encode())
    connection.execute("drop table pg_temp.moving")


def _with_bytes(row: Row, vectors: Sequence[int]) -> Row:
    return tuple(
        array("f", value).tobytes() if at in vectors and value is not None else value
        for at, value in enumerate(row)
    )


def _with_text(row: Row, vectors: Sequence[int]) -> Row:
    return tuple(
        _vector(value) if at in vectors and value is not None else value
        for at, value in enumerate(row)
    )


def _vector(value: bytes) -> str:
    """Write 32-bit numbers exactly: nine digits identify each."""
    return "{" + ",".join(f"{number:.9g}" for number in array("f", value)) + "}"


@contextmanager
def clear_errors() -> Iterator[None]:
    try:
        yield
    except psycopg.OperationalError as error:
        raise StoreUnavailable(f"the database cannot be reached: {one_line(error)}") from error
    except psycopg.Error as error:
        message = error.diag.message_primary or str(error)
        raise HoldfastError(f"the database refused: {one_line(message)}") from error


def is_same_database(one: str, other: str) -> bool:
    """Return whether two URLs name one database: a lock taken in it is seen by both."""
    key = secrets.randbits(62)
    with connect(one) as first, connect(other) as second, first.transaction():
        first.execute("select pg_advisory_xact_lock(%s)", (key,))
        row = second.execute("select pg_try_advisory_xact_lock(%s)", (key,)).fetchone()
    return row == (False,)

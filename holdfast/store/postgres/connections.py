"""Pooled PostgreSQL connections, with transactions and translation of driver errors."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from struct import Struct
from types import TracebackType
from typing import Any, LiteralString, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg import errors
from psycopg.adapt import Dumper, Transformer
from psycopg.postgres import types
from psycopg.pq import Format
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.string import TextLoader
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.queue.pages import Measure, Page
from holdfast.queue.store import Clock, Transaction
from holdfast.store.postgres.outage import OUTAGES, with_timeouts
from holdfast.store.readable import EARLIEST, LATEST
from holdfast.telemetry import spans

Connection = psycopg.AsyncConnection[tuple[Any, ...]]
Result = TypeVar("Result")
Arguments = Sequence[Any] | Mapping[str, Any]

# The pool would log every try to connect. Callers get an error instead, and log the outage once.
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)

FIRST_ROWS = 4
"""Rows of a page to read before their size is known."""
TRIES = 5
"""Runs of a transaction that the server chose as a deadlock victim."""
ABORTED_FOR_ANOTHER = (
    errors.DeadlockDetected,
    errors.SerializationFailure,
    # A migration added a column while the call waited for the table.
    errors.DatatypeMismatch,
)
"""Errors of calls that succeed if they are made again."""
POOLER_WITHOUT_STATEMENTS = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement)
"""Errors of a pooler that gave the next call another session. Nothing has run yet."""
PREPARE_AFTER = 2
RECONNECT_SECONDS = 1.0
"""Seconds after which the pool gives up a lost connection; the next call opens a new one. If the
pool went on trying, it would double its delays."""
KEEP_READ_ONLY_FOR = 5.0
WAIT_FOR_CONNECTION = 10.0
WAIT_BEFORE_AWAY = 0.8
"""Seconds of one wait for a connection. If a connection broke meanwhile, the server then counts as
unreachable."""
WAIT_WHILE_AWAY = 0.4
"""The same while the server is unreachable. An HTTP request may need two calls, one after the
other, and has two seconds in all."""

# Dimensions, whether there are nulls, type of the elements, their number, index of the first.
_array_header = Struct(">iiIii").pack


class TextArray(bytes):
    """An array of texts in the binary format.

    Thousands of texts as a list would take the driver five times as long."""

    @classmethod
    def of(cls, elements: Sequence[bytes]) -> TextArray:
        """Join elements that begin with their size; a size of -1 is null."""
        return cls(_array_header(1, True, types["text"].oid, len(elements), 1) + b"".join(elements))


class _TextArrayDumper(Dumper):
    """Passes a TextArray to the driver as it is."""

    format = Format.BINARY
    oid = types["text"].array_oid

    def dump(self, obj: TextArray) -> TextArray:
        return obj


class _Idle(deque[Connection]):
    """The idle connections of a pool: the last one used is taken first.

    The pool takes the longest idle one, so a lone caller would use all in turns. Another session's
    process has to be woken up and has colder caches: a put takes a tenth longer."""

    def append(self, connection: Connection) -> None:
        self.appendleft(connection)


class Connections:
    """The pool of a store. No call leaves state in a session, so a pooler may stand between."""

    def __init__(self, url: str, *, clock: Clock | None, size: int) -> None:
        self._url = with_timeouts(url)
        self._clock = clock
        self._is_away = False
        self._prepares = True
        self._connected_at: WeakKeyDictionary[Connection, float] = WeakKeyDictionary()
        self._suspect_before = 0.0
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            self._url,
            min_size=1,
            max_size=size,
            open=False,
            configure=self._configure,
            kwargs={"autocommit": True, "prepare_threshold": PREPARE_AFTER},
            reconnect_timeout=RECONNECT_SECONDS,
        )
        # There is no public way to choose the order.
        self._pool._pool = _Idle()

    async def __aenter__(self) -> Connections:
        # Connect once without the pool, whose errors name a time-out instead of the cause.
        with translate_errors():
            async with await psycopg.AsyncConnection.connect(
                self._url, autocommit=True
            ) as connection:
                cursor = await connection.execute("select to_regclass('agent.event') is not null")
                row = await cursor.fetchone()
        if row != (True,):
            raise HoldfastError("the database has no Holdfast schema: run `holdfast migrate`")
        # Wait for the pool's first connection: a call before would make it open a second one.
        with translate_errors():
            await self._pool.open(wait=True)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._pool.close()

    async def value(
        self, statement: str, arguments: Sequence[Any] = (), tx: Transaction | None = None
    ) -> Any:
        """Run one statement, in the caller's transaction if there is one. Returns its value."""
        if tx is None:
            return (await self.rows(statement, arguments))[0][0]
        return (await (await tx.execute(statement, arguments)).fetchone())[0]

    async def rows(self, statement: str, arguments: Arguments = ()) -> list[tuple[Any, ...]]:
        """Run one statement in a transaction of its own and return its rows."""
        if spans.tracing is not None:
            spans.name_statement(statement)
        return await self.retry_aborted(lambda: self._once(statement, arguments))

    async def rows_without_unreadable(
        self, statement: str, arguments: Sequence[Any]
    ) -> list[tuple[Any, ...]]:
        """Run a statement. If an unreadable row fails it, bury such rows and run it again."""
        try:
            return await self.rows(statement, arguments)
        except HoldfastError as error:
            if not isinstance(error.__cause__, psycopg.DataError | errors.CheckViolation):
                raise
        await self.value("select agent.bury_unreadable()")
        return await self.rows(statement, arguments)

    async def execute_alone(self, statement: LiteralString) -> None:
        """Run a statement that refuses to be part of a transaction."""
        with translate_errors():
            async with self._connection() as connection:
                await connection.execute(statement, prepare=False)

    async def page(
        self, statement: str, arguments: Arguments, limit: int, most_bytes: int | None
    ) -> Page[tuple[Any, ...]]:
        """Run one query and read rows up to a number of bytes; the server computes no more."""
        if most_bytes is None:
            return Measure(limit, None).page(await self.rows(statement, arguments))
        return await self.retry_aborted(
            lambda: self._page(statement, arguments, Measure(limit, most_bytes))
        )

    async def retry_aborted(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Run a whole transaction, and again if the server aborted it in favour of another."""
        with translate_errors():
            for tries_left in reversed(range(TRIES)):
                try:
                    return await work()
                except (*ABORTED_FOR_ANOTHER, *POOLER_WITHOUT_STATEMENTS):
                    if not tries_left:
                        raise
        raise AssertionError("unreachable")

    async def _configure(self, connection: Connection) -> None:
        self._connected_at[connection] = time.monotonic()
        # Give prepared statements names that no other client uses. Behind a pooler that does not
        # keep them apart, a session could otherwise run another client's statement of that name.
        connection._prepared._prepared_idx = secrets.randbelow(2**53)
        # Payloads stay text until they are read.
        connection.adapters.register_loader("jsonb", TextLoader)
        connection.adapters.register_dumper(TextArray, _TextArrayDumper)

    async def _once(self, statement: str, arguments: Arguments) -> list[tuple[Any, ...]]:
        async with self._connection() as connection:
            if self._clock is None:
                return await _fetch(await connection.execute(statement, arguments))
            async with connection.transaction():
                await self._set_clock(connection)
                return await _fetch(await connection.execute(statement, arguments))

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        cancelled = _cancellations()
        connection = await self._acquire()
        try:
            # The pool waits by asyncio.wait_for, which before Python 3.12 may lose a cancellation.
            # A task cancelled once would then never end.
            if _cancellations() > cancelled:
                raise asyncio.CancelledError
            async with connection:
                yield connection
        except errors.ReadOnlySqlTransaction:
            await self._leave_read_only(connection)
            raise
        except POOLER_WITHOUT_STATEMENTS:
            self._prepares = False
            raise
        finally:
            self._is_away = connection.broken
            if connection.broken:
                # The other connections lead to the same server: check each before its next use.
                self._suspect_before = time.monotonic()
            await self._pool.putconn(connection)

    async def _acquire(self) -> Connection:
        """Take a connection from the pool. Fails soon during an outage, since clients wait."""
        until = time.monotonic() + WAIT_FOR_CONNECTION
        while True:
            try:
                connection = await self._pool.getconn(self._wait_seconds)
            except PoolTimeout:
                if self._is_away or time.monotonic() > until:
                    self._is_away = True
                    raise
                continue
            if not self._prepares:
                connection.prepare_threshold = None
            if self._is_usable(connection):
                return connection
            await self._pool.putconn(connection)

    @property
    def _wait_seconds(self) -> float:
        return WAIT_WHILE_AWAY if self._is_away else WAIT_BEFORE_AWAY

    def _is_usable(self, connection: Connection) -> bool:
        """Return whether a connection is still open, without asking the server."""
        if self._connected_at.get(connection, 0.0) > self._suspect_before:
            return True
        self._connected_at[connection] = time.monotonic()
        with suppress(psycopg.Error):
            # The first read may return the server's last message, the second the end of the stream.
            connection.pgconn.consume_input()
            connection.pgconn.consume_input()
        self._is_away = connection.closed
        return not connection.closed

    async def _leave_read_only(self, connection: Connection) -> None:
        """Close connections to a server that became read-only: another one may be the primary.

        Recent ones stay for a while: a server that was only set to read-only would otherwise get
        new connections again and again."""
        if time.monotonic() - self._connected_at.get(connection, 0.0) > KEEP_READ_ONLY_FOR:
            await connection.close()
            await self._pool.drain()

    async def _page(
        self, statement: str, arguments: Arguments, measure: Measure
    ) -> Page[tuple[Any, ...]]:
        found: Page[tuple[Any, ...]] = Page()
        async with self.transaction() as connection:
            await connection.execute(
                f"declare page no scroll cursor for {statement}", arguments, prepare=False
            )
            wanted = FIRST_ROWS
            while not measure.is_full:
                rows = await _fetch(
                    await connection.execute(f"fetch {wanted} from page", prepare=False)
                )
                found += measure.page(rows)
                if len(rows) < wanted:
                    break
                wanted = measure.rows_that_fit
        found.has_more = measure.is_full
        return found

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Open a transaction of several calls, which cannot be made again as a whole.

        So it prepares no statement: a pooler may have given the session one of that name."""
        async with self._connection() as connection:
            connection.prepare_threshold = None
            try:
                async with connection.transaction():
                    await self._set_clock(connection)
                    yield connection
            finally:
                connection.prepare_threshold = PREPARE_AFTER if self._prepares else None

    async def _set_clock(self, connection: Connection) -> None:
        if self._clock is not None:
            await connection.execute(
                "select set_config('holdfast.now', %s, true)", (self._clock().isoformat(),)
            )


async def _fetch(cursor: psycopg.AsyncCursor[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    try:
        return await cursor.fetchall()
    except psycopg.DataError:
        # A time outside of Python's range. The statement has run, so read its result again with a
        # loader that bounds times.
        reader = cursor.connection.cursor()
        reader.adapters.register_loader("timestamptz", _BoundedMoment)
        rows = Transformer(reader)
        assert cursor.pgresult is not None
        rows.set_pgresult(cursor.pgresult)
        return rows.load_rows(0, cursor.pgresult.ntuples, tuple)


class _BoundedMoment(TimestamptzLoader):
    """Reads infinity and times before year 1 or after 9999 as the nearest datetime."""

    def load(self, data: Any) -> datetime:
        try:
            return super().load(data)
        except psycopg.DataError:
            text = bytes(data)
            return EARLIEST if text.startswith(b"-") or text.endswith(b"BC") else LATEST


@contextmanager
def translate_errors() -> Any:
    """Raise StoreUnavailable if the server is gone or busy, HoldfastError if it refused."""
    cancelled = _cancellations()
    try:
        yield
    except psycopg.Error as error:
        if _cancellations() > cancelled:
            # The driver or its pool replaced the cancellation by an error.
            raise asyncio.CancelledError from error
        raise _translation(error) from error


def _translation(error: psycopg.Error) -> HoldfastError:
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return StoreUnavailable(f"the database is read-only: {_first_line(error)}")
    if isinstance(error, OUTAGES):
        return StoreUnavailable(f"the database cannot be reached: {_first_line(error)}")
    return HoldfastError(f"the database refused: {_first_line(error)}")


def _cancellations() -> int:
    """Count the cancellations of the current task; 0 without a task."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return 0
    return task.cancelling() if task else 0


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]

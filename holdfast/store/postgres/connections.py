"""Pooled PostgreSQL connections: one statement, one transaction, driver errors translated once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from types import TracebackType
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import errors
from psycopg.adapt import Transformer
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.string import TextLoader
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.queue.pages import Measure, Page
from holdfast.queue.store import Clock
from holdfast.store.postgres.wire import TextArray, TextArrayDumper
from holdfast.store.readable import EARLIEST, LATEST
from holdfast.telemetry import spans

Connection = psycopg.AsyncConnection[tuple[Any, ...]]
Result = TypeVar("Result")
Arguments = Sequence[Any] | Mapping[str, Any]

# A line for every try to connect is a flood; who asks for a connection hears of the outage, and says so once.
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)

FIRST_ROWS = 4
"""Rows of a page to read before their size is known."""
TRIES = 5
WAIT_FOR_CONNECTION = 10.0
WAIT_WHILE_AWAY = 0.8
"""Seconds to wait once a connection broke, or nobody got one: a request may have to wait for two calls, one by one."""


class Connections:
    """No call leaves state in a session, so that a transaction pooler may stand between."""

    def __init__(self, url: str, *, clock: Clock | None, size: int, pooled: bool = False) -> None:
        self._url = url
        self._clock = clock
        self._is_away = False
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=size,
            open=False,
            configure=_configure,
            # Behind a pooler the next call may meet another session, which knows nothing of prepared statements.
            kwargs={"autocommit": True, "prepare_threshold": None if pooled else 2},
        )

    async def __aenter__(self) -> Connections:
        # The first connection is made apart from the pool, whose errors would name a time-out instead of a cause.
        with translated():
            async with await psycopg.AsyncConnection.connect(
                self._url, autocommit=True
            ) as connection:
                cursor = await connection.execute("select to_regclass('agent.event') is not null")
                row = await cursor.fetchone()
        if row != (True,):
            raise HoldfastError("the database has no Holdfast schema: run `holdfast migrate`")
        # Until its connection is there, the pool would make a second one for whoever asks first.
        with translated():
            await self._pool.open(wait=True)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._pool.close()

    async def value(self, statement: str, arguments: Sequence[Any] = ()) -> Any:
        return (await self.rows(statement, arguments))[0][0]

    async def rows(self, statement: str, arguments: Arguments = ()) -> list[tuple[Any, ...]]:
        """Runs one statement in a transaction of its own."""
        if spans.tracing is not None:
            spans.statement(statement)
        return await self.again(lambda: self._once(statement, arguments))

    async def execute_alone(self, statement: LiteralString) -> None:
        """Run a statement that refuses to be part of a transaction."""
        with translated():
            async with self._connection() as connection:
                await connection.execute(statement, prepare=False)

    async def page(
        self, statement: str, arguments: Arguments, limit: int, most_bytes: int | None
    ) -> Page[tuple[Any, ...]]:
        """Runs one query and reads rows until they reach a number of bytes; the server makes no more of them."""
        if most_bytes is None:
            return Measure(limit, None).page(await self.rows(statement, arguments))
        return await self.again(
            lambda: self._page(statement, arguments, Measure(limit, most_bytes))
        )

    async def again(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Runs a whole transaction, again where the server chose it as a victim."""
        with translated():
            for tries_left in reversed(range(TRIES)):
                try:
                    return await work()
                except (errors.DeadlockDetected, errors.SerializationFailure):
                    if not tries_left:
                        raise
        raise AssertionError("unreachable")

    async def _once(self, statement: str, arguments: Arguments) -> list[tuple[Any, ...]]:
        async with self._connection() as connection:
            if self._clock is None:
                return await _fetched(await connection.execute(statement, arguments))
            async with connection.transaction():
                await self._set_clock(connection)
                return await _fetched(await connection.execute(statement, arguments))

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        cancelled = _cancellations()
        connection = await self._acquired()
        try:
            # The pool waits by asyncio.wait_for, which before Python 3.12 may swallow a cancellation: a task that
            # was told to end once would go on for ever.
            if _cancellations() > cancelled:
                raise asyncio.CancelledError
            async with connection:
                yield connection
        finally:
            self._is_away = connection.broken
            await self._pool.putconn(connection)

    async def _acquired(self) -> Connection:
        """A connection of the pool. While the server is away nobody waits long for one: API clients wait for us."""
        until = time.monotonic() + WAIT_FOR_CONNECTION
        while True:
            try:
                return await self._pool.getconn(WAIT_WHILE_AWAY)
            except PoolTimeout:
                if self._is_away or time.monotonic() > until:
                    self._is_away = True
                    raise

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
                rows = await _fetched(
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
        async with self._connection() as connection, connection.transaction():
            await self._set_clock(connection)
            yield connection

    async def _set_clock(self, connection: Connection) -> None:
        if self._clock is not None:
            await connection.execute(
                "select set_config('holdfast.now', %s, true)", (self._clock().isoformat(),)
            )


async def _configure(connection: Connection) -> None:
    # Payloads stay text until somebody looks at them.
    connection.adapters.register_loader("jsonb", TextLoader)
    connection.adapters.register_dumper(TextArray, TextArrayDumper)


async def _fetched(cursor: psycopg.AsyncCursor[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    try:
        return await cursor.fetchall()
    except psycopg.DataError:
        # A moment that Python does not know. What was done is done: read the same result with other eyes.
        reader = cursor.connection.cursor()
        reader.adapters.register_loader("timestamptz", _BoundedMoment)
        rows = Transformer(reader)
        assert cursor.pgresult is not None
        rows.set_pgresult(cursor.pgresult)
        return rows.load_rows(0, cursor.pgresult.ntuples, tuple)


class _BoundedMoment(TimestamptzLoader):
    """Reads infinity, and moments before year 1 or after 9999, as the nearest one that Python has."""

    def load(self, data: Any) -> datetime:
        try:
            return super().load(data)
        except psycopg.DataError:
            text = bytes(data)
            return EARLIEST if text.startswith(b"-") or text.endswith(b"BC") else LATEST


@contextmanager
def translated() -> Any:
    """The server gone or too busy is StoreUnavailable; what it refuses is a HoldfastError in one line."""
    cancelled = _cancellations()
    try:
        yield
    except psycopg.Error as error:
        if _cancellations() > cancelled:
            # The driver or its pool let an error take the place of the cancellation.
            raise asyncio.CancelledError from error
        raise _translation(error) from error


def _translation(error: psycopg.Error) -> HoldfastError:
    match error:
        case (
            PoolTimeout()
            | PoolClosed()
            | TooManyRequests()
            | psycopg.OperationalError()
            | psycopg.InterfaceError()
        ):
            return StoreUnavailable(f"the database cannot be reached: {_first_line(error)}")
        case _:
            return HoldfastError(f"the database refused: {_first_line(error)}")


def _cancellations() -> int:
    """How often the task that runs was told to end; 0 where none runs."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return 0
    return task.cancelling() if task else 0


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]

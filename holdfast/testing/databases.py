"""A fresh, migrated database for every test: one template per server and run, a copy per test."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from holdfast.migrations.runner import migrate
from holdfast.testing import servers

SQLITE = "sqlite"
_END_SESSIONS = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s"
POSTGRES_ENGINES = ("postgres", "postgres15", "timescale")
ENGINES = (SQLITE, *POSTGRES_ENGINES)


class Databases:
    """Databases for tests, copied from one template per engine.

    Servers start at their first use and stop when this is closed."""

    def __init__(self, *, durable: bool = False) -> None:
        self._durable = durable
        self._stack = ExitStack()
        folder = tempfile.TemporaryDirectory(
            prefix="holdfast-", dir=servers.scratch(durable=durable)
        )
        self._folder = self._stack.enter_context(folder)
        self._servers: dict[str, str | servers.Unavailable] = {}
        self._admins: dict[str, psycopg.Connection[tuple[object, ...]]] = {}
        self._templates: dict[str, str] = {}
        self._numbers = itertools.count(1)

    def close(self) -> None:
        """Drop the templates and stop the servers."""
        self._stack.close()

    def server(self, engine: str) -> str:
        """Return the URL of an engine's server, which starts at the first call.

        Raises Unavailable if this machine cannot run it."""
        if engine not in self._servers:
            try:
                self._servers[engine] = self._stack.enter_context(self._start(engine))
            except servers.Unavailable as reason:
                self._servers[engine] = reason
        found = self._servers[engine]
        if isinstance(found, servers.Unavailable):
            raise found
        return found

    @contextmanager
    def fresh(self, engine: str) -> Iterator[str]:
        """Yield the URL of a migrated database without events; drop it after the block."""
        if engine not in self._templates:
            self._templates[engine] = self._template(engine)
        with (
            self._sqlite()
            if engine == SQLITE
            else self._postgres(engine, self._templates[engine]) as url
        ):
            if engine == SQLITE:
                shutil.copy(self._templates[engine], _path(url))
            yield url

    @contextmanager
    def empty(self, engine: str) -> Iterator[str]:
        """Yield the URL of a database without our schema; drop it after the block."""
        with self._sqlite() if engine == SQLITE else self._postgres(engine, "template0") as url:
            yield url

    def _start(self, engine: str) -> AbstractContextManager[str]:
        match engine:
            case "postgres":
                return servers.postgres(servers.wheel_binaries(), durable=self._durable)
            case "postgres15":
                return servers.postgres(servers.system_binaries(15), durable=self._durable)
            case "timescale":
                return servers.timescale(durable=self._durable)
        raise ValueError(f"no engine {engine!r}; there are {', '.join(ENGINES)}")

    def _template(self, engine: str) -> str:
        """Create the migrated template. Returns its file, or its name on the engine's server."""
        url = self._stack.enter_context(self.empty(engine))
        migrate(url)
        if engine == SQLITE:
            return _path(url)
        name = _path(url).removeprefix("/")
        # TimescaleDB's scheduler connects to every database it can, and PostgreSQL cannot copy a
        # database that is in use.
        admin = self._admin(engine)
        close = sql.SQL("alter database {} with allow_connections false")
        admin.execute(close.format(sql.Identifier(name)))
        admin.execute(_END_SESSIONS, [name])
        return name

    @contextmanager
    def _sqlite(self) -> Iterator[str]:
        # A folder of its own: the WAL and the lock files are beside the database.
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            yield f"sqlite:///{folder}/holdfast.db"

    @contextmanager
    def _postgres(self, engine: str, template: str) -> Iterator[str]:
        name = f"holdfast_{os.getpid()}_{next(self._numbers)}"
        names = {"name": sql.Identifier(name), "template": sql.Identifier(template)}
        admin = self._admin(engine)
        # Half the work of the default strategy, which also writes every page to the WAL.
        admin.execute(
            sql.SQL("create database {name} template {template} strategy file_copy").format(**names)
        )
        try:
            yield servers.url_of(self.server(engine), name)
        finally:
            admin.execute(sql.SQL("drop database {name} with (force)").format(**names))

    def _admin(self, engine: str) -> psycopg.Connection[tuple[object, ...]]:
        """Return the session that creates and drops databases. It lives as long as the server."""
        if engine not in self._admins:
            session = psycopg.connect(self.server(engine), autocommit=True)
            self._admins[engine] = self._stack.enter_context(closing(session))
        return self._admins[engine]


def _path(url: str) -> str:
    return urlsplit(url).path

"""Facts about a database server, for `holdfast doctor`. Needs no schema and changes nothing."""

from __future__ import annotations

import secrets
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from holdfast.settings import sqlite_path
from holdfast.store.postgres.connections import translate_errors

_SERVER = """
select
    current_setting('server_version')
    , current_setting('server_version_num')::int / 10000
    , current_setting('max_connections')::int
        - current_setting('superuser_reserved_connections')::int
    , (select count(*) from pg_catalog.pg_stat_activity where backend_type = 'client backend')
    , (select extversion from pg_catalog.pg_extension where extname = 'timescaledb')
    , (select default_version from pg_catalog.pg_available_extensions where name = 'timescaledb')
    , (select extversion from pg_catalog.pg_extension where extname = 'vector')
    , (select default_version from pg_catalog.pg_available_extensions where name = 'vector')
    , current_setting('timescaledb.disable_load', true) is not null
    , clock_timestamp()
"""

_IS_HYPERTABLE = """
select exists (
    select from _timescaledb_catalog.hypertable
    where schema_name = 'agent' and table_name = 'event_hist'
)
"""

_SEES_LOCK = """
select exists (
    select from pg_catalog.pg_locks
    where locktype = 'advisory' and (classid::int8 << 32 | objid::int8) = %s
        and database = (select oid from pg_catalog.pg_database where datname = current_database())
)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about a server; those that SQLite does not have are None."""

    server: str
    major: int | None = None
    connections_allowed: int | None = None
    connections_used: int | None = None
    timescale: str | None = None
    timescale_available: str | None = None
    timescale_loaded: bool = False
    """Whether the server preloads TimescaleDB, so that the extension can be created."""
    has_hypertable: bool = False
    """Whether history is a hypertable."""
    pgvector: str | None = None
    pgvector_available: str | None = None
    ahead: timedelta | None = None
    """Difference between the server's clock and ours; positive if the server's is ahead."""


def facts(url: str) -> Facts:
    """Read the facts about the server of a database URL."""
    if sqlite_path(url) is not None:
        return Facts(server=f"SQLite {sqlite3.sqlite_version}")
    import psycopg

    with (
        translate_errors(),
        closing(psycopg.connect(url, autocommit=True, connect_timeout=10)) as connection,
    ):
        sent_at = datetime.now(UTC)
        row = connection.execute(_SERVER).fetchone()
        received_at = datetime.now(UTC)
        assert row is not None
        version, major, allowed, used, *extensions, loaded, clock = row
        timescale, timescale_available, pgvector, pgvector_available = extensions
        has_hypertable = timescale is not None and connection.execute(
            _IS_HYPERTABLE
        ).fetchone() == (True,)
    return Facts(
        server=f"PostgreSQL {version}",
        major=major,
        connections_allowed=allowed,
        connections_used=used,
        timescale=timescale,
        timescale_available=timescale_available,
        timescale_loaded=loaded,
        has_hypertable=has_hypertable,
        pgvector=pgvector,
        pgvector_available=pgvector_available,
        # The server read its clock somewhere between the two moments; assume the middle.
        ahead=clock - (sent_at + (received_at - sent_at) / 2),
    )


def is_same_session(url: str, direct_url: str) -> bool:
    """Return whether `url` sees a lock that a session at `direct_url` takes and keeps.

    It does not if they lead to different databases, or if `direct_url` leads to a pooler that
    gives each statement another session."""
    import psycopg

    key = secrets.randbits(62)
    with (
        translate_errors(),
        closing(psycopg.connect(direct_url, autocommit=True, connect_timeout=10)) as direct,
        closing(psycopg.connect(url, autocommit=True, connect_timeout=10)) as other,
    ):
        direct.execute("select pg_catalog.pg_advisory_lock(%s)", (key,))
        seen = other.execute(_SEES_LOCK, (key,)).fetchone() == (True,)
        freed = direct.execute("select pg_catalog.pg_advisory_unlock(%s)", (key,)).fetchone()
    return seen and freed == (True,)

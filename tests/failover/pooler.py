"""PgBouncer in transaction mode before a PostgreSQL 17, both of Debian's packages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.failover.cluster import Programs, debian_programs, free_ports, wait_for

CLIENTS = 200
SERVERS = 20

CONFIG = """
[databases]
* = host=127.0.0.1 port={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {pooler}
auth_type = any
pool_mode = transaction
default_pool_size = {servers}
max_client_conn = 1000
max_prepared_statements = {statements}
unix_socket_dir =
"""
SERVE = """
/usr/lib/postgresql/17/bin/initdb -D /mnt/data -U postgres --auth=trust --no-sync >/dev/null
exec /usr/lib/postgresql/17/bin/postgres -D /mnt/data -p {port} -c unix_socket_directories=/mnt \
  -c listen_addresses=127.0.0.1 -c fsync=off -c shared_buffers=16MB -c max_connections=60
"""


class Pooler:
    """The URLs of a database, by way of PgBouncer and directly."""

    def __init__(self, programs: Programs, statements: int) -> None:
        server, pooler = free_ports(2)
        self.direct = f"postgresql://postgres@127.0.0.1:{server}/postgres"
        self.url = f"postgresql://postgres@127.0.0.1:{pooler}/postgres"
        self._console = f"postgresql://postgres@127.0.0.1:{pooler}/pgbouncer"
        config = CONFIG.format(server=server, pooler=pooler, servers=SERVERS, statements=statements)
        (programs.folder / "pgbouncer.ini").write_text(config)
        programs.run("server", "sh", "-c", SERVE.format(port=server))
        programs.run("pgbouncer", "pgbouncer", "/mnt/pgbouncer.ini")
        wait_for(lambda: answers(self.direct) and answers(self.url), programs.log)

    def clients(self) -> int:
        """Return the number of connections that PgBouncer has from clients of the database."""
        # The console knows no transactions and takes only the simple protocol.
        with psycopg.connect(
            self._console, autocommit=True, cursor_factory=psycopg.ClientCursor
        ) as console:
            rows = console.execute("show clients").fetchall()
        return sum(row[2] == "postgres" for row in rows)


def answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
        return True
    except psycopg.Error:
        return False


@contextmanager
def pooler(statements: int) -> Iterator[Pooler]:
    """A running PgBouncer that keeps so many prepared statements; 0 keeps none."""
    with debian_programs("holdfast-pooler-") as programs:
        yield Pooler(programs, statements)

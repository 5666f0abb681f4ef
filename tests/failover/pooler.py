"""PgBouncer in transaction mode before a PostgreSQL 17, both of Debian's packages."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.failover.cluster import Programs, free_ports, wait_for

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
        config = CONFIG.format(server=server, pooler=pooler, servers=SERVERS, statements=statements)
        (programs.folder / "pgbouncer.ini").write_text(config)
        programs.run("server", "sh", "-c", SERVE.format(port=server))
        programs.run("pgbouncer", "pgbouncer", "/mnt/pgbouncer.ini")
        wait_for(lambda: answers(self.direct) and answers(self.url), programs.log)


def answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
        return True
    except psycopg.Error:
        return False


@contextmanager
def pooler(statements: int) -> Iterator[Pooler]:
    """A running PgBouncer that keeps so many prepared statements; 0 keeps none."""
    subprocess.run([str(Programs.TOOL), "prepare"], check=True)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-pooler-"))
    folder.chmod(0o755)
    programs = Programs(folder)
    try:
        yield Pooler(programs, statements)
    finally:
        programs.stop()
        shutil.rmtree(folder, ignore_errors=True)

"""A PostgreSQL of the test's own, which it may stop and start again without losing data."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import urlencode

import psycopg

from holdfast.migrations.runner import migrate
from holdfast.testing import servers

# The end of standard input ends the server. Unlike the servers of other tests it keeps the files
# for another start.
SUPERVISE = """
exec 3<&0
"$@" 3<&- & server=$!
{ cat <&3 >/dev/null; kill -INT $server 2>/dev/null; } &
wait $server
"""
HOW = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
SETTINGS = servers.COMMON | {
    "fsync": "on",
    "synchronous_commit": "on",
    "holdfast.restart_grace": "2s",
}


class Server:
    """`start`, `stop("fast")` or `stop("immediate")`, as often as wanted."""

    def __init__(
        self, binaries: Path, folder: Path, log: IO[bytes], namespace: str | None = None
    ) -> None:
        self._data = folder / "data"
        self._log = log
        self._namespace = namespace
        self._process: subprocess.Popen[bytes] | None = None
        listen = "" if namespace is None else "*"
        options = {"listen_addresses": listen, "unix_socket_directories": str(folder)} | SETTINGS
        self.socket = str(folder / ".s.PGSQL.5432")
        self._command = [
            str(binaries / "postgres"),
            "-D",
            str(self._data),
            *servers._options(options),
        ]
        self.url = "postgresql://postgres@/postgres?" + urlencode({"host": str(folder)})

    def start(self) -> None:
        command, owner = ["sh", "-c", SUPERVISE, "sh", *self._command], servers._owner()
        if self._namespace is not None and owner is not None:
            # Root enters the namespace, and then becomes the owner.
            who = [f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"]
            command = ["ip", "netns", "exec", self._namespace, "setpriv", *who, *command]
            owner = None
        self._process = servers._spawn(command, owner, self._log, self._log)
        servers._await_ready(self.url, self._process, self._log)

    def stop(self, how: str = "fast") -> None:
        if self._process is None:
            return
        with self._process as process:
            os.kill(int((self._data / "postmaster.pid").read_text().split()[0]), HOW[how])
            process.wait(servers.START_SECONDS)
        self._process = None

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@contextmanager
def private_server(namespace: str | None = None) -> Iterator[Server]:
    """A migrated server on disk, which only a network namespace can reach by TCP."""
    owner = servers._owner()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-private-", dir=servers.scratch(durable=True)))
    if owner:
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    try:
        with (
            servers._readable(servers.wheel_binaries(), owner) as binaries,
            tempfile.TemporaryFile() as log,
        ):
            servers._initdb(binaries, folder, owner)
            if namespace is not None:
                with open(folder / "data" / "pg_hba.conf", "a") as rules:
                    rules.write("host all all 10.77.0.0/16 trust\n")
            server = Server(binaries, folder, log, namespace)
            server.start()
            try:
                migrate(server.url)
                yield server
            finally:
                server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)

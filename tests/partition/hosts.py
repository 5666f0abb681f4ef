"""Network namespaces as hosts: a link from each to the database, which can be cut either way."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

CLONE_NEWNET = 0x40000000
PORT = 5432
T = TypeVar("T")


def reason_to_skip() -> str | None:
    """Return why this machine cannot have namespaces, None if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need `ip`; on Debian: apt-get install iproute2"
    if shutil.which("setpriv") is None:
        return "network namespaces need `setpriv`; on Debian: apt-get install util-linux"
    tried = subprocess.run(["ip", "netns", "add", _name("try")], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "delete", _name("try")], capture_output=True)
    return f"no network namespaces here: {tried.stderr.strip()}" if tried.returncode else None


class Network:
    """The namespace of the database, and one for each host with a link to it."""

    def __init__(self, hosts: int) -> None:
        self.hosts = range(1, hosts + 1)

    @property
    def database(self) -> str:
        return _name("db")

    def name(self, host: int) -> str:
        return _name(str(host))

    def server_address(self, host: int) -> str:
        """Return the address at which a host finds the database."""
        return f"10.77.{host}.1"

    def host_address(self, host: int) -> str:
        return f"10.77.{host}.2"

    def create(self) -> None:
        _ip("netns", "add", self.database)
        _ip("-n", self.database, "link", "set", "lo", "up")
        for host in self.hosts:
            self._connect(host)

    def _connect(self, host: int) -> None:
        near, far, name = f"to{host}", "out", self.name(host)
        _ip("netns", "add", name)
        _ip("-n", name, "link", "set", "lo", "up")
        link = ("link", "add", near, "type", "veth", "peer", "name", far, "netns", name)
        _ip("-n", self.database, *link)
        _ip("-n", self.database, "address", "add", f"{self.server_address(host)}/30", "dev", near)
        _ip("-n", name, "address", "add", f"{self.host_address(host)}/30", "dev", far)
        _ip("-n", self.database, "link", "set", near, "up")
        _ip("-n", name, "link", "set", far, "up")

    def remove(self) -> None:
        """Delete all namespaces; their links and routes go with them."""
        for name in (*map(self.name, self.hosts), self.database):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    def cut(self, host: int) -> None:
        """Pull the plug of a host."""
        _ip("-n", self.database, "link", "set", f"to{host}", "down")

    def cut_answers(self, host: int) -> None:
        """Lose what the database sends to a host; what the host sends still arrives."""
        _ip("-n", self.database, "route", "replace", "blackhole", self.host_address(host))

    def cut_requests(self, host: int) -> None:
        """Lose what a host sends; what the database sends still arrives."""
        _ip("-n", self.name(host), "route", "replace", "blackhole", self.server_address(host))

    def heal(self, host: int) -> None:
        """Undo every cut of a host."""
        _ip("-n", self.database, "link", "set", f"to{host}", "up")
        routes = {
            self.database: self.host_address(host),
            self.name(host): self.server_address(host),
        }
        for namespace, address in routes.items():
            command = ["ip", "-n", namespace, "route", "delete", "blackhole", address]
            subprocess.run(command, capture_output=True, check=False)


@contextmanager
def network(hosts: int) -> Iterator[Network]:
    """Create namespaces, and remove them whatever happens."""
    created = Network(hosts)
    try:
        created.create()
        yield created
    finally:
        created.remove()


def enter(namespace: str) -> None:
    """Move the calling thread, and what it starts, into a namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}") as file:
        if libc.setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {namespace}")


def inside(namespace: str, call: Callable[[], T]) -> T:
    """Call a function in a thread of the namespace. Sockets that it opens stay there."""
    results: list[T] = []

    def run() -> None:
        enter(namespace)
        results.append(call())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results[0]


def listening(namespace: str, address: str, port: int) -> socket.socket:
    """Return a socket that listens inside of a namespace."""
    return inside(namespace, lambda: socket.create_server((address, port)))


def _name(part: str) -> str:
    return f"holdfast-{os.getpid()}-{part}"


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")

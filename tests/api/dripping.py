"""A hostile client: python -m tests.api.dripping PORT COUNT BYTES [SECONDS] keeps connections that never finish.

Each says the bytes and goes on in drops, so many seconds apart. What the server closes is opened again.
It ends with its standard input."""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import time

ROUND = 3.0
"""Seconds between drops unless told; fewer would measure how fast the machine is."""


def opened(port: int, said: bytes) -> socket.socket | None:
    client = socket.socket()
    client.settimeout(5)
    try:
        client.connect(("127.0.0.1", port))
        client.sendall(said)
    except OSError:
        client.close()
        return None
    client.setblocking(False)
    return client


def drips(client: socket.socket) -> bool:
    """Send one more byte; False once the server has had enough."""
    try:
        while client.recv(4096):
            pass
    except BlockingIOError:
        with contextlib.suppress(OSError):
            client.send(b"x")
            return True
    except OSError:
        pass
    client.close()
    return False


def main(port: int, count: int, said: bytes, seconds: float = ROUND) -> None:
    clients: list[socket.socket | None] = [None] * count
    is_told = False
    while not select.select([sys.stdin], [], [], 0)[0]:
        began_at = time.monotonic()
        for nth, client in enumerate(clients):
            if client is None or not drips(client):
                clients[nth] = opened(port, said)
        if not is_told:
            print("ready", flush=True)
            is_told = True
        select.select([sys.stdin], [], [], max(0.0, seconds - (time.monotonic() - began_at)))
    for client in clients:
        if client is not None:
            client.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3]), *map(float, sys.argv[4:]))

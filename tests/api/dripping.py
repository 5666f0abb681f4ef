"""A hostile client that keeps many connections open whose requests never end.

`python -m tests.api.dripping PORT COUNT BYTES [SECONDS]` sends BYTES (in hex) on each connection,
then one more byte every SECONDS. It reopens connections that the server closes, and ends when its
standard input ends."""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import time

ROUND = 3.0
"""Default interval between bytes, in seconds. A shorter one would measure the machine instead."""


def connect(port: int, request: bytes) -> socket.socket | None:
    client = socket.socket()
    client.settimeout(5)
    try:
        client.connect(("127.0.0.1", port))
        client.sendall(request)
    except OSError:
        client.close()
        return None
    client.setblocking(False)
    return client


def send_drop(client: socket.socket) -> bool:
    """Send one more byte. Returns whether the connection is still open."""
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


def main(port: int, count: int, request: bytes, seconds: float = ROUND) -> None:
    clients: list[socket.socket | None] = [None] * count
    is_ready = False
    while not select.select([sys.stdin], [], [], 0)[0]:
        began_at = time.monotonic()
        for nth, client in enumerate(clients):
            if client is None or not send_drop(client):
                clients[nth] = connect(port, request)
        if not is_ready:
            print("ready", flush=True)
            is_ready = True
        select.select([sys.stdin], [], [], max(0.0, seconds - (time.monotonic() - began_at)))
    for client in clients:
        if client is not None:
            client.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3]), *map(float, sys.argv[4:]))

"""A collector that accepts and drops every span and metric."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Sink(ThreadingHTTPServer):
    """Counts requests, so that a run without spans cannot pass for one with them."""

    received = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Taking(BaseHTTPRequestHandler):
    server: Sink

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received += self.path.endswith("/traces")
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - inherited
        """Write no log."""


@contextmanager
def sink() -> Iterator[Sink]:
    with Sink(("127.0.0.1", 0), _Taking) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()

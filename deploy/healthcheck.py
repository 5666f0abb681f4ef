"""Exit with 0 if a process of Holdfast in this container is alive, for Docker's HEALTHCHECK."""

from __future__ import annotations

import sys
from urllib.request import urlopen

PORTS = (3777, 9464)
"""The port of the API, and the one of `work --metrics-port`."""


def is_alive(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2):
            return True
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(not any(map(is_alive, map(int, sys.argv[1:]) if sys.argv[1:] else PORTS)))

"""Where workers are born: imports everything once, then forks one per line of orders and prints its process id."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path

from holdfast.store.postgres import store as postgres
from holdfast.store.sqlite import (
    store as sqlite,
)  # imported before the fork, so that a birth costs nothing
from tests.crash.worker import Orders, run

IMPORTED = (postgres, sqlite)


def bear(orders: Orders) -> None:
    """The child: never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(quiet, stream)
    code = 1
    try:
        run(orders)
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it was is written down for the test
        Path(orders.folder, f"died-{os.getpid()}").write_text(traceback.format_exc())
    finally:
        os._exit(code)


def main() -> None:
    # The dead are buried by the system: whether a process id is there says whether the process lives.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            bear(Orders(**json.loads(line)))
        print(child, flush=True)


if __name__ == "__main__":
    main()

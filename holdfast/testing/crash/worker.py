"""A worker of the demonstration. It ends with the process that started it, however that ends."""

from __future__ import annotations

import os
import signal
import sys
import threading

from holdfast.cli import main


def stop_after_parent() -> None:
    """Wait for the end of the input, whose other end the parent holds, and stop this process."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=stop_after_parent, daemon=True).start()
    main(["work", *sys.argv[1:]])

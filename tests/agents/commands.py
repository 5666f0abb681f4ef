"""Command agents that are shell scripts, and a search for processes that they leave behind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

TIMEOUT_SECONDS = 20.0


class Scripts:
    """A folder of scripts. A mark in their environment identifies their processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = f"mark-{uuid4()}"

    def write(self, text: str, name: str = "agent.sh") -> str:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    def left(self) -> dict[int, str]:
        """Return the command lines of running processes with the mark, by pid."""
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (process / "environ").read_bytes():
                    found[int(process.name)] = (
                        (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    )
            except OSError:
                continue
        found.pop(os.getpid(), None)
        return found

    def until(self, look: Callable[[dict[int, str]], object]) -> bool:
        """Whether what is left looks so, soon."""
        give_up_at = time.monotonic() + TIMEOUT_SECONDS
        while not look(self.left()):
            if time.monotonic() > give_up_at:
                return False
            time.sleep(0.02)
        return True

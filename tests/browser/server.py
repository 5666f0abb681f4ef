"""`holdfast up` as a process that can be stopped, killed and started again at the same address."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parents[2]


class Server:
    """One home, one port; its link logs a browser in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.link = ""
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(signal.SIGKILL)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "holdfast",
            "up",
            "--home",
            str(self.folder / "home"),
            "--port",
            str(self.port),
        ]
        self._process = subprocess.Popen(
            [*command, "--app", "tests.browser.app:app"],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("open "):
                self.link = line.split()[1]
                return
        raise AssertionError("the server did not start")

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def allow(self, name: str) -> None:
        """Makes the file that an agent waits for."""
        (self.folder / name).touch()

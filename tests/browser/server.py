"""A server as a process that can be stopped, killed and started again at the same address."""

from __future__ import annotations

import signal
import socket
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.cli.shell import Running, Shell


class Server:
    """One home, one port; its link logs a browser in."""

    def __init__(
        self,
        folder: Path,
        *command: str,
        database: str | None = None,
    ) -> None:
        self.folder = folder
        self.database = database or f"sqlite:///{folder}/home/holdfast.db"
        self._command = command or ("up", "--app", "tests.browser.app:app")
        self._shell = Shell(folder, database)
        # Bound until the test ends, so that nobody else gets the port between two starts.
        self._port_holder = socket.socket()
        self._port_holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port_holder.bind(("127.0.0.1", 0))
        self.port = self._port_holder.getsockname()[1]
        self.link = ""
        self.sessions: dict[tuple[str, str], Any] = {}
        """Cookies of logged-in browsers, by role and name, so that each logs in once."""
        self._stack = ExitStack()
        self._running: Running | None = None

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end(signal.SIGKILL)
        self._port_holder.close()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        options = ("--home", str(self.folder / "home"), "--port", str(self.port))
        self._running = self._stack.enter_context(self._shell.running(*self._command, *options))
        self.link = self.login("--name", "tester")

    def login(self, *options: str) -> str:
        """A login link."""
        home = str(self.folder / "home")
        return self._shell.out("login", "--home", home, *options).strip()

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._running is not None:
            self._running.signal(how)
            self._running.end()
            self._stack.close()
            self._running = None

    def allow(self, name: str) -> None:
        """Create the file that an agent waits for."""
        (self.folder / name).touch()

    def forbid(self, name: str) -> None:
        """Remove that file again."""
        (self.folder / name).unlink(missing_ok=True)

"""A real Matrix homeserver for tests: Synapse on SQLite, on the loopback interface only."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from holdfast.testing.servers import Unavailable

SCRIPT = Path(__file__).parents[3] / "tools" / "synapse"
START_SECONDS = 60
SECRET = "for tests only"  # noqa: S105
LARGEST_UPLOAD = 1024 * 1024

# Ends the server once no test process holds the lock any more, however they ended.
SUPERVISE = """
lock=$1; shift
"$@" & server=$!
{ flock -x "$lock" true; kill -TERM $server 2>/dev/null; } &
wait $server
"""


def synapse_python() -> str:
    """Return a Python with Synapse, which tools/synapse installs once."""
    if not SCRIPT.exists():
        raise Unavailable("Synapse is started by tools/synapse, which is not here")
    found = subprocess.run([str(SCRIPT)], capture_output=True, text=True, check=False)
    if found.returncode:
        raise Unavailable(f"Synapse cannot be installed: {found.stderr.strip()[-500:]}")
    return found.stdout.strip()


class Synapse:
    """A homeserver in a folder. It can be stopped, killed and started again."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.url = f"http://127.0.0.1:{port}"
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        self.prepare()
        with self.log() as log:
            self._process = subprocess.Popen(self.command(), **log)
        self.await_ready()

    def stop(self) -> None:
        self._end(kill=False)

    def kill(self) -> None:
        self._end(kill=True)

    def _end(self, *, kill: bool) -> None:
        if self._process is not None:
            (self._process.kill if kill else self._process.terminate)()
            self._process.wait(START_SECONDS)
            self._process = None

    def prepare(self) -> None:
        """Write the configuration, unless it is there."""
        if not (self.folder / "homeserver.json").exists():
            self._write("log.json", _logging())
            self._write("homeserver.json", _configuration(self.folder, self._port))
            with self.log() as log:
                subprocess.run([*self.command(), "--generate-keys"], check=True, **log)

    def command(self) -> list[str]:
        config = str(self.folder / "homeserver.json")
        return [synapse_python(), "-m", "synapse.app.homeserver", "-c", config]

    @contextmanager
    def log(self) -> Iterator[dict[str, Any]]:
        """Yield options of a process that writes to the server's log."""
        with open(self.folder / "server.log", "ab") as log:
            yield {"stdout": log, "stderr": log, "stdin": subprocess.DEVNULL, "cwd": self.folder}

    def await_ready(self) -> None:
        give_up_at = time.monotonic() + START_SECONDS
        while time.monotonic() < give_up_at:
            try:
                if self._request("GET", "/health")[0] == 200:
                    return
            except OSError:
                time.sleep(0.05)
        log = (self.folder / "server.log").read_text(errors="replace")
        raise Unavailable(f"Synapse did not start: {log[-2000:]}")

    def register(
        self, name: str, display_name: str | None = None, *, is_admin: bool = False
    ) -> tuple[str, str]:
        """Create an account. Returns its user id and an access token."""
        path = "/_synapse/admin/v1/register"
        nonce = json.loads(self._request("GET", path)[1])["nonce"]
        signed = "\0".join((nonce, name, "password", "admin" if is_admin else "notadmin")).encode()
        body = {"nonce": nonce, "username": name, "password": "password", "admin": is_admin}
        body |= {
            "displayname": display_name or name,
            "mac": hmac.new(SECRET.encode(), signed, hashlib.sha1).hexdigest(),
        }
        found = json.loads(self._request("POST", path, json.dumps(body))[1])
        return found["user_id"], found["access_token"]

    def limit(self, user: str, admin_token: str, *, per_second: int, burst: int) -> None:
        """Limit the messages of one account, as homeservers limit all."""
        path = f"/_synapse/admin/v1/users/{user}/override_ratelimit"
        body = {"messages_per_second": per_second, "burst_count": burst}
        status, answer = self._request("POST", path, json.dumps(body), admin_token)
        assert status == 200, answer

    def _request(
        self, method: str, path: str, body: str | None = None, token: str = ""
    ) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        with closing(HTTPConnection("127.0.0.1", self._port, timeout=30)) as connection:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def _write(self, name: str, value: object) -> None:
        (self.folder / name).write_text(json.dumps(value))


@contextmanager
def shared_synapse(folder: Path) -> Iterator[Synapse]:
    """Yield the server of a folder; the first process starts it, and it ends after the last."""
    users = os.open(folder / "users.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(users, fcntl.LOCK_SH)
    try:
        with open(folder / "start.lock", "w") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)
            port_file = folder / "port"
            if port_file.exists():
                server = Synapse(folder, int(port_file.read_text()))
            else:
                server = Synapse(folder, free_port())
                server.prepare()
                lock = str(folder / "users.lock")
                # In a session of its own, since other processes use it after this one.
                command = ["setsid", "-f", "sh", "-c", SUPERVISE, "sh", lock, *server.command()]
                with server.log() as log:
                    subprocess.run(command, check=True, **log)
                server.await_ready()
                port_file.write_text(server.url.rpartition(":")[2])
        yield server
    finally:
        os.close(users)


@contextmanager
def own_synapse() -> Iterator[Synapse]:
    """Yield a server that no other test uses, so that it can be stopped and killed."""
    with tempfile.TemporaryDirectory(prefix="holdfast-synapse-") as folder:
        server = Synapse(Path(folder), free_port())
        server.start()
        try:
            yield server
        finally:
            server.kill()


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def _logging() -> dict[str, Any]:
    handler = {"class": "logging.StreamHandler", "level": "WARNING"}
    return {
        "version": 1,
        "handlers": {"console": handler},
        "root": {"level": "WARNING", "handlers": ["console"]},
    }


def _configuration(folder: Path, port: int) -> dict[str, Any]:
    unlimited = {"per_second": 100_000, "burst_count": 100_000}
    kinds = ("message", "registration", "admin_redaction", "room_creation", "media_create")
    return {
        "server_name": "localhost",
        "listeners": [
            {
                "port": port,
                "type": "http",
                "bind_addresses": ["127.0.0.1"],
                "resources": [{"names": ["client", "media"]}],
            }
        ],
        "database": {"name": "sqlite3", "args": {"database": str(folder / "homeserver.db")}},
        "media_store_path": str(folder / "media"),
        "signing_key_path": str(folder / "signing.key"),
        "registration_shared_secret": SECRET,
        "macaroon_secret_key": SECRET,
        "form_secret": SECRET,
        "log_config": str(folder / "log.json"),
        "pid_file": str(folder / "server.pid"),
        "report_stats": False,
        "trusted_key_servers": [],
        "federation_domain_whitelist": [],
        "presence": {"enabled": False},
        "bcrypt_rounds": 4,
        "max_upload_size": LARGEST_UPLOAD,
        **{f"rc_{kind}": unlimited for kind in kinds},
        "rc_login": dict.fromkeys(("address", "account", "failed_attempts"), unlimited),
        "rc_joins": dict.fromkeys(("local", "remote"), unlimited),
        "rc_invites": dict.fromkeys(("per_room", "per_user", "per_issuer"), unlimited),
    }

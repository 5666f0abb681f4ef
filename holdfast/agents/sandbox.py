"""Sandboxes for command agents: none, bubblewrap, or another user of the machine."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from holdfast.errors import HoldfastError

SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix",
    "/gnu",
    "/run/current-system",
    "/run/systemd/resolve",
)
"""System folders that a program in bubblewrap can read, if they exist."""
SECRETS = (
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssh",
    "/etc/ssl/private",
    "/etc/holdfast",
)
"""System files and folders that are hidden, even from a program that runs as root."""
BESIDE_BIN = ("bin", "lib", "lib64", "libexec", "pyvenv.cfg")
"""Parts of an installation, such as a virtual environment. A program in its bin needs them all."""
PROBE_WITHIN = 10
USER = "user:"
NO_PRIVILEGES = ("--no-new-privs", "--bounding-set=-all", "--inh-caps=-all")


@dataclass(frozen=True, slots=True)
class View:
    """Files and folders that a program can use beside the system, and whether it has the
    network."""

    workspace: Path
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    """Files and folders that hold secrets. They are hidden even inside readable folders."""
    network: bool = True


class Sandbox(Protocol):
    """A way to run a program apart from the worker."""

    @property
    def name(self) -> str: ...

    def wrap(self, command: Sequence[str]) -> list[str]:
        """Return a command that runs the given one in the sandbox."""


def sandbox_of(kind: str, view: View) -> Sandbox:
    """Return the sandbox that a setting names.

    Raises HoldfastError if it does not work on this machine."""
    if kind.startswith(USER):
        return OtherUser.from_name(kind.removeprefix(USER), view.workspace)
    if kind == "none":
        return NoSandbox()
    problem = bubblewrap_problem()
    if problem is None:
        return Bubblewrap(view)
    if kind == "auto":
        return NoSandbox(problem)
    raise HoldfastError(f"bubblewrap does not work here: {problem}")


@dataclass(frozen=True, slots=True)
class NoSandbox:
    """No sandbox: the program may do everything the worker's user may."""

    problem: str = ""
    """Reason why "auto" found no sandbox that works."""
    name: str = "none"

    def wrap(self, command: Sequence[str]) -> list[str]:
        return list(command)


@dataclass(frozen=True, slots=True)
class OtherUser:
    """Runs the program as another user. The worker must run as root."""

    name: str
    uid: int
    gid: int
    workspace: Path

    @classmethod
    def from_name(cls, user: str, workspace: Path) -> OtherUser:
        try:
            known = pwd.getpwnam(user)
        except KeyError:
            raise HoldfastError(f"there is no user {user!r} on this machine") from None
        if known.pw_uid == 0:
            raise HoldfastError("a sandbox of the user root keeps nothing apart; name another user")
        if os.geteuid() != 0 or shutil.which("setpriv") is None:
            raise HoldfastError(
                f"running as user {user!r} needs a worker that runs as root, and setpriv"
            )
        return cls(f"{USER}{user}", known.pw_uid, known.pw_gid, workspace)

    def wrap(self, command: Sequence[str]) -> list[str]:
        """Return the command under the other user.

        The user gets the workspace, and may pass the folders above it without reading them."""
        os.chown(self.workspace, self.uid, self.gid)
        for folder in (self.workspace.parent, self.workspace.parent.parent):
            folder.chmod(folder.stat().st_mode | 0o011)
        ids = ["--reuid", str(self.uid), "--regid", str(self.gid), "--clear-groups"]
        return ["setpriv", *ids, *NO_PRIVILEGES, "--", *command]


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """Shows the program a read-only system, its workspace, an empty home and /tmp, no other
    process."""

    view: View
    name: str = "bubblewrap"

    def wrap(self, command: Sequence[str]) -> list[str]:
        view = self.view
        secrets = [*map(Path, SECRETS), *view.hidden]
        shown = [*view.readable, *view.writable, *_required_paths(command)]
        # Secrets are covered first. Paths inside a secret folder are mounted after that.
        wide = [path for path in shown if any(_path_within(path, secret) for secret in secrets)]
        return [
            *_bubblewrap(view.network),
            *_empty_home(),
            *self._bind(wide),
            *_cover_secrets([*map(Path, SYSTEM), *wide], secrets),
            *self._bind(path for path in shown if path not in wide),
            *("--bind", str(view.workspace), str(view.workspace)),
            *("--chdir", str(view.workspace), "--", *command),
        ]

    def _bind(self, paths: Iterable[Path]) -> Iterator[str]:
        for path in paths:
            yield from (
                "--bind" if path in self.view.writable else "--ro-bind",
                str(path),
                str(path),
            )


@cache
def bubblewrap_problem() -> str | None:
    """Run a program in bubblewrap once. Returns the error, or None if it works."""
    try:
        command = [*_bubblewrap(network=False), "--", "true"]
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            timeout=PROBE_WITHIN,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        return "bwrap is not installed (Debian: apt-get install bubblewrap)"
    except subprocess.CalledProcessError as error:
        return (
            error.stderr.decode(errors="replace").strip()
            or f"bwrap ended with exit code {error.returncode}"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None


def _bubblewrap(network: bool) -> list[str]:
    """Return the first options of bwrap: namespaces, no capabilities, a read-only system."""
    apart = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    system = [word for folder in SYSTEM for word in ("--ro-bind-try", folder, folder)]
    empty = ["--proc", "/proc", "--dev", "/dev", "--unsetenv", "TMPDIR"]
    empty += ["--tmpfs", "/tmp", "--tmpfs", "/var/tmp"]  # noqa: S108
    offline = [] if network else ["--unshare-net"]
    return ["bwrap", "--die-with-parent", *apart, *offline, "--cap-drop", "ALL", *system, *empty]


def _empty_home() -> list[str]:
    home = Path.home()
    return [] if home == Path("/") or _is_in_system(home) else ["--tmpfs", str(home)]


def _is_in_system(path: Path) -> bool:
    return any(_is_in(path, Path(folder)) for folder in SYSTEM)


def _is_in(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents


def _path_within(shown: Path, secret: Path) -> Path | None:
    """Return the path of a secret below a visible folder, following links; None if it is
    outside."""
    source, target = shown.resolve(), secret.resolve()
    return shown / target.relative_to(source) if _is_in(target, source) else None


def _cover_secrets(shown: Iterable[Path], secrets: Sequence[Path]) -> Iterator[str]:
    """Cover visible secrets: a folder with an empty one, a file with /dev/null."""
    found = [
        path for folder in shown for secret in secrets if (path := _path_within(folder, secret))
    ]
    for path in dict.fromkeys(found):
        if os.path.exists(path):
            yield from (
                ("--tmpfs", str(path)) if path.is_dir() else ("--ro-bind", os.devnull, str(path))
            )


def _required_paths(command: Sequence[str]) -> list[Path]:
    """Return what the command needs: its program and interpreter with their installations, and the
    absolute paths among its arguments."""
    program, *arguments = command
    files = [
        Path(argument) for argument in arguments if argument.startswith("/") and len(argument) > 1
    ]
    programs = [Path(program), *_interpreter(Path(program))]
    parts = [
        part for path in programs for one in (path, path.resolve()) for part in _installation(one)
    ]
    found = [path for path in (*parts, *files) if os.path.exists(path) and not _is_in_system(path)]
    return list(dict.fromkeys(found))


def _installation(program: Path) -> list[Path]:
    if program.parent.name != "bin":
        return [program]
    return [program.parent.parent / part for part in BESIDE_BIN]


def _interpreter(script: Path) -> list[Path]:
    """Return the program in the first line of a script; `env` is resolved on the PATH."""
    try:
        with script.open("rb") as file:
            line = file.readline(512)
    except OSError:
        return []
    words = line[2:].decode(errors="replace").split() if line.startswith(b"#!") else []
    if words and Path(words[0]).name == "env":
        words = [found for word in words[1:] if word[0] != "-" and (found := shutil.which(word))]
    return [Path(words[0])] if words else []

"""Where a program of others runs: as we do, in a sandbox of bubblewrap, or as another user."""

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

SYSTEM: tuple[str, ...] = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
)
SYSTEM = (*SYSTEM, "/nix", "/gnu", "/run/current-system", "/run/systemd/resolve")
"""Folders of the system that a program in bubblewrap can read, where they exist."""
SECRETS: tuple[str, ...] = (
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssh",
)
SECRETS = (*SECRETS, "/etc/ssl/private", "/etc/holdfast")
"""Parts of the system that are hidden even from a program that runs as root."""
BESIDE_BIN = ("bin", "lib", "lib64", "libexec", "pyvenv.cfg")
"""Parts of an installation such as a virtual environment; a program in its bin needs the others."""
PROBE_SECONDS = 10
USER = "user:"


@dataclass(frozen=True, slots=True)
class View:
    """Parts of the machine that a program gets beside the system."""

    workspace: Path
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    """Files and folders that hold secrets, out of sight even inside what is readable."""
    network: bool = True


class Sandbox(Protocol):
    @property
    def name(self) -> str: ...

    def wrap(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs another one in the sandbox."""


def sandbox_of(kind: str, view: View) -> Sandbox:
    """Return the sandbox that a setting names; refuse one that does not work on this machine."""
    if kind.startswith(USER):
        return OtherUser.named(kind.removeprefix(USER), view.workspace)
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
    """The program may do what the worker's user may."""

    problem: str = ""
    """Reason why there is none, where "auto" looked for one."""
    name: str = "none"

    def wrap(self, command: Sequence[str]) -> list[str]:
        return list(command)


@dataclass(frozen=True, slots=True)
class OtherUser:
    """The program runs as a user of its own, which needs a worker that runs as root."""

    name: str
    uid: int
    gid: int
    workspace: Path

    @classmethod
    def named(cls, user: str, workspace: Path) -> OtherUser:
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
        """Hand the workspace to the user, and let him pass through the folders above it without reading them."""
        os.chown(self.workspace, self.uid, self.gid)
        for folder in (self.workspace.parent, self.workspace.parent.parent):
            folder.chmod(folder.stat().st_mode | 0o011)
        ids = ["--reuid", str(self.uid), "--regid", str(self.gid), "--clear-groups"]
        return [
            "setpriv",
            *ids,
            "--no-new-privs",
            "--bounding-set=-all",
            "--inh-caps=-all",
            "--",
            *command,
        ]


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """The program sees a read-only system, its workspace, an empty home and /tmp, and no process but its own."""

    view: View
    name: str = "bubblewrap"

    def wrap(self, command: Sequence[str]) -> list[str]:
        view = self.view
        secrets = [*map(Path, SECRETS), *view.hidden]
        shown = [*view.readable, *view.writable, *_needed(command)]
        # Secrets are covered first; paths named inside of a secret folder are mounted after.
        wide = [path for path in shown if any(_masked(path, secret) for secret in secrets)]
        return [
            *_bubblewrap(view.network),
            *_empty_home(),
            *self._bound(wide),
            *_covers([*map(Path, SYSTEM), *wide], secrets),
            *self._bound(path for path in shown if path not in wide),
            *("--bind", str(view.workspace), str(view.workspace)),
            *("--chdir", str(view.workspace), "--", *command),
        ]

    def _bound(self, paths: Iterable[Path]) -> Iterator[str]:
        for path in paths:
            yield from (
                "--bind" if path in self.view.writable else "--ro-bind",
                str(path),
                str(path),
            )


@cache
def bubblewrap_problem() -> str | None:
    """Run a program in a sandbox once. Returns what went wrong, None if it works."""
    try:
        command = [*_bubblewrap(network=False), "--", "true"]
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            timeout=PROBE_SECONDS,
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
    """Begin a command line: namespaces, no capabilities, and the system read-only."""
    apart = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    system = [word for folder in SYSTEM for word in ("--ro-bind-try", folder, folder)]
    empty = ["--proc", "/proc", "--dev", "/dev", "--unsetenv", "TMPDIR"]
    empty += ["--tmpfs", "/tmp", "--tmpfs", "/var/tmp"]  # noqa: S108
    offline = [] if network else ["--unshare-net"]
    return ["bwrap", "--die-with-parent", *apart, *offline, "--cap-drop", "ALL", *system, *empty]


def _empty_home() -> list[str]:
    home = Path.home()
    return [] if home == Path("/") or _is_seen(home) else ["--tmpfs", str(home)]


def _is_seen(path: Path) -> bool:
    return any(_is_in(path, Path(folder)) for folder in SYSTEM)


def _is_in(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents


def _masked(shown: Path, secret: Path) -> Path | None:
    """Find the path by which a secret would be seen inside of something shown, through links, too."""
    source, target = shown.resolve(), secret.resolve()
    return shown / target.relative_to(source) if _is_in(target, source) else None


def _covers(shown: Iterable[Path], secrets: Sequence[Path]) -> Iterator[str]:
    """Cover secrets that would be visible: a folder by an empty one, a file by nothing."""
    found = [path for folder in shown for secret in secrets if (path := _masked(folder, secret))]
    for path in dict.fromkeys(found):
        if os.path.exists(path):
            yield from (
                ("--tmpfs", str(path)) if path.is_dir() else ("--ro-bind", os.devnull, str(path))
            )


def _needed(command: Sequence[str]) -> list[Path]:
    """List the program, its interpreter with their installations, and files named in full among the arguments."""
    program, *arguments = command
    files = [
        Path(argument) for argument in arguments if argument.startswith("/") and len(argument) > 1
    ]
    programs = [Path(program), *_interpreter(Path(program))]
    parts = [
        part for path in programs for one in (path, path.resolve()) for part in _installation(one)
    ]
    found = [path for path in (*parts, *files) if os.path.exists(path) and not _is_seen(path)]
    return list(dict.fromkeys(found))


def _installation(program: Path) -> list[Path]:
    if program.parent.name != "bin":
        return [program]
    return [program.parent.parent / part for part in BESIDE_BIN]


def _interpreter(script: Path) -> list[Path]:
    """Find the program that the first line of a script names, through `env` on the PATH."""
    try:
        with script.open("rb") as file:
            line = file.readline(512)
    except OSError:
        return []
    words = line[2:].decode(errors="replace").split() if line.startswith(b"#!") else []
    if words and Path(words[0]).name == "env":
        words = [
            found
            for word in words[1:]
            if not word.startswith("-") and (found := shutil.which(word))
        ]
    return [Path(words[0])] if words else []

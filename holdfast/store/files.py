"""The files root: folders of conversations, and the files that a reply may send.

Files that came with messages are in a folder per conversation, and only that conversation can send
them. All other files below the root were put there to be sent. Links and `..` are refused, so a
path always shows the location of its file."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path, PurePath
from typing import BinaryIO

from holdfast.message import Payload, channel_of, conversation_of, subject_of

CONVERSATIONS = "conversations"
FORMER_DOWNLOADS = "slack"
"""Folder of downloads of releases before 0.5. Their owner is unknown, so nobody can send them."""
UPLOADS = "uploads"
"""Folder of uploads by their ids. Only the conversation whose message carries one can read it."""
PERSON = "person-"
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


def conversation_folder(root: Path, channel: str, conversation: str) -> Path:
    """Return the folder of a conversation's files. It need not exist."""
    source = f"{channel}\0{conversation}".encode(errors="replace")
    return root / CONVERSATIONS / hashlib.sha256(source).hexdigest()[:32]


def person_folder(root: Path, payload: Payload) -> Path:
    """Return the folder of one person's files in a conversation. It need not exist.

    It is below the folder of the conversation. Its name is a hash of the memory subject, so that
    `forget` finds it."""
    folder = conversation_folder(root, channel_of(payload), conversation_of(payload))
    return folder / _person_name(subject_of(payload))


def _person_name(subject: str) -> str:
    return f"{PERSON}{hashlib.sha256(subject.encode(errors='replace')).hexdigest()[:32]}"


def resolve_below(root: Path, name: str) -> Path | None:
    """Return the path of a name below a folder, or None if it leads elsewhere.

    The file need not exist."""
    try:
        folder = root.resolve()
        parts = _parts(folder, root, name)
        path = folder.joinpath(*parts)
        steps = [folder.joinpath(*parts[:depth]) for depth in range(1, len(parts) + 1)]
        return path if parts and not any(step.is_symlink() for step in steps) else None
    except (OSError, ValueError, RuntimeError):
        # No file can have this name, or links form a circle.
        return None


def _parts(folder: Path, root: Path, name: str) -> tuple[str, ...]:
    """Return the parts of a name below the folder; none if it leads elsewhere.

    The name may be absolute."""
    path = PurePath(name)
    for base in (folder, root.absolute()):
        if path.is_absolute() and path.is_relative_to(base):
            path = path.relative_to(base)
    return () if path.is_absolute() or ".." in path.parts or "\0" in name else path.parts


def relative_path(root: Path, name: str) -> str | None:
    """Return the path of an existing file relative to the folder, or None if it lies elsewhere."""
    path = resolve_below(root, name)
    try:
        return (
            path.relative_to(root.resolve()).as_posix()
            if path is not None and path.is_file()
            else None
        )
    except OSError:
        return None


def sendable_path(root: Path, name: str, channel: str, conversation: str) -> str | None:
    """Return the path below the root of a file that a conversation may send, or None.

    The file need not exist."""
    path = resolve_below(root, name)
    if path is None:
        return None
    relative = path.relative_to(root.resolve())
    # Some file systems ignore case.
    first, *rest = [part.casefold() for part in relative.parts]
    if first in (FORMER_DOWNLOADS, UPLOADS):
        return None
    own = conversation_folder(root, channel, conversation).name if conversation else None
    return None if first == CONVERSATIONS and rest[:1] != [own] else relative.as_posix()


def _open_folder(root: Path, folders: Sequence[str]) -> int:
    """Open the last of nested folders below `root` without following links. Returns its
    descriptor."""
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for folder in folders:
        try:
            inner = os.open(folder, DIRECTORY, dir_fd=at)
        finally:
            os.close(at)
        at = inner
    return at


@contextmanager
def open_below(root: Path, name: str) -> Iterator[BinaryIO]:
    """Open a regular file below a folder.

    It opens folder by folder and follows no link, not even one that was created just now."""
    path = resolve_below(root, name)
    if path is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    *folders, last = path.relative_to(root.resolve()).parts
    at = _open_folder(root.resolve(), folders)
    try:
        with open(os.open(last, FILE, dir_fd=at), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise IsADirectoryError(errno.EISDIR, "not a regular file", name)
            yield file
    finally:
        os.close(at)


def write_file(path: Path, content: bytes | BinaryIO) -> None:
    """Write a file that only this user can read, in a folder that only this user can open."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb"
    ) as file:
        if isinstance(content, bytes):
            file.write(content)
        else:
            shutil.copyfileobj(content, file)


def forget(root: Path, subject: str) -> int:
    """Delete a person's files in every conversation. Returns their number."""
    removed = 0
    for folder in (root / CONVERSATIONS).glob(f"*/{_person_name(subject)}"):
        removed += sum(path.is_file() for path in folder.rglob("*"))
        shutil.rmtree(folder)
        with suppress(OSError):
            folder.parent.rmdir()
    return removed


def count_unattributed(root: Path) -> int:
    """Count files of conversations that name no person: those of releases before 0.5."""
    areas = (root / CONVERSATIONS, root / FORMER_DOWNLOADS)
    paths = [path.relative_to(root) for area in areas for path in area.rglob("*") if path.is_file()]
    return sum(not any(part.startswith(PERSON) for part in path.parts[2:3]) for path in paths)


def sweep(root: Path, keep_for: timedelta) -> int:
    """Delete files of conversations older than `keep_for`, and empty folders as old.

    Returns the number of files."""
    oldest, removed = time.time() - keep_for.total_seconds(), 0
    for area in (root / CONVERSATIONS, root / FORMER_DOWNLOADS):
        for folder, _, names in os.walk(area, topdown=False):
            # Look at the folder first: deleting a file changes its time. A new folder is left
            # alone, because somebody is about to use it.
            is_old = Path(folder) != area and _is_older(Path(folder), oldest)
            old = [path for name in names if _is_older(path := Path(folder, name), oldest)]
            for path in old:
                path.unlink(missing_ok=True)
            removed += len(old)
            if is_old:
                with suppress(OSError):
                    Path(folder).rmdir()
    return removed


def _is_older(path: Path, oldest: float) -> bool:
    try:
        return path.lstat().st_mtime < oldest
    except OSError:
        return False

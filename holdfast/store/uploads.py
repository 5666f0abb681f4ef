"""Files of conversations: uploads of people, and what agents sent with their answers."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any

from holdfast.queue.store import Store
from holdfast.store.files import UPLOADS
from holdfast.store.scoped import Dialect, dialect_of

COLUMNS = "id, owner, name, type, size, created_at, message_id, agent, path, conversation"
LONGEST_NAME = 200
OTHER_TYPE = "application/octet-stream"
TYPES = {
    "avif": "image/avif", "gif": "image/gif", "jpeg": "image/jpeg", "jpg": "image/jpeg",
    "png": "image/png", "webp": "image/webp", "pdf": "application/pdf",
    "mp3": "audio/mpeg", "m4a": "audio/mp4", "ogg": "audio/ogg", "wav": "audio/wav",
    "mp4": "video/mp4", "webm": "video/webm",
    "txt": "text/plain", "log": "text/plain", "md": "text/markdown", "csv": "text/csv",
    "json": "application/json", "zip": "application/zip", "svg": "image/svg+xml",
    "html": "text/html", "htm": "text/html", "xml": "application/xml",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}  # fmt: skip
"""Types by the ending of a name. The machine's own table is not used, since machines differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file of a conversation; `message_id` is None until a message carries it."""

    id: str
    owner: str
    name: str
    type: str
    size: int
    created_at: datetime
    message_id: str | None = None
    agent: str = ""
    path: str = ""
    """Where it is below the files root; '' for an upload."""
    conversation: str = ""


class Files:
    """The files of conversations in a store's database; their content is below the root."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._dialect: Dialect = dialect_of(store)
        self._table = f"{self._dialect.schema}file"

    async def add(self, file: StoredFile) -> None:
        """Store the row of an upload whose content is on disk already."""
        names = ("id", "owner", "name", "type", "size", "created_at")
        values = {name: getattr(file, name) for name in names}
        values["created_at"] = self._dialect.moment(file.created_at)
        marks = ", ".join(map(self._mark, names))
        await self._dialect.write(
            f"insert into {self._table} ({', '.join(names)}) values ({marks}) returning id", values
        )

    async def find(self, ids: Sequence[str]) -> list[StoredFile]:
        """Return the files that exist, in the order of the ids."""
        found = {file.id: file for file in await self._select(self._dialect.texts("ids"), ids=ids)}
        return [found[id_] for id_ in ids if id_ in found]

    async def of_messages(self, message_ids: Sequence[str]) -> list[StoredFile]:
        """List the files of messages and of the answers to them, oldest first."""
        where = self._dialect.texts("ids").replace("id ", "message_id ", 1)
        return await self._select(f"message_id is not null and {where}", ids=message_ids)

    async def unsent(self, owner: str) -> tuple[int, int]:
        """Return the number and the bytes of an owner's files that no message carries."""
        [(count, size)] = await self._dialect.rows(
            f"select count(*), coalesce(sum(size), 0) from {self._table}"
            f" where message_id is null and owner = {self._mark('owner')}",
            {"owner": owner},
        )
        return count, int(size)

    async def delete_unsent(self, id_: str) -> bool:
        """Delete the row of an upload that no message carries. Returns whether there was one."""
        where = f"id = {self._mark('id')} and message_id is null"
        return bool(await self._delete(where, id=id_))

    async def uploads_of(self, subject: str) -> list[str]:
        """Return the ids of a person's uploads."""
        rows = await self._dialect.rows(
            f"select id from {self._table} where subject = {self._mark('subject')} and path = ''",
            {"subject": subject},
        )
        return [id_ for (id_,) in rows]

    async def forget(self, subject: str) -> list[str]:
        """Delete the rows of a person's files. Returns the ids of uploads, whose content has to be
        removed."""
        return await self._delete(f"subject = {self._mark('subject')}", subject=subject)

    async def prune(self, unsent_before: datetime, before: datetime | None) -> list[str]:
        """Delete the rows of old files. Returns the ids of uploads, whose content has to be
        removed."""
        where = f"message_id is null and created_at < {self._mark('unsent_before')}"
        params = {"unsent_before": self._dialect.moment(unsent_before)}
        if before is not None:
            where = f"{where} or created_at < {self._mark('before')}"
            params["before"] = self._dialect.moment(before)
        return await self._delete(where, **params)

    async def known_ids(self, ids: Sequence[str]) -> set[str]:
        """Return those of the ids that have a row."""
        return {file.id for file in await self._select(self._dialect.texts("ids"), ids=ids)}

    async def _select(self, where: str, *, ids: Sequence[str]) -> list[StoredFile]:
        if not ids:
            return []
        rows = await self._dialect.rows(
            f"select {COLUMNS} from {self._table} where {where} order by created_at, id",
            {"ids": self._dialect.array(list(ids))},
        )
        return [self._file(row) for row in rows]

    async def _delete(self, where: str, **params: Any) -> list[str]:
        rows = await self._dialect.write(
            f"delete from {self._table} where {where} returning id, path", params
        )
        return [id_ for id_, path in rows if not path]

    def _file(self, row: Sequence[Any]) -> StoredFile:
        values = dict(zip(COLUMNS.split(", "), row, strict=True))
        return StoredFile(
            **values | {"created_at": self._dialect.to_datetime(values["created_at"])}
        )

    def _mark(self, name: str) -> str:
        return self._dialect.mark.format(name)


def new_file_id() -> str:
    """Return an id that nobody can guess."""
    return f"file_{secrets.token_hex(12)}"


def shown_name(name: str) -> str:
    """Return the name of a file as people see it: without folders and unprintable characters."""
    last = name.replace("\\", "/").rpartition("/")[2]
    clean = "".join(sign for sign in last if sign.isprintable()).strip().lstrip(".")
    if len(clean) <= LONGEST_NAME:
        return clean or "file"
    stem, suffix = PurePath(clean).stem, PurePath(clean).suffix[:20]
    return f"{stem[: LONGEST_NAME - len(suffix)]}{suffix}"


def type_of(name: str) -> str:
    """Return the type of a file by the ending of its name."""
    return TYPES.get(name.rpartition(".")[2].lower(), OTHER_TYPE)


def upload_path(root: Path, id_: str) -> Path:
    """Return the path of the content of an upload."""
    return root / UPLOADS / id_


def remove_uploads(root: Path, ids: Iterable[str]) -> int:
    """Remove the content of uploads. Returns how many there were."""
    removed = 0
    for id_ in ids:
        try:
            upload_path(root, id_).unlink()
            removed += 1
        except FileNotFoundError:
            continue
    return removed


def stray_uploads(root: Path, before: float) -> list[str]:
    """List the names of files with content older than a time: of complete and of broken uploads."""
    try:
        entries = list(os.scandir(root / UPLOADS))
    except FileNotFoundError:
        return []
    return [
        entry.name
        for entry in entries
        if entry.is_file(follow_symlinks=False)
        and entry.stat(follow_symlinks=False).st_mtime < before
    ]

"""Uploads of a message, fetched for its agent, and files of an answer, noted for its readers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.agents.turn import Turn
from holdfast.channels.files import safe_name
from holdfast.chat import AnswerFile
from holdfast.errors import HoldfastError
from holdfast.message import Payload, subject_of
from holdfast.store.files import UPLOADS, open_below, person_folder, write_file
from holdfast.store.uploads import new_file_id, shown_name, type_of

UPLOAD_ID = re.compile(r"file_[0-9a-f]{24}")


async def fetch_uploads(root: Path, payloads: Sequence[Payload]) -> list[Path]:
    """Copy the uploads that messages carry into the folder of their conversation.

    A copy, since an agent may change it. Raises HoldfastError if one is not on this machine."""
    return [
        await asyncio.to_thread(_copy_upload, root, payload, file)
        for payload in payloads
        for file in uploads_of(payload)
    ]


def uploads_of(payload: Payload) -> list[Payload]:
    """Return the uploads that a message of ours carries: id, name, size and type of each."""
    listed = payload.get("files")
    if not isinstance(listed, list) or payload.get("kind") != "message":
        return []
    return [
        file
        for file in listed
        if isinstance(file, dict) and UPLOAD_ID.fullmatch(str(file.get("id")))
    ]


def _copy_upload(root: Path, payload: Payload, file: Payload) -> Path:
    folder = person_folder(root, payload) / UPLOADS / str(file["id"])
    target: Path = folder / safe_name(str(file.get("name") or ""))
    if target.is_file():
        return target
    try:
        with open_below(root, f"{UPLOADS}/{file['id']}") as content:
            # Another attempt sees a whole file, or none.
            part = target.with_name(f"{target.name}.part")
            write_file(part, content)
            part.rename(target)
    except FileNotFoundError:
        raise HoldfastError(
            f"the uploaded file {target.name!r} is not below {root}: it was deleted, or uploaded to"
            " another machine; let all machines share the files root"
        ) from None
    return target


async def answer_files(root: Path, turn: Turn, paths: Iterable[str]) -> list[AnswerFile]:
    """Describe the files of an answer for its conversation. Files that are gone are left out."""
    if not turn.conversation:
        return []
    found = await asyncio.to_thread(_sizes, root, list(paths))
    return [
        AnswerFile(
            id=new_file_id(),
            owner=turn.primary.sent_by,
            name=shown_name(path),
            type=type_of(path),
            size=size,
            path=path,
            agent=turn.agent,
            message_id=turn.message_id or str(turn.primary.id),
            conversation=turn.conversation,
            subject=subject_of(turn.event),
        )
        for path, size in found.items()
    ]


def _sizes(root: Path, paths: Sequence[str]) -> dict[str, int]:
    sizes = {}
    for path in paths:
        with suppress(OSError):
            sizes[path] = (root / path).stat().st_size
    return sizes

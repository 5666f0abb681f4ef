"""Files of a reply: of its conversation, shared ones, and those of the agent's workspace."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from holdfast.agents.turn import Turn
from holdfast.message import text_of, written_of
from holdfast.routing.tags import Tag
from holdfast.store.files import open_below, person_folder, relative_path, sendable_path, write_file
from holdfast.telemetry import FILES_NOT_SENT
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

REFUSED = "files_refused"
"""Metadata key of a reply: the files that were not sent."""
LARGEST = 100 * 1024 * 1024
SENT = "sent"
"""Folder for copies from workspaces, inside the folder of a person in a conversation."""
SEND_FILE = re.compile(r"send_file\s*+:\s*+")


class Attachments:
    """Finds the files that replies may send.

    A file in a workspace is copied, so that later changes of it are not sent."""

    def __init__(self, root: Path, workspaces: Mapping[str, Path] = MappingProxyType({})) -> None:
        self._root = root
        self._workspaces = workspaces

    async def attach_tagged(self, turn: Turn, text: str, tags: Iterable[Tag]) -> dict[Tag, str]:
        """Return the paths of file tags, below the root. Tags in quotations do not count."""
        found: dict[Tag, str] = {}
        for tag in tags:
            if tag.kind == "file" and tag.text and not _is_quoted(turn, text, tag):
                name = sendable_path(self._root, tag.text, turn.channel, turn.conversation)
                path = relative_path(self._root, name) if name else None
                path = path or await self._from_workspace(turn, tag.text)
                if path is not None:
                    found[tag] = path
        return found

    async def attach_files(self, turn: Turn, names: Iterable[object]) -> tuple[str, ...]:
        """Return the paths of files that an agent names, below the root.

        Refused files are logged and listed in the metadata. A missing file is left to the
        delivery, whose dead letter somebody sees."""
        found: dict[str, str | None] = {}
        for name in map(str, names):
            path = sendable_path(self._root, name, turn.channel, turn.conversation)
            if path is None or relative_path(self._root, path) is None:
                path = await self._from_workspace(turn, name) or path
            found[name] = path
        self.refuse(turn, [name for name, path in found.items() if path is None])
        return tuple(path for path in found.values() if path is not None)

    def refuse(self, turn: Turn, names: Sequence[str]) -> None:
        """Log the files that are not sent, and list them in the metadata."""
        if names:
            log.error(
                Entry(FILES_NOT_SENT, agent=turn.agent, event_id=turn.primary.id, files=list(names))
            )
            turn.metadata[REFUSED] = [*turn.metadata.get(REFUSED, ()), *names]

    async def _from_workspace(self, turn: Turn, name: str) -> str | None:
        workspace = self._workspaces.get(turn.agent)
        if (
            workspace is None
            or not turn.conversation
            or (path := relative_path(workspace, name)) is None
        ):
            return None
        folder = person_folder(self._root, turn.event) / SENT
        target = folder / str(turn.primary.id) / path.replace("/", "-")[-200:]
        try:
            await asyncio.to_thread(_copy, workspace, path, target)
        except OSError as error:
            log.error(
                Entry(
                    FILES_NOT_SENT,
                    agent=turn.agent,
                    event_id=turn.primary.id,
                    files=[name],
                    error=error,
                )
            )
            return None
        return relative_path(self._root, target.relative_to(self._root).as_posix())


def _copy(workspace: Path, name: str, target: Path) -> None:
    with open_below(workspace, name) as file:
        if file.seek(0, 2) > LARGEST:
            raise OSError(f"{name} has more than {LARGEST // 1024 // 1024} MiB")
        file.seek(0)
        write_file(target, file)


def _is_quoted(turn: Turn, text: str, tag: Tag) -> bool:
    """Return whether a tag is quoted, or repeats one of the messages that this turn answers."""
    line = text[text.rfind("\n", 0, tag.start) + 1 : tag.start]
    if line.lstrip().startswith(">"):
        return True
    texts = (
        str(part or "")
        for event in turn.events
        for part in (written_of(event.event), text_of(event), event.event.get("origin_message"))
    )
    ends = ((part, found.end()) for part in texts for found in SEND_FILE.finditer(part))
    return any(part.startswith(tag.text, end) for part, end in ends)

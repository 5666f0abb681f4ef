"""The files of a reply: those of its conversation, shared ones, and those that the agent made in its workspace."""

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
"""Where the metadata of a reply say what was not sent with it."""
LARGEST = 100 * 1024 * 1024
SENT = "sent"
"""The folder, in that of a person in a conversation, of files that came from workspaces."""
SEND_FILE = re.compile(r"send_file\s*+:\s*+")


class Attachments:
    """Finds what replies may send. A file in a workspace is copied, so that what was meant is what is sent."""

    def __init__(self, root: Path, workspaces: Mapping[str, Path] = MappingProxyType({})) -> None:
        self._root = root
        self._workspaces = workspaces

    async def tagged(self, turn: Turn, text: str, tags: Iterable[Tag]) -> dict[Tag, str]:
        """The paths below the root that file tags of a reply mean. Tags in quoted words of others do not count."""
        found: dict[Tag, str] = {}
        for tag in tags:
            if tag.kind == "file" and tag.text and not _is_quoted(turn, text, tag):
                name = sendable_path(self._root, tag.text, turn.channel, turn.conversation)
                path = relative_path(self._root, name) if name else None
                path = path or await self._from_workspace(turn, tag.text)
                if path is not None:
                    found[tag] = path
        return found

    async def attached(self, turn: Turn, names: Iterable[object]) -> tuple[str, ...]:
        """The paths below the root of files that an agent names. Refused ones are logged and told in the metadata.

        A file that does not exist is left to the delivery, whose dead letter somebody sees."""
        found: dict[str, str | None] = {}
        for name in map(str, names):
            path = sendable_path(self._root, name, turn.channel, turn.conversation)
            if path is None or relative_path(self._root, path) is None:
                path = await self._from_workspace(turn, name) or path
            found[name] = path
        self.refuse(turn, [name for name, path in found.items() if path is None])
        return tuple(path for path in found.values() if path is not None)

    def refuse(self, turn: Turn, names: Sequence[str]) -> None:
        """Say in log and metadata which files are not sent."""
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
    """Whether a tag stands in a quotation, or repeats a tag of the messages that this turn answers."""
    line = text[text.rfind("\n", 0, tag.start) + 1 : tag.start]
    if line.lstrip().startswith(">"):
        return True
    heard = (
        str(part or "")
        for event in turn.events
        for part in (written_of(event.event), text_of(event), event.event.get("origin_message"))
    )
    return any(
        part.startswith(tag.text, found.end())
        for part in heard
        for found in SEND_FILE.finditer(part)
    )

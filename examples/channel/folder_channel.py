"""A channel for a folder: in/ada.001.txt is a message of ada, out/ada has the answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.channels import Setup
from holdfast.channels.admission import Admission, Sender, rules_of
from holdfast.channels.base import Channel, Part, Put
from holdfast.channels.split import split
from holdfast.errors import HoldfastError
from holdfast.message import Payload
from holdfast.queue.event import Event, NewEvent
from holdfast.settings.channels.table import ChannelTable

log = logging.getLogger(__name__)
POLL_SECONDS = 0.1
LIMIT = 1000


class Folder(ChannelTable):
    """The table [channels.folder]."""

    path: Path


def folder_channel(setup: Setup, tables: Sequence[dict[str, Any]]) -> Channel | None:
    """Build the channel; the entry point names this function."""
    if not tables:
        return None
    table = Folder(**tables[0])
    admission = Admission(setup.store, "folder", rules_of(table, setup.settings.pairing))
    return FolderChannel(table.path, admission)


class FolderChannel(Channel):
    """Receives from `in`, delivers to `out`."""

    name = "folder"

    def __init__(self, path: Path, admission: Admission) -> None:
        self._in, self._out = path / "in", path / "out"
        self._in.mkdir(parents=True, exist_ok=True)
        self._admission = admission

    async def run(self, put: Put) -> None:
        while True:
            try:
                for path in sorted(self._in.glob("*.txt")):
                    await self._receive(path.stem, path.read_text(), put)
                    # Only after the commit. After a crash here, the name gives a known id.
                    path.unlink()
            except HoldfastError as error:
                log.warning("could not store a message, will try again: %s", error)
            await asyncio.sleep(POLL_SECONDS)

    async def _receive(self, name: str, text: str, put: Put) -> None:
        sender = name.partition(".")[0]
        payload = {"kind": "message", "channel": self.name, "conversation": f"folder:{sender}"}
        payload |= {"sender": sender, "sender_id": sender, "message": text}
        decision = await self._admission.decide(Sender(id=sender, name=sender))
        await self._admission.announce(decision, payload)
        if decision.is_admitted:
            await put(NewEvent(event=payload, message_id=f"folder_{name}", max_attempts=5))

    def split(self, response: Event) -> Sequence[Part]:
        texts = split(response.event["message"], LIMIT) or ["(no answer)"]
        return [Part(f"{response.id:08}.{number:03}", text) for number, text in enumerate(texts)]

    async def send_part(self, response: Event, part: Part, note: Payload) -> Payload:
        # The name follows from the part, so a part that is sent again replaces itself.
        path = self._out / response.event["sender_id"] / f"{part.key}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(part.text)
        return {"path": str(path)}

"""A person in a test: an account on the homeserver with the requests that tests make."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

from holdfast.channels.matrix.homeserver import Homeserver
from holdfast.channels.matrix.incoming import content_of, edit_of, redacted_by, thread_of

Event = dict[str, Any]
WITHIN = 30.0


class Person:
    """Writes to rooms and reads them, as a client does."""

    def __init__(self, user: str, homeserver: Homeserver) -> None:
        self.user = user
        self.homeserver = homeserver

    async def create_room(self, *invited: str, is_direct: bool = False, **options: Any) -> str:
        preset = "trusted_private_chat" if is_direct else "private_chat"
        content = {"preset": preset, "invite": list(invited), "is_direct": is_direct, **options}
        return str((await self.homeserver.post("createRoom", content=content))["room_id"])

    async def join(self, room: str) -> None:
        await self.homeserver.join(room)

    async def say(
        self, room: str, text: str, *, mention: str | None = None, thread: str | None = None
    ) -> str:
        """Write a message. Returns its event id."""
        content: Event = {"msgtype": "m.text", "body": text}
        if mention is not None:
            content["m.mentions"] = {"user_ids": [mention]}
        if thread is not None:
            content["m.relates_to"] = {"rel_type": "m.thread", "event_id": thread}
        return await self.send(room, content)

    async def send(self, room: str, content: Event, kind: str = "m.room.message") -> str:
        return await self.homeserver.send(room, kind, content, uuid.uuid4().hex)

    async def edit(self, room: str, event: str, text: str) -> str:
        new = {"msgtype": "m.text", "body": text}
        relation = {"rel_type": "m.replace", "event_id": event}
        content = {**new, "body": f"* {text}", "m.new_content": new, "m.relates_to": relation}
        return await self.send(room, content)

    async def redact(self, room: str, event: str) -> None:
        await self.homeserver.redact(room, event, uuid.uuid4().hex)

    async def events(self, room: str) -> list[Event]:
        """Return all events of a room, oldest first."""
        found: list[Event] = []
        at: str | None = None
        while True:
            page = await self.homeserver.messages(room, at, None, 1000)
            found += page["chunk"]
            at = page.get("end")
            if at is None:
                return found[::-1]

    async def messages(self, room: str, sender: str, thread: str | None = None) -> list[Event]:
        """Return the visible messages of a sender, oldest first: edited, and without redacted."""
        events = await self.events(room)
        shown = {
            str(event["event_id"]): event
            for event in events
            if event["type"] == "m.room.message" and event["sender"] == sender
            if content_of(event).get("msgtype") and edit_of(event) is None
        }
        for event in events:
            edit = edit_of(event)
            if edit is not None and edit[0] in shown:
                shown[edit[0]] = shown[edit[0]] | {"content": edit[1] | _relation(shown[edit[0]])}
            elif (removed := redacted_by(event)) is not None:
                shown.pop(removed, None)
        return [one for one in shown.values() if thread is None or thread_of(one) == thread]

    async def answers(
        self,
        room: str,
        sender: str,
        count: int,
        thread: str | None = None,
        within: float = WITHIN,
    ) -> list[str]:
        """Wait for `count` messages of a sender. Returns their texts."""
        give_up_at = time.monotonic() + within
        while True:
            found = await self.messages(room, sender, thread)
            texts = [str(content_of(one).get("body")) for one in found]
            if len(texts) >= count:
                return texts
            assert time.monotonic() < give_up_at, f"{len(texts)} of {count} answers: {texts}"
            # Reading a long room costs the homeserver more than answering in it.
            await asyncio.sleep(max(0.1, len(texts) / 100))


def _relation(event: Event) -> Event:
    relation = content_of(event).get("m.relates_to")
    return {"m.relates_to": relation} if relation else {}

"""The people, rooms and messages of the local Discord."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

Message = dict[str, Any]

DISCORD_EPOCH_MS = 1_420_070_400_000
TEXT, DIRECT, PUBLIC_THREAD = 0, 1, 11
"""Channel types of Discord."""
BOT, ADA, BEN, OTHER_BOT = "700", "701", "702", "799"
GUILD, GENERAL, RANDOM = "100", "200", "201"
APPLICATION = "900"


@dataclass
class Room:
    """A text channel, a thread or a direct message channel."""

    id: str
    name: str
    kind: int = TEXT
    parent: str | None = None
    messages: list[Message] = field(default_factory=list)

    @property
    def last_message_id(self) -> str | None:
        return self.messages[-1]["id"] if self.messages else None

    def find(self, id: str) -> Message | None:
        return next((message for message in self.messages if message["id"] == id), None)

    def as_channel(self, users: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Return the channel object of Discord's API."""
        shared = {"id": self.id, "type": self.kind, "last_message_id": self.last_message_id}
        if self.kind == DIRECT:
            return {**shared, "recipients": [users[self.name]]}
        shared |= {"guild_id": GUILD, "name": self.name, "parent_id": self.parent}
        if self.kind == TEXT:
            return {**shared, "position": 0, "permission_overwrites": [], "nsfw": False}
        metadata = {
            "archived": False,
            "auto_archive_duration": 1440,
            "archive_timestamp": "2026-01-01T00:00:00+00:00",
            "locked": False,
        }
        counts = {"message_count": len(self.messages), "member_count": 1}
        return {**shared, "owner_id": ADA, "thread_metadata": metadata, **counts}


@dataclass
class Guild:
    """All rooms, with the ids that Discord gives: later ones are larger."""

    users: dict[str, dict[str, Any]] = field(default_factory=dict)
    rooms: dict[str, Room] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    _last_id: int = 0

    def __post_init__(self) -> None:
        names = {BOT: "holdfast", ADA: "ada", BEN: "ben", OTHER_BOT: "other bot"}
        for id, name in names.items():
            self.users[id] = {
                "id": id,
                "username": name,
                "discriminator": "0",
                "global_name": name.title(),
                "avatar": None,
                "bot": id in (BOT, OTHER_BOT),
            }
        for room in (Room(GENERAL, "general"), Room(RANDOM, "random")):
            self.rooms[room.id] = room

    def snowflake(self, at: float | None = None) -> str:
        """Return a new id, of the given time or of now."""
        if at is not None:
            return str((int(at * 1000) - DISCORD_EPOCH_MS) << 22)
        made = (int(time.time() * 1000) - DISCORD_EPOCH_MS) << 22
        self._last_id = max(self._last_id + 1, made)
        return str(self._last_id)

    def direct_room(self, person: str) -> Room:
        """Return the direct message channel of a person, opened if needed."""
        for room in self.rooms.values():
            if room.kind == DIRECT and room.name == person:
                return room
        room = Room(self.snowflake(), person, DIRECT)
        self.rooms[room.id] = room
        return room

    def thread(self, parent: str, name: str, id: str | None = None) -> Room:
        """Open a thread. One that starts from a message has the id of that message."""
        room = Room(id or self.snowflake(), name, PUBLIC_THREAD, parent)
        self.rooms[room.id] = room
        return room

    def post(
        self, room: Room, author: str, content: str, *, at: float | None = None, **further: Any
    ) -> Message:
        """Add a message to a room and return it."""
        mentions = [user for id, user in self.users.items() if f"<@{id}>" in content]
        message: Message = {
            "id": self.snowflake(at),
            "channel_id": room.id,
            "author": self.users[author],
            "content": content,
            "timestamp": datetime.now(UTC).isoformat(),
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": mentions,
            "mention_roles": [],
            "attachments": [],
            "embeds": [],
            "pinned": False,
            "type": 0,
            **further,
        }
        room.messages.append(message)
        return message

    def as_guild(self) -> dict[str, Any]:
        """Return the guild object of the event GUILD_CREATE."""
        rooms = [room for room in self.rooms.values() if room.kind != DIRECT]
        listed = {
            kind: [room.as_channel(self.users) for room in rooms if room.kind == kind]
            for kind in (TEXT, PUBLIC_THREAD)
        }
        return {
            "id": GUILD,
            "name": "Holdfast",
            "owner_id": ADA,
            "unavailable": False,
            "channels": listed[TEXT],
            "threads": listed[PUBLIC_THREAD],
            "member_count": len(self.users),
            **{name: [] for name in ("roles", "emojis", "features", "members", "stickers")},
        }

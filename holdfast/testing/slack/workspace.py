"""Content of the fake Slack: people, channels, messages, reactions and files."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]

TEAM = "T0FAKE"
BOT_USER = "U0BOT"
BOT_ID = "B0BOT"
APP = "A0FAKE"
ADA = "U0ADA"
GENERAL = "C0GENERAL"
DIRECT = "D0ADA"
SCOPES = (
    "app_mentions:read",
    "channels:history",
    "channels:read",
    "chat:write",
    "chat:write.customize",
    "files:read",
    "files:write",
    "groups:history",
    "groups:read",
    "im:history",
    "im:read",
    "im:write",
    "mpim:history",
    "mpim:read",
    "reactions:write",
    "users:read",
)


@dataclass
class Room:
    """A channel, or direct messages: of the bot with one person, or with a group of people."""

    id: str
    name: str
    user: str | None = None
    is_group: bool = False
    archived: bool = False
    messages: list[Message] = field(default_factory=list)

    @property
    def is_direct(self) -> bool:
        return self.user is not None

    @property
    def kind(self) -> str:
        """Slack's type of the conversation."""
        if self.is_direct:
            return "im"
        return "mpim" if self.is_group else "public_channel"

    def thread(self, ts: str) -> list[Message]:
        """Return a message and its replies, oldest first."""
        return [
            message for message in self.messages if ts in (message["ts"], message.get("thread_ts"))
        ]

    def find(self, ts: str) -> Message | None:
        return next((message for message in self.messages if message["ts"] == ts), None)


@dataclass
class Upload:
    """A file. One request brings its bytes, another one shares it."""

    id: str
    name: str
    content: bytes = b""
    completed: bool = False
    created: float = field(default_factory=time.time)
    shares: dict[str, list[Message]] = field(default_factory=dict)


class Workspace:
    """A workspace. Message times are unique and increase, as in Slack."""

    def __init__(self, team: str = TEAM, bot_user: str = BOT_USER) -> None:
        self.team = team
        self.bot_user = bot_user
        self.users = {bot_user: "holdfast", ADA: "ada"}
        self.scopes = set(SCOPES)
        self.rooms = {GENERAL: Room(GENERAL, "general"), DIRECT: Room(DIRECT, "ada", user=ADA)}
        self.uploads: dict[str, Upload] = {}
        self.edits: list[tuple[str, str]] = []
        """Every edit of a message: its ts and the new text."""
        self.ephemeral: list[tuple[str, str, str]] = []
        """Every message that only one person sees: channel, person and text."""
        self.statuses: dict[str, str] = {}
        """The status of each thread that has one, by its ts."""
        self.status_changes: list[tuple[str, str]] = []
        """Every status that was set: the ts of the thread and the text."""
        self.holds_files = False
        """Whether shared files stay invisible until `show_files`, as while Slack scans them."""
        self._held: list[Callable[[], None]] = []
        self._last = 0
        self._numbers = itertools.count(1)

    def show(self, share: Callable[[], None]) -> None:
        self._held.append(share)
        if not self.holds_files:
            self.show_files()

    def show_files(self) -> None:
        while self._held:
            self._held.pop(0)()

    def stamp(self) -> str:
        self._last = max(self._last + 1, time.time_ns() // 1000)
        return f"{self._last // 1_000_000}.{self._last % 1_000_000:06d}"

    def number(self) -> int:
        return next(self._numbers)

    def room_with(self, user: str) -> Room:
        """Return the direct messages with a person, created at first use."""
        for room in self.rooms.values():
            if room.user == user:
                return room
        room = Room(f"D0{user[2:]}", user, user=user)
        self.rooms[room.id] = room
        return room

    def post(
        self, room: Room, user: str, text: str, thread_ts: str | None = None, **further: Any
    ) -> Message:
        message: Message = {
            "type": "message",
            "user": user,
            "text": text,
            "ts": self.stamp(),
            "team": self.team,
        }
        if thread_ts:
            message["thread_ts"] = thread_ts
        message |= {name: value for name, value in further.items() if value}
        room.messages.append(message)
        return message

    def set_status(self, ts: str, status: str) -> None:
        """Set the status of a thread; an empty one removes it."""
        self.status_changes.append((ts, status))
        self.statuses[ts] = status
        if not status:
            del self.statuses[ts]

    def post_as_bot(
        self, room: Room, text: str, thread_ts: str | None = None, **further: Any
    ) -> Message:
        message = self.post(
            room, self.bot_user, text, thread_ts, bot_id=BOT_ID, app_id=APP, **further
        )
        # As Slack: a message of the bot ends the status of its thread.
        self.statuses.pop(thread_ts or "", None)
        if "username" in message:
            # As Slack: a message under another name belongs to no user.
            del message["user"]
            message["subtype"] = "bot_message"
        return message

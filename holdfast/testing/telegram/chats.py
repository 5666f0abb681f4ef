"""Content of the fake Telegram: people, chats, messages and files."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]

BOT = 4242
USERNAME = "holdfast_bot"
ADA = 7001
BOB = 7002
OTHER_BOT = 7100
GROUP = -1001


@dataclass
class Upload:
    """A file that the bot can download, or that it sent."""

    id: str
    name: str
    content: bytes

    @property
    def path(self) -> str:
        return f"documents/{self.id}"

    def description(self, name: str | None = None) -> Message:
        found = {"file_id": self.id, "file_unique_id": f"u{self.id}", "file_size": self.size}
        return found | ({"file_name": name} if name else {})

    @property
    def size(self) -> int:
        return len(self.content)


class Chats:
    """All chats of the bot. A private chat has the id of its person, a group a negative one."""

    def __init__(self, bot: int = BOT) -> None:
        self.bot = bot
        self.users = {
            bot: ("Holdfast", USERNAME),
            ADA: ("Ada", "ada"),
            BOB: ("Bob", "bob"),
            OTHER_BOT: ("Other", "other_bot"),
        }
        self.messages: defaultdict[int, list[Message]] = defaultdict(list)
        self.taken_at: dict[int, float] = {}
        """Time of each message. Telegram itself gives whole seconds only."""
        self.uploads: dict[str, Upload] = {}
        self.blocked: set[int] = set()
        self.moved: dict[int, int] = {}
        """Groups that became supergroups, and their new ids."""
        self.edits: list[tuple[int, str]] = []
        """Every edit by the bot: the message and its new text."""
        self.actions: list[tuple[int, str]] = []
        """Every sign of activity: the chat and what the bot does there."""
        self.callback_answers: list[str | None] = []
        self._numbers = itertools.count(1)

    def number(self) -> int:
        return next(self._numbers)

    def user(self, id: int) -> Message:
        name, username = self.users[id]
        is_bot = id in (self.bot, OTHER_BOT)
        return {"id": id, "is_bot": is_bot, "first_name": name, "username": username}

    def chat(self, id: int) -> Message:
        if id < 0:
            return {"id": id, "type": "supergroup", "title": "Group"}
        return {"id": id, "type": "private", "first_name": self.users[id][0]}

    def exists(self, id: int) -> bool:
        return id in self.users or id < 0

    def post(self, chat: int, user: int, **content: Any) -> Message:
        message: Message = {
            "message_id": self.number(),
            "date": int(time.time()),
            "chat": self.chat(chat),
            "from": self.user(user),
        }
        message |= {name: value for name, value in content.items() if value is not None}
        if "message_thread_id" in message:
            message.setdefault("is_topic_message", True)
        self.messages[chat].append(message)
        self.taken_at[message["message_id"]] = time.time()
        return message

    def find(self, chat: int, message_id: int) -> Message | None:
        return next((one for one in self.messages[chat] if one["message_id"] == message_id), None)

    def upload(self, content: bytes, name: str | None) -> Upload:
        upload = Upload(f"F{self.number()}", name or "file", content)
        self.uploads[upload.id] = upload
        return upload

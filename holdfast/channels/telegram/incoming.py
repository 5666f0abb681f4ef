"""Reads Telegram's messages: their sender, their text without the bot's name, and their files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from aiogram.enums import ChatType, MessageEntityType
from aiogram.types import Message, MessageEntity, User

from holdfast.channels.admission import Sender
from holdfast.channels.telegram.bot import CHANNEL
from holdfast.message import Payload
from holdfast.queue.event import NewEvent

MENTIONS = (MessageEntityType.MENTION, MessageEntityType.BOT_COMMAND)
FILE_KINDS = ("document", "voice", "audio", "video", "video_note", "animation", "sticker")
"""Fields of a message that hold one file each; a photo comes in several sizes."""
ENDINGS = {"voice": ".ogg", "video_note": ".mp4", "sticker": ".webp"}
"""Endings of files that Telegram gives no name."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """One message to a bot, read for an agent."""

    bot: User
    message: Message
    has_other_bots: bool = False
    """Whether other bots are configured, too. Then a conversation names its bot."""

    @property
    def id(self) -> str:
        """The dedup key. The update id is not part of it: one message may come in several."""
        message = self.message
        return f"{CHANNEL}_{self.bot.id}_{message.chat.id}_{message.message_id}"

    @property
    def is_direct(self) -> bool:
        return self.message.chat.type == ChatType.PRIVATE

    @property
    def thread(self) -> int | None:
        """The topic. The thread id of a message outside of topics does not count."""
        return self.message.message_thread_id if self.message.is_topic_message else None

    @property
    def conversation(self) -> str:
        owner = f"{self.bot.id}@" if self.has_other_bots else ""
        topic = "" if self.thread is None else f":{self.thread}"
        return f"{CHANNEL}:{owner}{self.message.chat.id}{topic}"

    @property
    def text(self) -> str:
        """The text or caption, without mentions of the bot."""
        text = self.message.text or self.message.caption or ""
        for entity in reversed(self._entities()):
            if self._is_own_name(entity, text):
                text = _without(text, entity)
        return text.strip()

    @property
    def is_empty(self) -> bool:
        """Whether nobody wrote or sent anything, as when a member joins."""
        return not (self.message.text or self.message.caption or any(files_of(self.message)))

    @property
    def has_sender(self) -> bool:
        """Whether somebody else wrote it. Posts of channels have no sender."""
        person = self.message.from_user
        return person is not None and person.id != self.bot.id

    @property
    def is_mentioned(self) -> bool:
        """Whether the message names the bot, or replies to it."""
        text = self.message.text or self.message.caption or ""
        return self._is_reply or any(self._is_own_name(one, text) for one in self._entities())

    @property
    def sender(self) -> Sender:
        person = self.message.from_user
        assert person is not None
        return Sender(
            id=str(person.id),
            name=name_of(person),
            conversation=self.conversation,
            is_direct=self.is_direct,
            is_bot=person.is_bot,
            is_mentioned=self.is_mentioned,
            group=None if self.is_direct else str(self.message.chat.id),
            # Telegram's times are whole seconds. An approval in the same second came before.
            sent_at=self.message.date + timedelta(seconds=1),
        )

    @property
    def payload(self) -> Payload:
        person = self.message.from_user
        assert person is not None
        attachments = list(files_of(self.message))
        return {
            "kind": "message",
            "channel": CHANNEL,
            "sender": name_of(person),
            "sender_id": str(person.id),
            "message": self.text,
            "conversation": self.conversation,
            "is_direct": self.is_direct,
            **({"attachments": attachments} if attachments else {}),
        }

    @property
    def event(self) -> NewEvent:
        return NewEvent(event=self.payload, message_id=self.id, event_ts=self.message.date)

    @property
    def _is_reply(self) -> bool:
        """Whether it answers a message of the bot. The first message of a topic does not count."""
        replied = self.message.reply_to_message
        if replied is None or replied.from_user is None or replied.forum_topic_created is not None:
            return False
        return replied.from_user.id == self.bot.id

    def _entities(self) -> list[MessageEntity]:
        found = self.message.entities or self.message.caption_entities or []
        return sorted(found, key=lambda entity: entity.offset)

    def _is_own_name(self, entity: MessageEntity, text: str) -> bool:
        if entity.type == MessageEntityType.TEXT_MENTION:
            return entity.user is not None and entity.user.id == self.bot.id
        name = f"@{self.bot.username}".lower()
        return entity.type in MENTIONS and entity.extract_from(text).lower().endswith(name)


def _without(text: str, entity: MessageEntity) -> str:
    """Return the text without a mention; of a command, only the bot's name goes."""
    units = text.encode("utf-16-le")
    start, end = 2 * entity.offset, 2 * (entity.offset + entity.length)
    found = units[start:end].decode("utf-16-le", "replace")
    kept = found.partition("@")[0] if entity.type == MessageEntityType.BOT_COMMAND else ""
    before, after = (piece.decode("utf-16-le", "replace") for piece in (units[:start], units[end:]))
    if kept or not before.strip():
        return f"{before}{kept}{after}"
    # Leave one blank between the words around it.
    return f"{before.rstrip(' ')} {after.lstrip(' ,:')}"


def files_of(message: Message) -> Iterator[Payload]:
    """Yield id, name and size of the files of a message."""
    if message.photo:
        largest = max(message.photo, key=lambda size: size.width * size.height)
        name = f"photo-{largest.file_unique_id}.jpg"
        yield _file(largest.file_id, largest.file_unique_id, name, largest.file_size)
    for kind in FILE_KINDS:
        # Telegram sends an animation as a document, too.
        if (file := getattr(message, kind)) and not (kind == "document" and message.animation):
            given: str | None = getattr(file, "file_name", None)
            default = f"{kind}-{file.file_unique_id}{ENDINGS.get(kind, '')}"
            yield _file(file.file_id, file.file_unique_id, given or default, file.file_size)


def _file(id: str, key: str, name: str, size: int | None) -> Payload:
    return {"id": id, "key": key, "name": name, "size": size}


def name_of(person: User) -> str:
    """Return the name of a person for others to read."""
    return person.full_name.strip() or person.username or str(person.id)

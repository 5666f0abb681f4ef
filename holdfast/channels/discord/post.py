"""A message of the bot: its destination, sending it, finding it again, and editing it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import discord

from holdfast.channels.base import Undeliverable
from holdfast.channels.discord.errors import translate_error
from holdfast.channels.preview import STILL_GROWING, Style
from holdfast.channels.split import split
from holdfast.message import Payload

if TYPE_CHECKING:
    from holdfast.channels.discord.bot import Bot

LONGEST_PART = 2000
"""Characters of one message."""
LOOK_BACK = timedelta(seconds=10)
"""A look-up starts this much before the send, since clocks may differ."""
LOOK_UP_MESSAGES = 1000
"""Messages that a look-up reads."""
UNKNOWN_MESSAGE, FOREIGN_MESSAGE = 10008, 50005
"""Codes of an edit after which the text is posted as a new message."""

_CONVERSATION = re.compile(r"discord:([0-9]{1,20})(?::([0-9]{1,20}))?")
_ANSWERED = re.compile(r"discord_([0-9]{1,20})_([0-9]{1,20})_([0-9]{1,20})")
_PERSON = re.compile(r"[0-9]{1,20}")


@dataclass(frozen=True, slots=True)
class Destination:
    """Target of a response: a room, or a person for direct messages."""

    room: int | None
    person: int | None = None
    answered: int | None = None
    """The message that is answered."""
    bot: int | None = None
    """The bot that received it."""


def destination_of(response: Payload) -> Destination:
    """Read the destination of a response. Raises Undeliverable if it names none."""
    found = _CONVERSATION.fullmatch(str(response.get("conversation") or ""))
    answered = _ANSWERED.fullmatch(str(response.get("message_id") or ""))
    bot = int(answered[1]) if answered else None
    if found is not None:
        room = found[2] or found[1]
        is_here = answered is not None and answered[2] == room
        return Destination(int(room), None, int(answered[3]) if answered and is_here else None, bot)
    if person := _PERSON.fullmatch(str(response.get("sender_id") or "")):
        return Destination(None, int(person[0]), None, bot)
    raise Undeliverable(
        "no_address", "the response names neither a conversation nor the id of a person"
    )


def nonce_of(key: str) -> str:
    """Return the nonce of a part: at most 25 characters, the same in every process."""
    return hashlib.blake2b(key.encode(), digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True)
class Post:
    """One message in a room.

    Discord compares its nonce for a few minutes: within them, sending it again returns the message
    that is already there."""

    bot: Bot
    room: int
    key: str
    answered: int | None = None
    """The message to which it replies; None if it stands alone."""
    since: datetime | None = None
    """Time before which it cannot have been posted; None if it never was."""

    @property
    def _room(self) -> discord.PartialMessageable:
        return self.bot.room(self.room)

    async def post(self, text: str) -> str:
        """Post a text. Returns the id of the message."""
        return await self.send(text)

    async def send(self, text: str | None = None, **content: Any) -> str:
        """Send a text or a file. Returns the id of the message."""
        if self.answered is not None and self.bot.is_in_server(self.room):
            content["reference"] = discord.MessageReference(
                message_id=self.answered, channel_id=self.room, fail_if_not_exists=False
            )
        with self.bot.translating():
            sent = await self._room.send(text, nonce=nonce_of(self.key), **content)
        return str(sent.id)

    async def edit(self, id: str, text: str, **further: Any) -> bool:
        """Replace the text of a message. Returns False if it is too late."""
        return await self._change(
            self._room.get_partial_message(int(id)).edit(content=text, **further)
        )

    async def delete(self, id: str) -> None:
        """Delete a message, unless it is gone."""
        await self._change(self._room.get_partial_message(int(id)).delete())

    async def _change(self, request: Any) -> bool:
        with self.bot.translating():
            try:
                await request
            except discord.HTTPException as error:
                if error.code not in (UNKNOWN_MESSAGE, FOREIGN_MESSAGE):
                    raise translate_error(error) from None
                return False
        return True

    async def find(self, key: str, text: str | None = None, file: str | None = None) -> str | None:
        """Return the id of the message with this key, None if there is none.

        Discord's history shows no nonces. While it still compares them, None is right: the caller
        sends again and gets the message that is there. Later, texts or files are compared; given
        neither, it looks for a growing answer."""
        if self.since is None:
            return None
        compares_nonces = datetime.now(UTC) - self.since < self.bot.access.limits.nonce_window
        with self.bot.translating():
            history = self._room.history(limit=LOOK_UP_MESSAGES, after=self.since - LOOK_BACK)
            async for message in history:
                if message.author.id != self.bot.user_id:
                    continue
                if message.nonce is not None:
                    is_it = str(message.nonce) == nonce_of(key)
                else:
                    is_it = not compares_nonces and self._matches(message, text, file)
                if is_it:
                    return str(message.id)
        return None

    def _matches(self, message: discord.Message, text: str | None, file: str | None) -> bool:
        answered = message.reference.message_id if message.reference else None
        if self.bot.is_in_server(self.room) and answered != self.answered:
            return False
        if file is not None:
            return any(one.filename == file for one in message.attachments)
        if text is None:
            return message.content.endswith(STILL_GROWING)
        return message.content == text


def texts_of(text: str) -> list[str]:
    """Return a text as Discord's messages, cut at its limit. Discord shows Markdown itself."""
    return split(text, LONGEST_PART)


STYLE = Style(texts_of, LONGEST_PART)

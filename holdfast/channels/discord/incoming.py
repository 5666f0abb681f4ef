"""Reads messages of Discord: sender, conversation and text."""

from __future__ import annotations

import re
from typing import Protocol

import discord

from holdfast.channels.admission import Rules, Sender
from holdfast.channels.gap import GapMessage
from holdfast.message import Payload
from holdfast.queue.event import NewEvent

CHANNEL = "discord"
WRITTEN = (discord.MessageType.default, discord.MessageType.reply)
"""Types of messages that somebody wrote; others report joins, pins and the like."""
_USER = re.compile(r"<@!?([0-9]{1,20})>[:,]?")
_ROOM = re.compile(r"<#([0-9]{1,20})>")


class Room(Protocol):
    """A channel, a thread or direct messages."""

    id: int


def conversation_of(room: Room) -> str:
    """Return the conversation: a channel, a thread in it, or direct messages."""
    if isinstance(room, discord.Thread):
        return f"{CHANNEL}:{room.parent_id}:{room.id}"
    return f"{CHANNEL}:{room.id}"


def message_id(bot: int, room: int, id: int) -> str:
    """Return the id of a message that Discord identifies by these numbers."""
    return f"{CHANNEL}_{bot}_{room}_{id}"


def sender_of(message: discord.Message, bot: discord.ClientUser, rules: Rules) -> Sender:
    """Return the sender, as far as admission depends on it."""
    return Sender(
        id=str(message.author.id),
        name=message.author.display_name,
        conversation=conversation_of(message.channel),
        is_direct=message.guild is None,
        is_bot=message.author.bot or message.webhook_id is not None,
        is_mentioned=_mentions(message, bot),
        group=group_of(message.channel, message.guild, rules),
        sent_at=message.created_at,
    )


def group_of(room: Room, server: discord.Guild | None, rules: Rules) -> str | None:
    """Return the id of a room if a list names it, else of its server; None if it has none."""
    if str(room.id) in rules.allow_groups or str(room.id) in rules.deny_groups:
        return str(room.id)
    return None if server is None else str(server.id)


def presser_of(interaction: discord.Interaction, room: Room, rules: Rules) -> Sender:
    """Return the person who pressed a button, as far as admission depends on it."""
    return Sender(
        id=str(interaction.user.id),
        name=interaction.user.display_name,
        conversation=conversation_of(room),
        is_direct=interaction.guild_id is None,
        is_mentioned=True,
        group=group_of(room, interaction.guild, rules),
        sent_at=interaction.created_at,
    )


def _mentions(message: discord.Message, bot: discord.ClientUser) -> bool:
    """Return whether a message mentions the bot or its role, or replies to it."""
    if any(user.id == bot.id for user in message.mentions):
        return True
    if any(role.tags and role.tags.bot_id == bot.id for role in message.role_mentions):
        return True
    answered = message.reference.resolved if message.reference else None
    return isinstance(answered, discord.Message) and answered.author.id == bot.id


def gap_message_of(message: discord.Message) -> GapMessage:
    """Return a message with the ids that it answers. A thread has the id of its first message."""
    answered = message.reference.message_id if message.reference else None
    return GapMessage(
        id=str(message.id),
        sender=str(message.author.id),
        is_person=not message.author.bot and message.webhook_id is None,
        thread=str(message.channel.id) if isinstance(message.channel, discord.Thread) else None,
        replies_to=frozenset([str(answered)] if answered else ()),
    )


def event_of(message: discord.Message, bot: discord.ClientUser) -> NewEvent:
    """Return the event to store for a message."""
    payload: Payload = {
        "kind": "message",
        "channel": CHANNEL,
        "sender": message.author.display_name,
        "sender_id": str(message.author.id),
        "message": readable(message, bot),
        "conversation": conversation_of(message.channel),
        "is_direct": message.guild is None,
        "discord_room": str(message.channel.id),
        "discord_message": str(message.id),
    }
    if message.attachments:
        payload["attachments"] = [
            {"id": str(file.id), "name": file.filename, "size": file.size}
            for file in message.attachments
        ]
    return NewEvent(
        event=payload,
        message_id=message_id(bot.id, message.channel.id, message.id),
        event_ts=message.created_at,
    )


def readable(message: discord.Message, bot: discord.ClientUser) -> str:
    """Return the text without mentions of the bot, and with names instead of other ids."""
    names = {user.id: user.display_name for user in message.mentions}

    def name_user(found: re.Match[str]) -> str:
        id = int(found[1])
        if id == bot.id:
            return ""
        return f"@{names[id]}" if id in names else found[0]

    def name_room(found: re.Match[str]) -> str:
        room = message.guild.get_channel_or_thread(int(found[1])) if message.guild else None
        return found[0] if room is None else f"#{room.name}"

    return _ROOM.sub(name_room, _USER.sub(name_user, message.content)).strip()

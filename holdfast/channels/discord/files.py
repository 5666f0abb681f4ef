"""Files of messages, in and out."""

from __future__ import annotations

import asyncio
import io
import logging
from pathlib import Path

import discord

from holdfast.channels.discord.bot import Bot
from holdfast.channels.files import read_file, safe_name, too_large
from holdfast.message import Payload
from holdfast.store.files import person_folder, write_file
from holdfast.telemetry import FILE_NOT_FETCHED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)


async def download_files(bot: Bot, root: Path, payload: Payload) -> list[Path]:
    """Fetch the files of a message into the folder of its conversation.

    Asks for the message first, since the addresses of its files expire. Large files are left
    out."""
    room, id = int(payload["discord_room"]), int(payload["discord_message"])
    folder = person_folder(root, payload) / str(id)
    found = []
    with bot.translating():
        message = await bot.room(room).fetch_message(id)
        for file in message.attachments:
            content = await _content(bot, file)
            if isinstance(content, bytes):
                path = folder / f"{file.id}-{safe_name(file.filename)}"
                await asyncio.to_thread(write_file, path, content)
                found.append(path)
            else:
                log.warning(Entry(FILE_NOT_FETCHED, file=file.id, reason=content))
    return found


async def _content(bot: Bot, file: discord.Attachment) -> bytes | str:
    """Return the content of a file, or the reason why it cannot be had."""
    most = bot.access.limits.download_bytes
    if file.size > most:
        return f"it {too_large(most)}"
    try:
        return await file.read()
    except discord.HTTPException as error:
        return str(error)


async def sendable_file(bot: Bot, root: Path | None, file: str, response: Payload) -> discord.File:
    """Return a file of a response for sending. Raises Undeliverable if it must not be sent."""
    most = bot.access.limits.upload_bytes
    name, content = await asyncio.to_thread(read_file, root, file, response, most)
    return discord.File(io.BytesIO(content), filename=name)

"""Downloads of files that came with a message, once an agent asks for them."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from aiogram.methods import GetFile
from aiohttp import ClientError

from holdfast.channels.base import Undeliverable
from holdfast.channels.files import read_limited, safe_name, too_large
from holdfast.channels.telegram.bot import REQUEST_WITHIN, TelegramBot
from holdfast.message import Payload
from holdfast.store.files import person_folder, write_file
from holdfast.telemetry import FILE_NOT_FETCHED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)


async def download_files(bot: TelegramBot, root: Path, payload: Payload) -> list[Path]:
    """Fetch the files of a message into the folder of its sender. Large files are left out."""
    folder = person_folder(root, payload)
    found = []
    for file in payload.get("attachments") or ():
        content = await _content(bot, file)
        if isinstance(content, str):
            log.warning(Entry(FILE_NOT_FETCHED, file=file.get("name"), reason=content))
            continue
        path = folder / f"{safe_name(str(file.get('key')))}-{safe_name(str(file.get('name')))}"
        await asyncio.to_thread(write_file, path, content)
        found.append(path)
    return found


async def _content(bot: TelegramBot, file: Payload) -> bytes | str:
    """Return the content of a file, or the reason why it cannot be had."""
    most = bot.access.limits.download_bytes
    if (file.get("size") or 0) > most:
        return f"it {too_large(most)}"
    try:
        described = await bot.call(GetFile(file_id=str(file.get("id"))))
        session = bot.client.session
        url = session.api.file_url(bot.access.token, described.file_path or "")
        content = await read_limited(session.stream_content(url, timeout=int(REQUEST_WITHIN)), most)
    except Undeliverable as error:
        return str(error)
    except (ClientError, TimeoutError) as error:
        # The address has the token in it, so the error must not be shown.
        return type(error).__name__
    return f"it {too_large(most)}" if content is None else content

"""Media: files of messages are downloaded on demand, files of responses are uploaded first."""

from __future__ import annotations

import asyncio
import logging
import mimetypes
import re
from pathlib import Path

from holdfast.channels.base import Undeliverable
from holdfast.channels.files import CHUNK, read_file, read_limited, safe_name, too_large
from holdfast.channels.matrix.homeserver import Homeserver
from holdfast.errors import HoldfastError
from holdfast.message import Payload
from holdfast.store.files import person_folder, write_file
from holdfast.telemetry import FILE_NOT_FETCHED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

LARGEST_FILE = 100 * 1024 * 1024
DOWNLOAD_WITHIN = 60.0
"""Seconds for one download."""
MESSAGE_TYPES = {"audio": "m.audio", "image": "m.image", "video": "m.video"}
_ADDRESS = re.compile(r"mxc://[\w.:\[\]-]++/[\w-]++", re.ASCII)


async def upload_file(
    homeserver: Homeserver, root: Path | None, file: str, response: Payload
) -> Payload:
    """Store a file on the homeserver, where nobody sees it yet. Returns the message's content."""
    allowed = await homeserver.largest_upload()
    largest = LARGEST_FILE if allowed is None else min(allowed, LARGEST_FILE)
    name, content = await asyncio.to_thread(read_file, root, file, response, largest)
    mimetype = mimetypes.guess_type(name)[0] or "application/octet-stream"
    address = await homeserver.upload(content, mimetype, name)
    return {
        "msgtype": MESSAGE_TYPES.get(mimetype.partition("/")[0], "m.file"),
        "body": name,
        "filename": name,
        "url": address,
        "info": {"mimetype": mimetype, "size": len(content)},
    }


async def download_files(
    homeserver: Homeserver, root: Path, payload: Payload, largest: int
) -> list[Path]:
    """Fetch the files of a message into the folder of its sender. Large files are left out."""
    folder = person_folder(root, payload) / safe_name(str(payload.get("event_id")))
    found = []
    for number, file in enumerate(payload.get("files") or ()):
        content = await _content(homeserver, file, largest)
        if isinstance(content, str):
            log.warning(Entry(FILE_NOT_FETCHED, file=file.get("url"), reason=content))
            continue
        path = folder / f"{number}-{safe_name(str(file.get('name') or 'file'))}"
        await asyncio.to_thread(write_file, path, content)
        found.append(path)
    return found


async def _content(homeserver: Homeserver, file: Payload, largest: int) -> bytes | str:
    """Return the content of a file, or the reason why it cannot be had."""
    address, size = str(file.get("url")), file.get("size")
    if not _ADDRESS.fullmatch(address):
        return "its address is not one of Matrix"
    if isinstance(size, int) and size > largest:
        return f"it {too_large(largest)}"
    try:
        async with asyncio.timeout(DOWNLOAD_WITHIN), homeserver.download(address) as answer:
            if answer.status != 200:
                return f"status {answer.status}"
            content = await read_limited(answer.content.iter_chunked(CHUNK), largest)
    except (Undeliverable, TimeoutError) as error:
        return str(error) or "timeout"
    except HoldfastError as error:
        return str(error)
    return f"it {too_large(largest)}" if content is None else content

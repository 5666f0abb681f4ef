"""Downloads of files that came with a message, once an agent asks for them."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from urllib.parse import urlsplit

from holdfast.channels.files import CHUNK, read_limited, safe_name, too_large
from holdfast.channels.slack.workspace import Workspace
from holdfast.message import Payload
from holdfast.store.files import person_folder, write_file
from holdfast.telemetry import FILE_NOT_FETCHED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

SLACK_DOMAINS = (".slack.com", ".slack-files.com", ".slack-gov.com")


async def download_files(workspace: Workspace, root: Path, payload: Payload) -> list[Path]:
    """Fetch the files of a message into the folder of its conversation.

    Large files are left out."""
    await workspace.ready()
    folder = person_folder(root, payload) / safe_name(str(payload.get("ts")))
    found = []
    for file in payload.get("files") or ():
        path = await _fetch(workspace, folder, file)
        if path is not None:
            found.append(path)
    return found


async def _fetch(workspace: Workspace, folder: Path, file: Payload) -> Path | None:
    url = str(file.get("url_private_download") or file.get("url_private") or "")
    # The request carries the token, so it may go to Slack only, whatever the event says.
    is_slack = _is_slack_url(url, workspace.access.api_url)
    content = await _content(workspace, url) if is_slack else "its address is not one of Slack"
    if isinstance(content, str):
        log.warning(Entry(FILE_NOT_FETCHED, file=file.get("id"), reason=content))
        return None
    name = safe_name(str(file.get("name") or "file"))
    path = folder / f"{safe_name(str(file.get('id')))}-{name}"
    await asyncio.to_thread(write_file, path, content)
    return path


async def _content(workspace: Workspace, url: str) -> bytes | str:
    """Return the content of a file, or the reason why it cannot be had."""
    from aiohttp import ClientError

    headers = {"authorization": f"Bearer {workspace.access.bot_token}"}
    most = workspace.access.limits.download_bytes
    try:
        async with workspace.session.get(url, headers=headers, allow_redirects=False) as answer:
            if answer.status != 200:
                return f"status {answer.status}"
            content = await read_limited(answer.content.iter_chunked(CHUNK), most)
    except (ClientError, TimeoutError) as error:
        return str(error) or type(error).__name__
    return f"it {too_large(most)}" if content is None else content


def _is_slack_url(url: str, api_url: str) -> bool:
    parts = urlsplit(url)
    own = urlsplit(api_url)
    if (parts.scheme, parts.netloc) == (own.scheme, own.netloc):
        return True
    return parts.scheme == "https" and f".{parts.hostname or ''}".endswith(SLACK_DOMAINS)

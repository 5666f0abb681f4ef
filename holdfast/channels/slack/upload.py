"""Uploads of files of a response: sent to Slack first, then shared in the thread."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path

from holdfast.channels.base import NotNow, Undeliverable
from holdfast.channels.files import read_file
from holdfast.channels.slack.errors import Refusal
from holdfast.channels.slack.post import Destination
from holdfast.channels.slack.workspace import Workspace
from holdfast.message import Payload

LARGEST_FILE = 100 * 1024 * 1024
SHOWN_WITHIN = 60.0
"""Seconds in which Slack shows a shared file. After that, a file without a share was not shared."""
LOOK_AGAIN_AFTER = timedelta(seconds=2)


async def upload_file(
    workspace: Workspace, root: Path | None, file: str, response: Payload
) -> Payload:
    """Send a file to Slack, where nobody sees it yet. Returns a note with its id."""
    name, content = await asyncio.to_thread(read_file, root, file, response, LARGEST_FILE)
    answer = await workspace.call("files.getUploadURLExternal", filename=name, length=len(content))
    async with workspace.session.post(answer["upload_url"], data=content) as sent:
        if sent.status != 200:
            raise Refusal("the upload of a file", f"status_{sent.status}")
    return {"file_id": answer["file_id"], "name": name}


async def find_share(
    workspace: Workspace, destination: Destination, note: Payload
) -> Payload | None:
    """Return the receipt of a file that may have been shared, None if it was not.

    Slack knows a file once its upload is complete and shows it a little later. In between this
    raises NotNow."""
    try:
        file = (await workspace.call("files.info", file=note["file_id"])).get("file") or {}
    except Undeliverable as refusal:
        if refusal.code != "file_not_found":
            raise
        return None
    channel = destination.channel
    for shares in (file.get("shares") or {}).values():
        for share in shares.get(channel) or ():
            return {"channel": channel, "file_id": note["file_id"], "ts": share.get("ts")}
    if time.time() - float(file.get("created") or 0) < SHOWN_WITHIN:
        raise NotNow(LOOK_AGAIN_AFTER)
    return None


async def share_file(workspace: Workspace, destination: Destination, note: Payload) -> Payload:
    """Make an uploaded file visible in its thread. Returns the receipt."""
    files = [{"id": note["file_id"], "title": note["name"]}]
    await workspace.call(
        "files.completeUploadExternal",
        files=files,
        channel_id=destination.channel,
        thread_ts=destination.thread_ts,
    )
    return {"channel": destination.channel, "file_id": note["file_id"]}

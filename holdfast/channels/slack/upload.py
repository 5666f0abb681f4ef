"""Files that go out with a response: sent to Slack first, shared in the thread after."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path

from holdfast.channel import NotNow, Undeliverable
from holdfast.channels.slack.place import Place
from holdfast.channels.slack.refusal import Refusal
from holdfast.channels.slack.workspace import Workspace
from holdfast.event import Payload
from holdfast.files import place

LARGEST = 100 * 1024 * 1024
SHOWN_WITHIN = 60.0
"""Seconds after which a file that Slack has and shows nowhere will not be shown any more."""
LOOK_AGAIN_AFTER = timedelta(seconds=2)


async def upload(workspace: Workspace, root: Path | None, file: str) -> Payload:
    """Nobody sees it yet; its id is what it can be found by."""
    path = _allowed(root, file)
    content = await asyncio.to_thread(path.read_bytes)
    answer = await workspace.call("files.getUploadURLExternal", filename=path.name, length=len(content))
    async with workspace.session.post(answer["upload_url"], data=content) as response:
        if response.status != 200:
            raise Refusal("the upload of a file", f"status_{response.status}")
    return {"file_id": answer["file_id"], "name": path.name}


async def shared(workspace: Workspace, place: Place, note: Payload) -> Payload | None:
    """The receipt of a file that may have been shared.

    Slack knows a file once its upload was completed and shows it a little later; in between this raises NotNow."""
    try:
        file = (await workspace.call("files.info", file=note["file_id"])).get("file") or {}
    except Undeliverable as refusal:
        if refusal.code != "file_not_found":
            raise
        return None
    for shares in (file.get("shares") or {}).values():
        for share in shares.get(place.channel) or ():
            return {"channel": place.channel, "file_id": note["file_id"], "ts": share.get("ts")}
    if time.time() - float(file.get("created") or 0) < SHOWN_WITHIN:
        raise NotNow(LOOK_AGAIN_AFTER)
    return None


async def share(workspace: Workspace, place: Place, note: Payload) -> Payload:
    files = [{"id": note["file_id"], "title": note["name"]}]
    await workspace.call(
        "files.completeUploadExternal", files=files, channel_id=place.channel, thread_ts=place.thread_ts
    )
    return {"channel": place.channel, "file_id": note["file_id"]}


def _allowed(root: Path | None, file: str) -> Path:
    """Only what lies below the files root may leave the machine, whatever an agent says."""
    if root is None:
        raise Undeliverable("file_refused", "no folder is set from which files may be sent")
    path = place(root, file)
    if path is None:
        raise Undeliverable("file_refused", f"{file} is not below {root}")
    if not path.is_file():
        raise Undeliverable("file_gone", f"{file} is not there")
    if path.stat().st_size > LARGEST:
        raise Undeliverable("file_too_large", f"{file} has more than {LARGEST // 1024 // 1024} MiB")
    return path

"""Files that go out with a response: sent to Slack first, shared in the thread after."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path, PurePath

from holdfast.channels.base import NotNow, Undeliverable
from holdfast.channels.slack.place import Place
from holdfast.channels.slack.refusal import Refusal
from holdfast.channels.slack.workspace import Workspace
from holdfast.message import Payload
from holdfast.store.files import open_below, sendable_path

LARGEST = 100 * 1024 * 1024
SHOWN_WITHIN = 60.0
"""Seconds after which a file that Slack has and shows nowhere will not be shown any more."""
LOOK_AGAIN_AFTER = timedelta(seconds=2)


async def upload(workspace: Workspace, root: Path | None, file: str, response: Payload) -> Payload:
    """Send a file of a response to Slack. Nobody sees it yet; the answer holds the id by which it can be found."""
    name, content = await asyncio.to_thread(_read, root, file, response)
    answer = await workspace.call("files.getUploadURLExternal", filename=name, length=len(content))
    async with workspace.session.post(answer["upload_url"], data=content) as sent:
        if sent.status != 200:
            raise Refusal("the upload of a file", f"status_{sent.status}")
    return {"file_id": answer["file_id"], "name": name}


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
        "files.completeUploadExternal",
        files=files,
        channel_id=place.channel,
        thread_ts=place.thread_ts,
    )
    return {"channel": place.channel, "file_id": note["file_id"]}


def _read(root: Path | None, file: str, response: Payload) -> tuple[str, bytes]:
    """The name and content of a file that the conversation of a response may send, whoever stored the response."""
    if root is None:
        raise Undeliverable("file_refused", "no folder is set from which files may be sent")
    path = sendable_path(
        root, file, str(response.get("channel") or ""), str(response.get("conversation") or "")
    )
    if path is None:
        raise Undeliverable(
            "file_refused", f"{file} is not below {root}, or belongs to another conversation"
        )
    try:
        with open_below(root, path) as content:
            if content.seek(0, 2) > LARGEST:
                raise Undeliverable(
                    "file_too_large", f"{file} has more than {LARGEST // 1024 // 1024} MiB"
                )
            content.seek(0)
            return PurePath(path).name, content.read()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise Undeliverable("file_gone", f"{file} is not there") from None

"""Files of conversations and responses: upload and download."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path as FilePath
from typing import Annotated, Any, BinaryIO
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response, StreamingResponse
from typing_extensions import TypedDict

from holdfast.api.body import MAX_BYTES, file_too_large, read_file
from holdfast.api.response import OK, ApiError, JsonResponse, Ok
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.security.caller import caller_of
from holdfast.api.security.scope import refuse_foreign, scope_of
from holdfast.api.state import state_of
from holdfast.message import Payload
from holdfast.queue.event import OUTBOX, Event
from holdfast.queue.store import Filter, Store
from holdfast.store.conversations import Conversations
from holdfast.store.files import UPLOADS, open_below, sendable_path
from holdfast.store.scoped import Scope
from holdfast.store.uploads import (
    OTHER_TYPE,
    Files,
    StoredFile,
    new_file_id,
    remove_uploads,
    shown_name,
    type_of,
    upload_path,
)

routes = APIRouter(route_class=AuthorizedRoute, tags=["files"])

CHUNK = 64 * 1024
MIB = 1024 * 1024
MOST_FILES = 20
"""Files that one message can carry."""
MOST_UNSENT = 100
"""Maximum of unsent uploads per owner; together at most the bytes of MOST_FILES full files."""
NOT_FOUND = "file not found"
UNSENT = "too many files are uploaded and not sent; send or delete some"
HEADERS = {
    "cache-control": "private, no-store",
    "content-security-policy": "default-src 'none'; sandbox",
    "x-content-type-options": "nosniff",
}
SHOWN_INLINE = (
    "image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "application/pdf",
    "text/plain", "audio/mpeg", "audio/mp4", "audio/ogg", "audio/wav", "video/mp4", "video/webm",
)  # fmt: skip
"""Types that a browser may show: none of them can run a script."""
FileId = Annotated[
    str,
    Path(
        pattern=r"^(?:file_[0-9a-f]{24}|[0-9]{1,18}-[0-9]{1,4})$",
        description="Id of a file. A file of a response also has its id and an index: `17-0`.",
    ),
]
FileName = Annotated[
    str, Query(min_length=1, max_length=1000, description="Name of the file, as people see it.")
]
Inline = Annotated[
    bool, Query(description="Let the browser show images, PDF, text, audio and video.")
]


class FileInfo(TypedDict):
    """A file of a conversation."""

    id: str
    name: str
    size: int
    type: str


class ChatLimits(TypedDict):
    """Limits that a page has to know: bytes of a file, files of a message, bytes of a message."""

    maxUpload: int
    maxFiles: int
    maxMessage: int


FILE: dict[str, Any] = {
    "id": "file_0123456789abcdef01234567",
    "name": "plan.pdf",
    "size": 12345,
    "type": "application/pdf",
}
UPLOAD = {
    "requestBody": {
        "required": True,
        "content": {
            OTHER_TYPE: {
                "schema": {"type": "string", "format": "binary"},
                "example": "the content of the file",
            }
        },
    }
}


def file_ids(event: Event, payload: Payload) -> list[str]:
    """Return the ids of the files of a response, in their order."""
    return [f"{event.id}-{index}" for index in range(len(payload.get("files") or ()))]


def file_info(file: StoredFile) -> FileInfo:
    return FileInfo(id=file.id, name=file.name, size=file.size, type=file.type)


@routes.get(
    "/api/limits",
    summary="Get the limits of messages and files",
    **route_options(
        "read",
        ChatLimits,
        {"maxUpload": 25 * MIB, "maxFiles": MOST_FILES, "maxMessage": MAX_BYTES},
    ),
)
async def get_limits(request: Request) -> JsonResponse:
    """Return how long a file and a message may be, and how many files a message can carry."""
    longest = state_of(request).settings.max_upload * MIB
    return JsonResponse(ChatLimits(maxUpload=longest, maxFiles=MOST_FILES, maxMessage=MAX_BYTES))


def _upload_options() -> dict[str, Any]:
    options = route_options("send", FileInfo, FILE, 400, 408, 409)
    options["openapi_extra"] |= UPLOAD
    return options


@routes.post("/api/files", summary="Upload a file for a message", **_upload_options())
async def post_file(request: Request, name: FileName) -> JsonResponse:
    """Store the body as a file of the caller. `files` of `POST /api/message` sends it; one that
    nobody sends is deleted after a day."""
    state, owner = state_of(request), caller_of(request).owner or ""
    longest = state.settings.max_upload * MIB
    files = Files(state.store)
    await _refuse_hoarding(request, files, owner, longest)
    file_id, shown = new_file_id(), shown_name(name)
    path = upload_path(state.settings.files, file_id)
    size = await _save(request, path, longest)
    file = StoredFile(
        id=file_id,
        owner=owner,
        name=shown,
        type=type_of(shown),
        size=size,
        created_at=await state.store.now(),
    )
    # One after the other, or uploads at once would all count one another, and all be refused.
    async with state.uploads:
        try:
            await files.add(file)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        await _refuse_excess(request, files, file, longest)
    return JsonResponse(file_info(file))


async def _refuse_excess(request: Request, files: Files, file: StoredFile, longest: int) -> None:
    """Remove a stored upload that passes the limit: others came in while it was sent."""
    count, size = await files.unsent(file.owner)
    if count > MOST_UNSENT or size > MOST_FILES * longest:
        await files.delete_unsent(file.id)
        await asyncio.to_thread(remove_uploads, state_of(request).settings.files, [file.id])
        raise ApiError(409, UNSENT)


async def _refuse_hoarding(request: Request, files: Files, owner: str, longest: int) -> None:
    given = request.headers.get("content-length", "")
    length = int(given) if given.isdigit() else 0
    if length > longest:
        raise ApiError(413, file_too_large(longest))
    count, size = await files.unsent(owner)
    if count >= MOST_UNSENT or size + length > MOST_FILES * longest:
        raise ApiError(409, UNSENT)


async def _save(request: Request, path: FilePath, longest: int) -> int:
    """Write the body to a file that only this user can read. A failed upload leaves no file."""
    part = path.with_name(f"{path.name}.part")
    try:
        with await asyncio.to_thread(_create, part) as content:
            size = await read_file(request, content, longest)
            await asyncio.to_thread(_flush, content)
        if not size:
            raise ApiError(400, "the file is empty")
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)
    return size


def _create(path: FilePath) -> BinaryIO:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    return open(os.open(path, flags, 0o600), "wb")


def _flush(content: BinaryIO) -> None:
    content.flush()
    os.fsync(content.fileno())


@routes.delete(
    "/api/files/{id}",
    summary="Delete a file that was not sent",
    **route_options("send", Ok, OK, 400, 404),
)
async def delete_file(request: Request, id: FileId) -> JsonResponse:
    """Delete an upload that no message carries."""
    state = state_of(request)
    file = await _visible_file(request, id) if id.startswith("file_") else None
    if file is None or not await Files(state.store).delete_unsent(id):
        raise ApiError(404, NOT_FOUND)
    await asyncio.to_thread(remove_uploads, state.settings.files, [id])
    return JsonResponse(OK)


@routes.get(
    "/api/files/{id}",
    summary="Get a file of a message or a response",
    response_class=Response,
    **route_options("read", None, None, 400, 404, content=OTHER_TYPE),
)
async def get_file(request: Request, id: FileId, inline: Inline = False) -> Response:
    """Return a file to callers that may see its conversation or response. Lines of a conversation
    and `fileIds` of a response name their files. HTML and SVG are never shown inline."""
    root = state_of(request).settings.files
    name, path = await (_stored_path if id.startswith("file_") else _of_response)(request, id)
    stack = ExitStack()
    try:
        file = await asyncio.to_thread(stack.enter_context, open_below(root, path))
    except OSError:
        # It was deleted, or its retention ended.
        raise ApiError(404, NOT_FOUND) from None
    is_shown = inline and type_of(name) in SHOWN_INLINE
    disposition = f"{'inline' if is_shown else 'attachment'}; filename*=UTF-8''{quote(name)}"
    size = os.fstat(file.fileno()).st_size
    headers = HEADERS | {"content-disposition": disposition, "content-length": str(size)}
    type_ = type_of(name) if is_shown else OTHER_TYPE
    return StreamingResponse(_chunks(stack, file), media_type=type_, headers=headers)


async def _stored_path(request: Request, id_: str) -> tuple[str, str]:
    """Return the name of an upload or of an answer's file, and its path below the root."""
    file = await _visible_file(request, id_)
    if file is None:
        raise ApiError(404, NOT_FOUND)
    if not file.path:
        return file.name, f"{UPLOADS}/{file.id}"
    channel = file.conversation.partition(":")[0]
    root = state_of(request).settings.files
    path = sendable_path(root, file.path, channel, file.conversation)
    if path is None:
        raise ApiError(404, NOT_FOUND)
    return file.name, path


async def _visible_file(request: Request, id_: str) -> StoredFile | None:
    """Return a file that the caller may see: of its own, or of a conversation in its bounds."""
    store, scope = state_of(request).store, await scope_of(request)
    found = await Files(store).find([id_])
    return found[0] if found and await is_file_visible(store, scope, found[0]) else None


async def is_file_visible(store: Store, scope: Scope | None, file: StoredFile) -> bool:
    if scope is None:
        return True
    if scope.sent_by is not None:
        return file.owner == scope.sent_by
    if file.agent and scope.agents is not None and file.agent not in scope.agents:
        return False
    return file.message_id is not None and await Conversations(store).has_line(
        scope, file.conversation, file.message_id
    )


async def _of_response(request: Request, id_: str) -> tuple[str, str]:
    event_id, index = (int(part) for part in id_.split("-"))
    await refuse_foreign(request, event_id, NOT_FOUND)
    state = state_of(request)
    response = await _response(state.store, event_id)
    name = None if response is None else _path(response.event, index)
    if response is None or name is None:
        raise ApiError(404, NOT_FOUND)
    root, payload = state.settings.files, response.event
    path = sendable_path(root, name, payload["channel"], payload.get("conversation") or "")
    if path is None:
        raise ApiError(404, NOT_FOUND)
    return path.rpartition("/")[2], path


async def _response(store: Store, event_id: int) -> Event | None:
    """Return a response, live or finished."""
    live = await store.live(event_id)
    if live is not None:
        return live if live.queue == OUTBOX else None
    ended = await store.finished(Filter(ids=[event_id], queue=OUTBOX), limit=1)
    return ended[0] if ended and ended[0].outcome != "discarded" else None


def _path(payload: Payload, index: int) -> str | None:
    files = payload.get("files") or ()
    return str(files[index]) if index < len(files) else None


async def _chunks(stack: ExitStack, file: BinaryIO) -> AsyncIterator[bytes]:
    with stack:
        while chunk := await asyncio.to_thread(file.read, CHUNK):
            yield chunk

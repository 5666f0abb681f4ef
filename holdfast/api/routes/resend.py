"""Messages that carry files, or replace an earlier message of their conversation."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from starlette.requests import Request

from holdfast.api.draft import Draft
from holdfast.api.response import ApiError
from holdfast.api.routes.conversations import EVERYTHING, refuse_hidden
from holdfast.api.routes.files import NOT_FOUND as FILE_NOT_FOUND
from holdfast.api.routes.files import file_info
from holdfast.api.routes.message_status import NOT_FOUND
from holdfast.api.security.caller import caller_of
from holdfast.api.security.scope import scope_of
from holdfast.api.state import state_of
from holdfast.message import Payload, conversation_of
from holdfast.queue.event import FinishedEvent, payload_to_show
from holdfast.routing.router import DEFAULT, Address
from holdfast.store.chain import find_message
from holdfast.store.conversations import Conversations, Line
from holdfast.store.scoped import Scope
from holdfast.store.uploads import Files, StoredFile, new_file_id, upload_path

if TYPE_CHECKING:
    from holdfast.api.routes.messages import NewMessage

STILL_WORKED = "the message is still being worked on; stop it first"


async def draft_of(request: Request, message: NewMessage, address: Address) -> Draft:
    """Return the message to store, with the files that it carries."""
    if message.regenerates is not None:
        if message.message is not None or message.edits is not None or message.files:
            raise ApiError(400, "regenerates: send it without message, edits and files")
        return await _again(request, message.regenerates, message.agent, address)
    files = await _own_files(request, message.files, address)
    # A file alone is a message, too: its name is the text.
    text = message.message or ", ".join(file.name for file in files)
    draft = Draft(text=text, agent=message.agent, files=await _files_to_carry(request, files))
    if message.edits is None:
        return draft
    if message.message is None:
        raise ApiError(400, "message is required")
    line = await _replaced_line(request, message.edits, address)
    agent = message.agent or await _same_agent(request, text, line)
    return replace(draft, agent=agent, original=await _original(request, line))


async def _again(request: Request, id_: str, agent: str | None, address: Address) -> Draft:
    """Return the same message once more, with copies of its files."""
    line = await _replaced_line(request, id_, address)
    stored = await Files(state_of(request).store).of_messages([id_])
    files = [file for file in stored if not file.agent]
    return Draft(
        text=line.content,
        agent=agent or await _same_agent(request, line.content, line),
        files=await _files_to_carry(request, files),
        original=await _original(request, line),
    )


async def _replaced_line(request: Request, id_: str, address: Address) -> Line:
    """Return the line of a person's message that has ended, in a conversation of the caller."""
    store, conversation = state_of(request).store, address.conversation
    conversations = Conversations(store)
    try:
        await refuse_hidden(request, conversations, conversation, await _scope(request))
    except ApiError as refused:
        raise ApiError(404, NOT_FOUND) from refused
    event = await find_message(store, id_)
    is_here = event is not None and conversation_of(payload_to_show(event)) == conversation
    if is_here and not isinstance(event, FinishedEvent):
        raise ApiError(409, STILL_WORKED)
    lines = await conversations.lines(conversation, message_ids=[id_], limit=1000)
    own = [line for line in lines if line.role == "user" and line.message_id == id_]
    if not own or own[0].is_handoff:
        raise ApiError(404, NOT_FOUND)
    return own[0]


async def _scope(request: Request) -> Scope:
    return await scope_of(request) or EVERYTHING


async def _original(request: Request, line: Line) -> str:
    versions = await Conversations(state_of(request).store).versions([line.message_id])
    return versions.get(line.message_id, [line.message_id])[0]


async def _same_agent(request: Request, text: str, line: Line) -> str | None:
    """Return the agent of the earlier message, None if the text names one or it is gone."""
    routing = await state_of(request).routing()
    return line.agent if routing.route(text) is DEFAULT and line.agent in routing.lanes else None


async def _own_files(request: Request, ids: Sequence[str], address: Address) -> list[StoredFile]:
    """Return uploads of the caller that it may send: new ones, and those of this conversation."""
    owner, ids = caller_of(request).owner or "", list(dict.fromkeys(ids))
    found = {file.id: file for file in await Files(state_of(request).store).find(ids)}
    for id_ in ids:
        file = found.get(id_)
        if (
            file is None
            or file.owner != owner
            or file.agent
            or file.conversation not in ("", address.conversation)
        ):
            raise ApiError(404, f"{FILE_NOT_FOUND}: {id_[:40]}")
    return [found[id_] for id_ in ids]


async def _files_to_carry(request: Request, files: Sequence[StoredFile]) -> list[Payload]:
    """Return the files as a message carries them. Those of another message are copied."""
    return [
        dict(file_info(file if file.message_id is None else await _copy(request, file)))
        for file in files
    ]


async def _copy(request: Request, file: StoredFile) -> StoredFile:
    """Give a file that another message carries a second id and row; they share the content."""
    state = state_of(request)
    copy = replace(
        file,
        id=new_file_id(),
        owner=caller_of(request).owner or "",
        created_at=await state.store.now(),
        message_id=None,
    )
    paths = [upload_path(state.settings.files, id_) for id_ in (file.id, copy.id)]
    try:
        await asyncio.to_thread(_link, str(paths[0]), str(paths[1]))
    except FileNotFoundError:
        raise ApiError(404, f"{FILE_NOT_FOUND}: {file.id}") from None
    await Files(state.store).add(copy)
    return copy


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        # The file system has no links.
        shutil.copyfile(source, target)

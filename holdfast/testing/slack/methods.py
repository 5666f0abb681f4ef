"""The Web API of the fake Slack: the methods that Holdfast calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from holdfast.testing.slack.workspace import BOT_ID, Message, Room, Upload, Workspace

LONGEST_TEXT = 40_000
LISTING_SCOPES = {
    "public_channel": "channels:read",
    "private_channel": "groups:read",
    "im": "im:read",
    "mpim": "mpim:read",
}
"""Scopes that Slack asks for to list conversations of each type."""


class Refusal(Exception):
    """Answered with `ok: false` and this error code."""


class Methods:
    """Each method takes the arguments of a call and returns its answer, or raises Refusal."""

    def __init__(self, workspace: Workspace, address: Callable[[str], str]) -> None:
        self._workspace = workspace
        self._address = address
        self.by_name: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "assistant.threads.setStatus": self._set_status,
            "auth.test": self._auth_test,
            "chat.delete": self._delete,
            "chat.postEphemeral": self._post_to_one,
            "chat.postMessage": self._post,
            "chat.update": self._update,
            "conversations.history": self._history,
            "conversations.info": self._info,
            "conversations.open": self._open,
            "conversations.replies": self._replies,
            "files.completeUploadExternal": self._complete_upload,
            "files.getUploadURLExternal": self._upload_url,
            "files.info": self._file,
            "reactions.add": self._react,
            "reactions.remove": self._unreact,
            "users.conversations": self._conversations,
            "users.info": self._user,
        }

    def _auth_test(self, _: dict[str, Any]) -> dict[str, Any]:
        workspace = self._workspace
        return {
            "url": self._address("/"),
            "team": "Fake",
            "team_id": workspace.team,
            "user": workspace.users[workspace.bot_user],
            "user_id": workspace.bot_user,
            "bot_id": BOT_ID,
        }

    def _post(self, given: dict[str, Any]) -> dict[str, Any]:
        room, text = self._writable(given), _text(given)
        metadata = _parse_json(given.get("metadata"))
        name, emoji, picture = (
            str(given.get(key) or "") for key in ("username", "icon_emoji", "icon_url")
        )
        if (name or emoji or picture) and "chat:write.customize" not in self._workspace.scopes:
            raise Refusal("missing_scope")
        icons = {key: icon for key, icon in (("emoji", emoji), ("image_64", picture)) if icon}
        message = self._workspace.post_as_bot(
            room,
            text,
            given.get("thread_ts"),
            metadata=metadata,
            username=name,
            icons=icons,
            blocks=_parse_json(given.get("blocks")),
        )
        return {"channel": room.id, "ts": message["ts"], "message": message}

    def _post_to_one(self, given: dict[str, Any]) -> dict[str, Any]:
        room, text, user = self._writable(given), _text(given), str(given.get("user"))
        if user not in self._workspace.users:
            raise Refusal("user_not_in_channel")
        self._workspace.ephemeral.append((room.id, user, text))
        return {"message_ts": self._workspace.stamp()}

    def _update(self, given: dict[str, Any]) -> dict[str, Any]:
        room, text, message = self._room(given), _text(given), self._own_message(given)
        message |= {"text": text, "edited": {"ts": self._workspace.stamp()}}
        for name in ("metadata", "blocks"):
            if given.get(name) is not None:
                message[name] = _parse_json(given[name])
        self._workspace.edits.append((message["ts"], text))
        return {"channel": room.id, "ts": message["ts"], "text": text, "message": message}

    def _delete(self, given: dict[str, Any]) -> dict[str, Any]:
        room, message = self._room(given), self._own_message(given)
        room.messages.remove(message)
        return {"channel": room.id, "ts": message["ts"]}

    def _set_status(self, given: dict[str, Any]) -> dict[str, Any]:
        workspace = self._workspace
        if not {"chat:write", "assistant:write"} & workspace.scopes:
            raise Refusal("missing_scope")
        room = self._room(given | {"channel": given.get("channel_id")})
        ts, status = str(given.get("thread_ts")), str(given.get("status"))
        if room.find(ts) is None:
            raise Refusal("invalid_thread_ts")
        workspace.set_status(ts, status)
        return {}

    def _own_message(self, given: dict[str, Any]) -> Message:
        message = self._room(given).find(str(given.get("ts")))
        if message is None:
            raise Refusal("message_not_found")
        if message.get("bot_id") != BOT_ID:
            raise Refusal("cant_update_message")
        return message

    def _replies(self, given: dict[str, Any]) -> dict[str, Any]:
        room = self._room(given)
        thread = room.thread(str(given.get("ts")))
        if not thread:
            raise Refusal("thread_not_found")
        return _page(thread, given)

    def _history(self, given: dict[str, Any]) -> dict[str, Any]:
        room = self._room(given)
        roots = [message for message in reversed(room.messages) if "thread_ts" not in message]
        return _page([_with_replies(room, root) for root in roots], given)

    def _conversations(self, given: dict[str, Any]) -> dict[str, Any]:
        """List all rooms: the bot is in each of them."""
        types = str(given.get("types") or "public_channel").split(",")
        if not {LISTING_SCOPES[kind] for kind in types} <= self._workspace.scopes:
            raise Refusal("missing_scope")
        rooms = [
            {"id": room.id, "name": room.name, "is_im": room.is_direct, "is_mpim": room.is_group}
            for room in self._workspace.rooms.values()
            if room.kind in types and not room.archived
        ]
        return {"channels": rooms, "response_metadata": {"next_cursor": ""}}

    def _info(self, given: dict[str, Any]) -> dict[str, Any]:
        room = self._room(given)
        return {
            "channel": {
                "id": room.id,
                "name": room.name,
                "is_im": room.is_direct,
                "is_archived": room.archived,
                "user": room.user,
            }
        }

    def _open(self, given: dict[str, Any]) -> dict[str, Any]:
        user = str(given.get("users"))
        if user not in self._workspace.users:
            raise Refusal("user_not_found")
        return {"channel": {"id": self._workspace.room_with(user).id}}

    def _user(self, given: dict[str, Any]) -> dict[str, Any]:
        user = str(given.get("user"))
        if user not in self._workspace.users:
            raise Refusal("user_not_found")
        name = self._workspace.users[user]
        return {
            "user": {
                "id": user,
                "name": name,
                "real_name": name.title(),
                "profile": {"display_name": name},
            }
        }

    def _react(self, given: dict[str, Any]) -> dict[str, Any]:
        reactions = self._reactions(given)
        if given["name"] in reactions:
            raise Refusal("already_reacted")
        reactions.append(str(given["name"]))
        return {}

    def _unreact(self, given: dict[str, Any]) -> dict[str, Any]:
        reactions = self._reactions(given)
        if given["name"] not in reactions:
            raise Refusal("no_reaction")
        reactions.remove(str(given["name"]))
        return {}

    def _reactions(self, given: dict[str, Any]) -> list[str]:
        message = self._room(given).find(str(given.get("timestamp")))
        if message is None:
            raise Refusal("message_not_found")
        reactions: list[str] = message.setdefault("reactions", [])
        return reactions

    def _upload_url(self, given: dict[str, Any]) -> dict[str, Any]:
        upload = Upload(f"F0{self._workspace.number()}", str(given["filename"]))
        self._workspace.uploads[upload.id] = upload
        return {"file_id": upload.id, "upload_url": self._address(f"/upload/{upload.id}")}

    def _complete_upload(self, given: dict[str, Any]) -> dict[str, Any]:
        files = [
            self._workspace.uploads.get(file["id"]) for file in _parse_json(given.get("files"))
        ]
        if any(file is None or file.completed for file in files):
            raise Refusal("file_not_found")
        room = self._writable({"channel": given.get("channel_id")})
        completed = [file for file in files if file is not None]
        for file in completed:
            file.completed = True

        def share() -> None:
            shared = [
                {"id": file.id, "name": file.name, "size": len(file.content)} for file in completed
            ]
            comment, thread_ts = str(given.get("initial_comment") or ""), given.get("thread_ts")
            message = self._workspace.post_as_bot(room, comment, thread_ts, files=shared)
            for file in completed:
                file.shares = {room.id: [{"ts": message["ts"], "thread_ts": thread_ts}]}

        self._workspace.show(share)
        return {"files": [{"id": file.id, "title": file.name} for file in completed]}

    def _file(self, given: dict[str, Any]) -> dict[str, Any]:
        """Answer for completed uploads only, as Slack does."""
        file = self._workspace.uploads.get(str(given.get("file")))
        if file is None or not file.completed:
            raise Refusal("file_not_found")
        shares = {"public": file.shares} if file.shares else {}
        return {
            "file": {
                "id": file.id,
                "name": file.name,
                "created": int(file.created),
                "shares": shares,
            }
        }

    def _room(self, given: dict[str, Any]) -> Room:
        room = self._workspace.rooms.get(str(given.get("channel")))
        if room is None:
            raise Refusal("channel_not_found")
        return room

    def _writable(self, given: dict[str, Any]) -> Room:
        room = self._room(given)
        if room.archived:
            raise Refusal("is_archived")
        return room


def _text(given: dict[str, Any]) -> str:
    text = str(given.get("text") or "")
    if not text:
        raise Refusal("no_text")
    # Slack truncates the text instead, which would hide a fault in a test.
    if len(text) > LONGEST_TEXT:
        raise Refusal("msg_too_long")
    return text


def _parse_json(value: Any) -> Any:
    """Parse an argument that came as JSON in a form."""
    return json.loads(value) if isinstance(value, str) and value else value


def _with_replies(room: Room, root: Message) -> Message:
    """Return the first message of a thread with the numbers that Slack adds to it."""
    replies = room.thread(root["ts"])[1:]
    if not replies:
        return root
    return root | {"reply_count": len(replies), "latest_reply": replies[-1]["ts"]}


def _without_metadata(message: Message) -> Message:
    return {name: value for name, value in message.items() if name != "metadata"}


def _page(messages: list[Message], given: dict[str, Any]) -> dict[str, Any]:
    """Return one page of messages. The cursor is the position of the next page."""
    oldest, latest = float(given.get("oldest") or 0), float(given.get("latest") or "inf")
    found = [message for message in messages if oldest < float(message["ts"]) < latest]
    start, limit = int(given.get("cursor") or 0), min(int(given.get("limit") or 100), 1000)
    page, more = found[start : start + limit], start + limit < len(found)
    if str(given.get("include_all_metadata")) not in ("1", "true", "True"):
        page = [_without_metadata(message) for message in page]
    return {
        "messages": page,
        "has_more": more,
        "response_metadata": {"next_cursor": str(start + limit) if more else ""},
    }

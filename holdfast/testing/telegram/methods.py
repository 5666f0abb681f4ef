"""The Bot API of the fake Telegram: the methods that Holdfast calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

from holdfast.testing.telegram.chats import Chats, Message

LONGEST_TEXT = 4096
LARGEST_FILE = 50 * 1024 * 1024
LARGEST_DOWNLOAD = 20 * 1024 * 1024
TAGS = ("b", "i", "u", "s", "a", "code", "pre", "blockquote")
Given = dict[str, Any]


class Refusal(Exception):
    """Answered with `ok: false`, this error code and description."""

    def __init__(self, code: int, description: str, parameters: Given | None = None) -> None:
        super().__init__(description)
        self.code = code
        self.parameters = parameters


class Methods:
    """Each method takes the arguments of a call and returns its result, or raises Refusal."""

    def __init__(self, chats: Chats) -> None:
        self._chats = chats
        self.by_name: dict[str, Callable[[Given], Any]] = {
            "getMe": self._get_me,
            "getFile": self._get_file,
            "sendMessage": self._send_message,
            "sendDocument": self._send_document,
            "sendChatAction": self._send_action,
            "editMessageText": self._edit_text,
            "editMessageReplyMarkup": self._edit_markup,
            "deleteMessage": self._delete,
            "answerCallbackQuery": self._answer_callback,
        }

    def _get_me(self, _: Given) -> Message:
        return self._chats.user(self._chats.bot) | {"can_join_groups": True}

    def _get_file(self, given: Given) -> Message:
        upload = self._chats.uploads.get(str(given.get("file_id")))
        if upload is None:
            raise Refusal(400, "Bad Request: invalid file_id")
        if upload.size > LARGEST_DOWNLOAD:
            raise Refusal(400, "Bad Request: file is too big")
        return upload.description() | {"file_path": upload.path}

    def _send_message(self, given: Given) -> Message:
        chat = self._writable(given)
        markup, reply = _parse(given, "reply_markup"), _parse(given, "reply_parameters")
        return self._chats.post(
            chat,
            self._chats.bot,
            text=_text(given),
            reply_markup=markup,
            message_thread_id=_number(given, "message_thread_id"),
            replies_to=reply.get("message_id") if reply else None,
        )

    def _send_document(self, given: Given) -> Message:
        chat = self._writable(given)
        attached = str(given.get("document")).removeprefix("attach://")
        name, content = given[attached]
        if len(content) > LARGEST_FILE:
            raise Refusal(413, "Request Entity Too Large")
        upload = self._chats.upload(content, name)
        thread = _number(given, "message_thread_id")
        document = upload.description(name)
        return self._chats.post(chat, self._chats.bot, document=document, message_thread_id=thread)

    def _send_action(self, given: Given) -> bool:
        self._chats.actions.append((self._writable(given), str(given.get("action"))))
        return True

    def _edit_text(self, given: Given) -> Message:
        message, text = self._own_message(given), _text(given)
        markup = _parse(given, "reply_markup")
        if message.get("text") == text and message.get("reply_markup") == markup:
            raise Refusal(
                400,
                "Bad Request: message is not modified: specified new message content and reply"
                " markup are exactly the same as a current content and reply markup of the message",
            )
        message["text"] = text
        self._chats.edits.append((message["message_id"], text))
        return message

    def _edit_markup(self, given: Given) -> Message:
        message = self._own_message(given)
        message.pop("reply_markup", None)
        return message

    def _delete(self, given: Given) -> bool:
        chat = self._writable(given)
        message = self._chats.find(chat, int(given["message_id"]))
        if message is None:
            raise Refusal(400, "Bad Request: message to delete not found")
        self._chats.messages[chat].remove(message)
        return True

    def _answer_callback(self, given: Given) -> bool:
        self._chats.callback_answers.append(given.get("text"))
        return True

    def _own_message(self, given: Given) -> Message:
        message = self._chats.find(self._writable(given), int(given["message_id"]))
        if message is None or message["from"]["id"] != self._chats.bot:
            raise Refusal(400, "Bad Request: message to edit not found")
        return message

    def _writable(self, given: Given) -> int:
        chat = int(given["chat_id"])
        if chat in self._chats.moved:
            description = "Bad Request: group chat was upgraded to a supergroup chat"
            raise Refusal(400, description, {"migrate_to_chat_id": self._chats.moved[chat]})
        if not self._chats.exists(chat):
            raise Refusal(400, "Bad Request: chat not found")
        if chat in self._chats.blocked:
            raise Refusal(403, "Forbidden: bot was blocked by the user")
        return chat


def _text(given: Given) -> str:
    text = str(given.get("text") or "")
    if given.get("parse_mode") == "HTML":
        text = _parse_html(text)
    if not text.strip():
        raise Refusal(400, "Bad Request: message text is empty")
    if len(text.encode("utf-16-le")) // 2 > LONGEST_TEXT:
        raise Refusal(400, "Bad Request: message is too long")
    return text


def _parse(given: Given, name: str) -> Any:
    return json.loads(given[name]) if given.get(name) else None


def _number(given: Given, name: str) -> int | None:
    return int(given[name]) if given.get(name) else None


class _Html(HTMLParser):
    """Reads Telegram's HTML, and refuses tags that it does not know or that are not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in TAGS:
            raise Refusal(400, f'Bad Request: can\'t parse entities: Unsupported start tag "{tag}"')
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            raise Refusal(400, "Bad Request: can't parse entities: Unexpected end tag")

    def handle_data(self, data: str) -> None:
        self.text += data


def _parse_html(text: str) -> str:
    parser = _Html()
    parser.feed(text)
    parser.close()
    if parser.open:
        raise Refusal(400, "Bad Request: can't parse entities: Can't find end tag")
    return parser.text

"""Files of messages and responses: what a channel may send, and what it may download."""

from __future__ import annotations

import re
from collections.abc import AsyncIterable
from pathlib import Path, PurePath
from typing import BinaryIO

from holdfast.channels.base import Undeliverable
from holdfast.message import Payload
from holdfast.store.files import open_below, sendable_path

CHUNK = 64 * 1024
_NOT_A_NAME = re.compile(r"[^\w. -]")


def read_file(root: Path | None, file: str, response: Payload, largest: int) -> tuple[str, bytes]:
    """Return the name and content of a file that a response sends.

    Raises Undeliverable if the conversation may not send it, or if it is too large."""
    if root is None:
        raise Undeliverable("file_refused", "no files root is set")
    channel, conversation = (str(response.get(key) or "") for key in ("channel", "conversation"))
    path = sendable_path(root, file, channel, conversation)
    if path is None:
        problem = f"{file} is not below {root}, or belongs to another conversation"
        raise Undeliverable("file_refused", problem)
    try:
        with open_below(root, path) as content:
            return PurePath(path).name, _read_small(content, file, largest)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise Undeliverable("file_gone", f"{file} is not there") from None


def _read_small(content: BinaryIO, file: str, largest: int) -> bytes:
    """Read a file unless it is too large for the platform."""
    if content.seek(0, 2) > largest:
        raise Undeliverable("file_too_large", f"{file} {too_large(largest)}")
    content.seek(0)
    return content.read()


async def read_limited(chunks: AsyncIterable[bytes], largest: int) -> bytes | None:
    """Return everything that a download brings; None if it is too large."""
    content = bytearray()
    async for chunk in chunks:
        content += chunk
        if len(content) > largest:
            return None
    return bytes(content)


def too_large(largest: int) -> str:
    """Return the predicate of a sentence about a file that exceeds the limit."""
    return f"has more than {largest / 1024 / 1024:g} MiB"


def safe_name(name: str) -> str:
    """Return a file name without folders and special characters."""
    return _NOT_A_NAME.sub("_", name).lstrip(".")[:100] or "file"

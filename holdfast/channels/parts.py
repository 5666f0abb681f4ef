"""The parts of a response: its texts, then its files."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.channels.base import Part, part_key
from holdfast.message import PREVIEW
from holdfast.queue.event import Event

NO_ANSWER = "(no answer)"


def parts_of(response: Event, texts_of: Callable[[str], Sequence[str]]) -> list[Part]:
    """Return the parts of a response; `texts_of` cuts a text at the platform's limit.

    A response always has a part. If there is a preview, an empty text deletes it."""
    files = [str(path) for path in response.event.get("files") or ()]
    texts = list(texts_of(str(response.event.get("message") or "")))
    if not texts and (PREVIEW in response.event or not files):
        texts = ["" if PREVIEW in response.event else NO_ANSWER]
    parts = [Part(part_key(response, number), text) for number, text in enumerate(texts)]
    return parts + [
        Part(part_key(response, len(texts) + number), file=file)
        for number, file in enumerate(files)
    ]

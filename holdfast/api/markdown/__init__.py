"""Markdown as HTML that a page can insert: sanitised, bounded, loading nothing from other hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache

SMALL = 4 * 1024
"""Characters that are rendered at once; more would hold up the event loop for over 10 ms."""
CACHED = 16 * 1024
"""Longest text whose HTML is cached."""
PAGE_BYTES = 256 * 1024
"""Size at which a page of lines ends if it is rendered."""


async def render_html(text: str) -> str:
    """Return the HTML of a text. A long one is rendered in a thread."""
    [html] = await render_all([text])
    return html


async def render_all(texts: Sequence[str]) -> list[str]:
    """Return the HTML of each text."""
    if sum(map(len, texts)) <= SMALL:
        return list(map(_html, texts))
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_threads(), lambda: list(map(_html, texts)))


def _html(text: str) -> str:
    return _cached_html(text) if len(text) <= CACHED else _render(text)


@lru_cache(maxsize=512)
def _cached_html(text: str) -> str:
    return _render(text)


def _render(text: str) -> str:
    # Imported at the first use: a server without a page needs none of it.
    from holdfast.api.markdown.page import to_html

    return to_html(text)


@cache
def _threads() -> ThreadPoolExecutor:
    """Return a pool of two threads, the most that rendering may occupy."""
    return ThreadPoolExecutor(2, thread_name_prefix="markdown")

"""Limits and intervals of an API server that are not settings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from holdfast.queue.pages import PAGE_BYTES
from holdfast.store.conversations import NOTED_FOR


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one server."""

    head_seconds: float = 10.0
    """Seconds within which the head of a request must arrive."""
    read_seconds: float = 30.0
    """Seconds within which a client must read 48 KiB, or the rest of a response."""
    body_seconds: float = 30.0
    """Seconds within which a body must arrive."""
    body_stall_seconds: float = 5.0
    """Seconds by which a body may be late at the lowest accepted speed."""
    wrong_tokens_per_second: float = 5.0
    wrong_tokens_burst_seconds: float = 20.0
    """Burst of wrong tokens: as many as the rate allows in this many seconds."""
    caller_cache_seconds: float = 1.0
    """Seconds for which a credential is cached; revocations by other processes take that long."""
    oidc_key_seconds: float = 60.0
    """Minimum interval between two reads of an OpenID Connect provider's keys."""
    ping_seconds: float = 15
    """Interval of comments in a stream, so that proxies do not close it."""
    message_poll: timedelta = timedelta(seconds=1)
    """Interval between reads of one answer without a frame: workers may write it late or never."""
    chunk_bytes: int = 64 * 1024
    """Size up to which frames of a stream are collected before they are sent."""
    window_bytes: int = 16 * 1024 * 1024
    """Size of the window of recent frames. A client that falls behind it is disconnected."""
    page_bytes: int = PAGE_BYTES
    """Size at which a page of a list ends."""
    quick_query: timedelta = timedelta(milliseconds=50)
    """Counts that take less than this are not cached."""
    conversation_interval: timedelta = NOTED_FOR
    """Interval at which a process writes the last use of a conversation."""

"""The status of a thread in Slack: a line below it that says what the agent does now."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from datetime import timedelta

from holdfast.channels.background import Start
from holdfast.channels.base import NotNow, PreviewFence, Progress
from holdfast.channels.slack.post import Destination
from holdfast.channels.slack.workspace import Workspace
from holdfast.errors import LeaseLost
from holdfast.telemetry import SLACK_PROGRESS_FAILED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

METHOD = "assistant.threads.setStatus"
SET_EVERY = timedelta(seconds=1)
"""Least time between two changes of one status."""
LONGEST_STATUS = 200
"""Characters of a status."""
UNSUPPORTED = ("missing_scope", "not_allowed_token_type", "unknown_method", "status_404")
"""Error codes after which the workspace is not asked again."""


class ThreadStatus(Progress):
    """Sets the newest text as the status of a thread, and removes it at the end.

    Slack removes it by itself when the bot posts, or two minutes after a crash."""

    def __init__(
        self, workspace: Workspace, destination: Destination, fence: PreviewFence, start: Start
    ) -> None:
        self._workspace = workspace
        self._destination = destination
        self._fence = fence
        self._start = start
        self._text = self._shown = ""
        self._is_closed = False
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def show(self, text: str) -> None:
        self._text = text[:LONGEST_STATUS]
        self._changed.set()
        if self._task is None:
            self._task = self._start(self._run())

    def close(self) -> None:
        self._is_closed = True
        if self._task is not None:
            self.show("")

    async def _run(self) -> None:
        try:
            while not self._is_over:
                await self._wait_for_change()
                await self._set(self._text)
        except LeaseLost:
            # Another worker sets the status now.
            return
        except Exception as error:  # noqa: BLE001 - a status is not worth a turn
            if getattr(error, "code", None) in UNSUPPORTED:
                self._workspace.can_set_status = False
            log.warning(Entry(SLACK_PROGRESS_FAILED, error=error))

    async def _wait_for_change(self) -> None:
        refresh_after = self._workspace.access.limits.refresh_status_after
        with suppress(TimeoutError):
            async with asyncio.timeout(refresh_after.total_seconds()):
                await self._changed.wait()
        self._changed.clear()

    async def _set(self, text: str) -> None:
        """Set the status, then wait until it may be changed again."""
        try:
            async with self._fence.hold():
                await self._workspace.call(
                    METHOD,
                    channel_id=self._destination.channel,
                    thread_ts=self._destination.thread_ts,
                    status=text,
                )
        except NotNow as wait:
            self._changed.set()
            await asyncio.sleep(wait.delay.total_seconds())
            return
        self._shown = text
        if not self._is_over:
            await asyncio.sleep(SET_EVERY.total_seconds())

    @property
    def _is_over(self) -> bool:
        return self._is_closed and not self._shown

"""Limits and intervals of the consumers of a process, and of the tasks beside them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from holdfast.consumers.notices import CHECK_EVERY
from holdfast.consumers.request import FINISHING_SHARE, SEND_WITHIN, RequestLimits
from holdfast.queue.policy import LET_GO_WITHIN, Backoff
from holdfast.queue.sweeper import REPORT_ALIVE_EVERY

OUTBOX_BACKOFF = Backoff(most=timedelta(seconds=60))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits and intervals of a process that are not settings."""

    outbox_backoff: Backoff = OUTBOX_BACKOFF
    send_within: timedelta = SEND_WITHIN
    open_within: timedelta = timedelta(seconds=2)
    """Time for channels to open. After that, the process counts as ready anyway."""
    notice_every: timedelta = CHECK_EVERY
    report_every: timedelta = REPORT_ALIVE_EVERY
    let_go_within: timedelta = LET_GO_WITHIN

    @property
    def ends_within(self) -> timedelta:
        """Time after the grace period in which consumers end, unless a handler never stops."""
        return 3 * self.let_go_within

    @property
    def requests(self) -> RequestLimits:
        """Limits of the requests to platforms."""
        return RequestLimits(
            send_within=self.send_within, finish_within=self.let_go_within * FINISHING_SHARE
        )

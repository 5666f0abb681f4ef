"""What a consumer tells of its turns: counts, times and, for a sampled few, spans."""

from __future__ import annotations

import logging
import time

from pydantic_core import to_json

from holdfast.errors import Unreadable
from holdfast.queue.event import MEMORY, OUTBOX, Event
from holdfast.queue.outcome import Dead, Lost, Outcome, Retry, Settled
from holdfast.queue.turn import LeasedTurn
from holdfast.telemetry import (
    CLAIM_TO_SETTLE,
    DEAD_LETTER,
    FAILURES,
    LEASES_LOST,
    RECEIPT_TO_CLAIM,
    RESPONSE_TO_DELIVERY,
    RETRIES,
    TURN_FAILED,
    WAKES,
    spans,
)
from holdfast.telemetry.logs import USERS_CODE, Entry

log = logging.getLogger(__name__)

UNCLASSED = "unclassed"


class Meter:
    """Called for every turn of a drain: nothing here may take longer than a microsecond or two."""

    def __init__(self, queue: str, unnamed: str = "") -> None:
        self._queue = queue
        self.unnamed = unnamed
        self._waited = RECEIPT_TO_CLAIM.of(queue)
        self._woken = ("start", time.monotonic())

    def woken(self, reason: str) -> None:
        WAKES.add(self._queue, reason)
        self._woken = (reason, time.monotonic())

    def claimed(self, turn: LeasedTurn, since: float) -> spans.TurnSpan | None:
        """The turn is ours by a call that began at monotonic `since`."""
        for event in turn.events:
            # A later claim says how long the back-off was, not how long anybody waited for us.
            if len(event.claimed) == 1:
                self._waited.observe((event.claimed[0] - event.created_at).total_seconds())
        return None if spans.tracing is None else self._span(spans.tracing, turn, since)

    def settled(
        self,
        turn: LeasedTurn,
        outcome: Outcome | None,
        result: Settled | Lost,
        since: float,
        span: spans.TurnSpan | None,
    ) -> None:
        """The turn is over, in whatever way."""
        seconds = time.monotonic() - since
        ended = "lost" if isinstance(result, Lost) else result.ended
        primary = turn.primary
        agent = primary.target or self.unnamed
        CLAIM_TO_SETTLE.of(self._queue, agent, ended).observe(seconds)
        if ended != "completed":
            self._failed(agent, outcome, ended)
            if ended == "dead" and isinstance(outcome, Retry | Dead):
                command = f"holdfast dead retry {primary.id}"
                log.error(
                    Entry(DEAD_LETTER, **self._about(turn), **_said(outcome), retry_with=command)
                )
        elif self._queue == OUTBOX:
            waited = (primary.claimed[-1] - primary.created_at).total_seconds()
            RESPONSE_TO_DELIVERY.of(agent).observe(waited + seconds)
        if span is not None:
            span.end(ended, _error(outcome))

    def failed(
        self,
        turn: LeasedTurn,
        outcome: Retry | Dead,
        max_attempts: int,
        raised: BaseException | None = None,
    ) -> None:
        """Log an attempt that failed, whether its handler raised or returned the failure."""
        # The relay names what it could not index by itself.
        if self._queue != MEMORY:
            attempt = f"{turn.attempt} of {turn.primary.max_attempts or max_attempts}"
            entry = Entry(TURN_FAILED, **self._about(turn), attempt=attempt, **_said(outcome))
            log.warning(entry, exc_info=raised, extra={USERS_CODE: True})

    def _about(self, turn: LeasedTurn) -> dict[str, object]:
        primary = turn.primary
        name = "channel" if self._queue == OUTBOX else "agent"
        about = {
            "queue": self._queue,
            name: primary.target or self.unnamed,
            "message_id": primary.message_id,
        }
        return about | {"event_id": primary.id}

    def lost(self, turn: LeasedTurn, since: float, span: spans.TurnSpan | None) -> None:
        """The turn became another worker's while its handler ran."""
        self.settled(turn, None, Lost(turn), since, span)

    def _failed(self, agent: str, outcome: Outcome | None, ended: str) -> None:
        if ended == "lost":
            LEASES_LOST.add(self._queue)
        elif isinstance(outcome, Retry | Dead):
            counter = RETRIES if ended == "back" else FAILURES
            counter.add(self._queue, agent, outcome.error_class or UNCLASSED)

    def _span(
        self, tracing: spans.Tracing, turn: LeasedTurn, since: float
    ) -> spans.TurnSpan | None:
        primary = turn.primary
        if not tracing.takes(primary.root_id or primary.id):
            return None
        attributes: dict[str, str | int] = {
            "holdfast.queue": self._queue,
            "holdfast.agent": primary.target or self.unnamed,
            "holdfast.event_id": primary.id,
            "holdfast.root_id": primary.root_id or primary.id,
            "holdfast.message_id": primary.message_id or "",
            "holdfast.attempt": primary.attempts,
            "holdfast.events": len(turn.events),
            "holdfast.event": _payload(primary),
        }
        reason, woken_at = self._woken
        root_id = primary.root_id or primary.id
        tracing.woken(root_id, woken_at, since)
        return tracing.begin(root_id, since, attributes | {"holdfast.wake_reason": reason})


def _payload(event: Event) -> str:
    try:
        return to_json(event.event).decode()
    except Unreadable as error:
        return str(error)


def _said(outcome: Retry | Dead) -> dict[str, object]:
    error = outcome.reason if isinstance(outcome, Dead) else outcome.error
    said: dict[str, object] = {"error": error or "the handler asked for a retry"}
    return said if outcome.error_class is None else said | {"error_class": outcome.error_class}


def _error(outcome: Outcome | None) -> dict[str, str]:
    match outcome:
        case Retry(error=text, error_class=kind) | Dead(reason=text, error_class=kind):
            return {"holdfast.error": text or "", "holdfast.error_class": kind or UNCLASSED}
        case _:
            return {}

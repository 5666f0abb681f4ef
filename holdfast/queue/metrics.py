"""Metrics of the queues: counts and times of turns, spans of a sampled few, and gauges."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pydantic_core import to_json

from holdfast.errors import HoldfastError, Unreadable
from holdfast.queue.event import MEMORY, OUTBOX, Event
from holdfast.queue.outcome import Dead, Lost, Outcome, Retry, Settled
from holdfast.queue.store import Count, Store
from holdfast.queue.turn import LeasedTurn
from holdfast.telemetry import (
    CLAIM_TO_SETTLE,
    DEAD_LETTER,
    EVENTS,
    FAILURES,
    LEASES_LOST,
    OLDEST_PENDING,
    OLDEST_READY,
    OLDEST_SNAPSHOT,
    RECEIPT_TO_CLAIM,
    RESPONSE_TO_DELIVERY,
    RETRIES,
    SLOTS,
    SLOTS_BUSY,
    STORE_UP,
    TURN_FAILED,
    WAKES,
    exporter,
    spans,
)
from holdfast.telemetry.instruments import OTHER, Reading, limit_labels
from holdfast.telemetry.logs import USERS_CODE, Entry

if TYPE_CHECKING:
    from holdfast.queue.consumer import Consumer

log = logging.getLogger(__name__)

UNCLASSED = "unclassed"
STATES = ("ready", "delayed", "queued", "leased")
MOST_TARGETS = 100
"""Agents and channels that `holdfast_events` counts one by one; the rest share one label."""
STORE_ANSWERS_WITHIN = timedelta(seconds=5)
"""Time that the database may take; after it, metrics report it as down."""
EXPORT_EVERY = timedelta(seconds=30)

ReadGauges = Callable[[], Awaitable[Sequence[Reading]]]
"""Reads gauges that the queue knows nothing of, such as those of channels."""


class TurnMetrics:
    """Counts, times and logs the turns of one queue.

    Called for every turn, so nothing here may take longer than a microsecond or two."""

    def __init__(self, queue: str, unnamed: str = "") -> None:
        self._queue = queue
        self.unnamed = unnamed
        self._waited = RECEIPT_TO_CLAIM.of(queue)
        self._woken = ("start", time.monotonic())

    def record_wake(self, reason: str) -> None:
        WAKES.add(self._queue, reason)
        self._woken = (reason, time.monotonic())

    def record_claim(self, turn: LeasedTurn, since: float) -> spans.TurnSpan | None:
        """Count a claimed turn, and begin its span if it is sampled.

        `since` is the monotonic time at which the claim was sent."""
        for event in turn.events:
            # Later claims would measure the back-off, not the time that the sender waited for us.
            if len(event.claimed) == 1:
                self._waited.observe((event.claimed[0] - event.created_at).total_seconds())
        return None if spans.tracing is None else self._span(spans.tracing, turn, since)

    def record_settle(
        self,
        turn: LeasedTurn,
        outcome: Outcome | None,
        result: Settled | Lost,
        since: float,
        span: spans.TurnSpan | None,
    ) -> None:
        """Count the end of a turn, and log it if it is a dead letter."""
        seconds = time.monotonic() - since
        ended = "lost" if isinstance(result, Lost) else result.ended
        primary = turn.primary
        agent = primary.target or self.unnamed
        CLAIM_TO_SETTLE.of(self._queue, agent, ended).observe(seconds)
        if ended != "completed":
            self._count_failure(agent, outcome, ended)
            if ended == "dead" and isinstance(outcome, Retry | Dead):
                command = f"holdfast dead retry {primary.id}"
                log.error(
                    Entry(
                        DEAD_LETTER,
                        **self._log_fields(turn),
                        **_error_fields(outcome),
                        retry_with=command,
                    )
                )
        elif self._queue == OUTBOX:
            waited = (primary.claimed[-1] - primary.created_at).total_seconds()
            RESPONSE_TO_DELIVERY.of(agent).observe(waited + seconds)
        if span is not None:
            span.end(ended, _span_error(outcome))

    def record_failure(
        self,
        turn: LeasedTurn,
        outcome: Retry | Dead,
        max_attempts: int,
        raised: BaseException | None = None,
    ) -> None:
        """Log an attempt that failed, whether its handler raised or returned the failure."""
        # The relay logs its failures itself, with the document.
        if self._queue != MEMORY:
            attempt = f"{turn.attempt} of {turn.primary.max_attempts or max_attempts}"
            entry = Entry(
                TURN_FAILED, **self._log_fields(turn), attempt=attempt, **_error_fields(outcome)
            )
            log.warning(entry, exc_info=raised, extra={USERS_CODE: True})

    def _log_fields(self, turn: LeasedTurn) -> dict[str, object]:
        primary = turn.primary
        name = "channel" if self._queue == OUTBOX else "agent"
        fields = {
            "queue": self._queue,
            name: primary.target or self.unnamed,
            "message_id": primary.message_id,
        }
        return fields | {"event_id": primary.id}

    def record_loss(self, turn: LeasedTurn, since: float, span: spans.TurnSpan | None) -> None:
        """Count a turn that another worker took over while its handler ran."""
        self.record_settle(turn, None, Lost(turn), since, span)

    def _count_failure(self, agent: str, outcome: Outcome | None, ended: str) -> None:
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
        tracing.record_wake(root_id, woken_at, since)
        return tracing.begin(root_id, since, attributes | {"holdfast.wake_reason": reason})


def _payload(event: Event) -> str:
    try:
        return to_json(event.event).decode()
    except Unreadable as error:
        return str(error)


def _error_fields(outcome: Retry | Dead) -> dict[str, object]:
    error = outcome.reason if isinstance(outcome, Dead) else outcome.error
    fields: dict[str, object] = {"error": error or "the handler asked for a retry"}
    return fields if outcome.error_class is None else fields | {"error_class": outcome.error_class}


def _span_error(outcome: Outcome | None) -> dict[str, str]:
    match outcome:
        case Retry(error=text, error_class=kind) | Dead(reason=text, error_class=kind):
            return {"holdfast.error": text or "", "holdfast.error_class": kind or UNCLASSED}
        case _:
            return {}


async def read_gauges(
    store: Store, consumers: Sequence[Consumer], *further: ReadGauges
) -> list[Reading]:
    """Read all gauges now. If the database fails or is too slow, its values are left out."""
    readings = [*_slots(consumers)]
    try:
        async with asyncio.timeout(STORE_ANSWERS_WITHIN.total_seconds()):
            readings += await _read_store(
                store, {consumer.policy.queue: consumer.policy.unnamed for consumer in consumers}
            )
            for read in further:
                readings += await read()
            readings.append((STORE_UP, (), 1))
    except (HoldfastError, TimeoutError):
        readings.append((STORE_UP, (), 0))
    return readings


async def keep_reading(store: Store, consumers: Sequence[Consumer], *further: ReadGauges) -> None:
    """Read gauges again and again, for exporters that push."""
    while True:
        exporter.latest[:] = await read_gauges(store, consumers, *further)
        await asyncio.sleep(EXPORT_EVERY.total_seconds())


def _slots(consumers: Sequence[Consumer]) -> list[Reading]:
    """Read the slots of each queue, and the busy ones.

    A process may hold more turns than slots, since turns that wait to be settled take none."""
    return [
        reading
        for consumer in consumers
        for reading in (
            (SLOTS, (consumer.policy.queue,), consumer.slots.total),
            (SLOTS_BUSY, (consumer.policy.queue,), min(consumer.running, consumer.slots.total)),
        )
    ]


async def _read_store(store: Store, unnamed: dict[str, str]) -> list[Reading]:
    counts = await store.counts()
    readings = _queue_depths(counts, unnamed)
    readings += _oldest_ages(counts, await store.now())
    if (age := await store.oldest_snapshot()) is not None:
        readings.append((OLDEST_SNAPSHOT, (), age.total_seconds()))
    return readings


def _queue_depths(counts: Sequence[Count], unnamed: dict[str, str]) -> list[Reading]:
    """Live events by queue and agent; the target '' and the name of its agent are the same agent.

    Clients may invent channels: those with the fewest events are counted together as `other`.
    """
    depths: dict[tuple[str, ...], int] = {}
    agents: set[tuple[str, ...]] = set()
    for count in sorted(counts, key=_events, reverse=True):
        agent = count.target or unnamed.get(count.queue, "")
        labels = limit_labels((count.queue, agent), 0)
        if labels not in agents and len(agents) >= MOST_TARGETS:
            labels = (labels[0], OTHER)
        agents.add(labels)
        for state in STATES:
            key = (*labels, state)
            depths[key] = depths.get(key, 0) + getattr(count, state)
    return [(EVENTS, key, number) for key, number in depths.items()]


def _events(count: Count) -> int:
    return sum(getattr(count, state) for state in STATES)


def _oldest_ages(counts: Sequence[Count], now: datetime) -> list[Reading]:
    ready: dict[str, datetime] = {}
    pending: dict[str, datetime] = {}
    for count in counts:
        ready[count.queue] = min(ready.get(count.queue, now), count.ready_since or now)
        pending[count.queue] = min(pending.get(count.queue, now), count.pending_since or now)
    return [
        (gauge, (queue,), (now - moment).total_seconds())
        for gauge, since in ((OLDEST_READY, ready), (OLDEST_PENDING, pending))
        for queue, moment in since.items()
    ]

"""Spans of sampled turns, by OpenTelemetry through logfire; both are imported on first use."""

from __future__ import annotations

import hashlib
import logging
import re
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar, cast

from holdfast.telemetry import (
    SPAN_CLAIM,
    SPAN_HANDLE,
    SPAN_RECEIVE,
    SPAN_SETTLE,
    SPAN_STORE_CALL,
    SPAN_TURN,
    SPAN_WAKE,
    exporter,
    logs,
)
from holdfast.telemetry.redaction import redact_start

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

Result = TypeVar("Result")
Attributes = Mapping[str, str | int | float]

ATTRIBUTE_LENGTH = 64_000
"""Maximum number of characters of an attribute; a message may have a megabyte."""
ALWAYS_PER_SECOND = 1
"""Turns traced per second whatever the ratio, so that a quiet system shows traces at all."""

MAX_TRACED_ROOTS = 1000
"""Maximum number of traced roots that a process remembers."""
MAX_WAKE_TO_CLAIM = 5.0
"""Seconds after which a claim is not attributed to the last wake-up."""

_GOLDEN = 0x9E3779B97F4A7C15
_64 = 1 << 64
_FUNCTION = re.compile(r"\bagent\.\w+")

_trace_id: ContextVar[int | None] = ContextVar("holdfast_trace_id", default=None)
_in_turn: ContextVar[bool] = ContextVar("holdfast_in_turn", default=False)


class Sampler:
    """Decide which turns are traced, before any span is created.

    The id of the root event decides, so that a message and its answer are traced together."""

    def __init__(self, ratio: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._below = int(ratio * _64)
        self._clock = clock
        self._second = 0
        self._taken_in_second = 0
        self._traced_roots: dict[int, None] = {}

    def takes(self, root_id: int) -> bool:
        # The hash spreads consecutive ids over the whole range. All processes agree on it.
        if root_id * _GOLDEN % _64 < self._below or root_id in self._traced_roots:
            return True
        if not self._has_quota_in_this_second():
            return False
        # Work that follows in this process belongs to the same trace.
        self._traced_roots[root_id] = None
        if len(self._traced_roots) > MAX_TRACED_ROOTS:
            del self._traced_roots[next(iter(self._traced_roots))]
        return True

    def _has_quota_in_this_second(self) -> bool:
        second = int(self._clock())
        if second != self._second:
            self._second, self._taken_in_second = second, 0
        self._taken_in_second += 1
        return self._taken_in_second <= ALWAYS_PER_SECOND


class Tracing:
    """Create the spans of turns that the sampler selects."""

    def __init__(self, tracer: Tracer, sampler: Sampler, scope: str) -> None:
        self.tracer = tracer
        self.takes = sampler.takes
        self._scope = scope

    def begin(self, root_id: int, since: float, attributes: Attributes) -> TurnSpan:
        """Start the span of a turn whose claim began at `since`.

        All times given to this class are monotonic."""
        with self._trace_of(root_id):
            return TurnSpan(self.tracer, since, attributes)

    def record_receipt(
        self, root_id: int, since: float, stored_since: float, attributes: Attributes
    ) -> None:
        """Start the trace of a message that was received at `since` and is stored now."""
        from opentelemetry.context import Context
        from opentelemetry.trace import set_span_in_context

        if not self.takes(root_id):
            return
        began_at, stored_at, now = _nanoseconds(since), _nanoseconds(stored_since), time.time_ns()
        with self._trace_of(root_id):
            span = self.tracer.start_span(
                SPAN_RECEIVE,
                Context(),
                attributes=_redact_attributes(attributes),
                start_time=began_at,
            )
        below = set_span_in_context(span)
        self.tracer.start_span(f"{SPAN_STORE_CALL}.put", below, start_time=stored_at).end(now)
        span.end(now)

    def record_wake(self, root_id: int, at: float, until: float) -> None:
        """Record the wake-up at `at` that led to the claim of a turn at `until`."""
        from opentelemetry.context import Context

        if 0 <= until - at < MAX_WAKE_TO_CLAIM:
            with self._trace_of(root_id):
                span = self.tracer.start_span(SPAN_WAKE, Context(), start_time=_nanoseconds(at))
            span.end(_nanoseconds(until))

    @contextmanager
    def _trace_of(self, root_id: int) -> Iterator[None]:
        """Put root spans that are started in this block into the trace of the message."""
        _trace_id.set(
            int.from_bytes(hashlib.sha256(f"{self._scope}/{root_id}".encode()).digest()[:16], "big")
        )
        try:
            yield
        finally:
            _trace_id.set(None)


class TurnSpan:
    """Span of one turn from claim to settle; the parent of all spans in between."""

    def __init__(self, tracer: Tracer, since: float, attributes: Attributes) -> None:
        from opentelemetry.context import Context
        from opentelemetry.trace import set_span_in_context

        claimed_at = time.time_ns()
        began_at = claimed_at - int((time.monotonic() - since) * 1e9)
        self._tracer = tracer
        self._handled_at = claimed_at
        self._span: Span = tracer.start_span(
            SPAN_TURN,
            Context(),
            attributes=_redact_attributes(attributes),
            start_time=began_at,
            record_exception=False,
        )
        self._context = set_span_in_context(self._span)
        tracer.start_span(SPAN_CLAIM, self._context, start_time=began_at).end(claimed_at)

    async def follow(self, handling: Awaitable[Result]) -> Result:
        """Await a handler. Its own spans and its store calls become children of the turn's span."""
        with _start_current_span(self._tracer, SPAN_HANDLE, self._context):
            token = _in_turn.set(True)
            try:
                return await handling
            finally:
                _in_turn.reset(token)
                self._handled_at = time.time_ns()

    def end(self, ended: str, attributes: Attributes) -> None:
        """End the span. `ended` is completed, dead, back or lost."""
        from opentelemetry.trace import StatusCode

        now = time.time_ns()
        self._tracer.start_span(SPAN_SETTLE, self._context, start_time=self._handled_at).end(now)
        self._span.set_attributes({"holdfast.ended": ended, **_redact_attributes(attributes)})
        if ended != "completed":
            self._span.set_status(StatusCode.ERROR, ended)
        self._span.end(now)


tracing: Tracing | None = None
"""None until `start` finds an exporter or a tracer provider."""


@contextmanager
def store_call(name: str) -> Iterator[None]:
    """Wrap a store call of a traced turn in a span."""
    if tracing is None or not _in_turn.get():
        yield
        return
    with _start_current_span(tracing.tracer, f"{SPAN_STORE_CALL}.{name}") as span:
        span.set_attribute("db.operation.name", name)
        yield


def name_statement(query: str) -> None:
    """Add the name of the SQL function to the span of a traced store call."""
    if tracing is not None and _in_turn.get() and (called := _FUNCTION.search(query)):
        from opentelemetry.trace import get_current_span

        get_current_span().set_attribute("db.query.summary", called[0])


@contextmanager
def background_span(name: str, attributes: Attributes | None = None) -> Iterator[None]:
    """Wrap background work in a root span; its store calls become children."""
    if tracing is None:
        yield
        return
    from opentelemetry.context import Context

    with _start_current_span(tracing.tracer, name, Context()) as span:
        span.set_attributes(_redact_attributes(attributes or {}))
        token = _in_turn.set(True)
        try:
            yield
        finally:
            _in_turn.reset(token)


def record_span(name: str, since: float, attributes: Attributes) -> None:
    """Record background work that began at a monotonic time and has just ended as a root span."""
    if tracing is None:
        return
    from opentelemetry.context import Context

    span = tracing.tracer.start_span(name, Context(), start_time=_nanoseconds(since))
    span.set_attributes(_redact_attributes(attributes))
    span.end()


def _nanoseconds(moment: float) -> int:
    """Convert a monotonic time of this process to nanoseconds since 1970."""
    return time.time_ns() - int((time.monotonic() - moment) * 1e9)


def _start_current_span(
    tracer: Tracer, name: str, context: Context | None = None
) -> AbstractContextManager[Span]:
    # The text of an exception may contain a secret. `TurnSpan.end` records it, redacted.
    return tracer.start_as_current_span(
        name, context, record_exception=False, set_status_on_exception=False
    )


def start(*, service: str | None, ratio: float, scope: str) -> None:
    """Trace if a service name is given, or if the host program has configured OpenTelemetry."""
    global tracing
    if tracing is not None or (service is None and not _has_provider()):
        return
    if not _has_provider():
        _configure(service or "holdfast")
    from opentelemetry.trace import get_tracer

    exporter.start()
    tracing = Tracing(get_tracer("holdfast"), Sampler(ratio), scope)


def _has_provider() -> bool:
    trace = sys.modules.get("opentelemetry.trace")
    return trace is not None and not isinstance(
        trace.get_tracer_provider(), trace.ProxyTracerProvider
    )


def _configure(service: str) -> None:
    import logfire
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class MessageTraceIds(RandomIdGenerator):
        def generate_trace_id(self) -> int:
            # A message, its answer and its hand-offs share a trace, whichever process works them.
            return _trace_id.get() or super().generate_trace_id()

    logfire.configure(
        send_to_logfire="if-token-present",
        service_name=service,
        console=False,
        inspect_arguments=False,
        distributed_tracing=False,
        advanced=logfire.AdvancedOptions(id_generator=MessageTraceIds()),
    )

    class LogfireHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            level = "error" if record.levelno >= logging.ERROR else record.levelname.lower()
            logfire.log(cast(logfire.LevelName, level), "{event}", logs.fields(record))

    logging.getLogger("holdfast").addHandler(LogfireHandler())


def _redact_attributes(attributes: Attributes) -> dict[str, str | int | float]:
    return {
        name: redact_start(value, ATTRIBUTE_LENGTH) if isinstance(value, str) else value
        for name, value in attributes.items()
    }

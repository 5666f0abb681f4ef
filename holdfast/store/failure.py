"""Errors as they are stored: without secrets, and of bounded length."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.memory.knowledge import storable_text
from holdfast.queue.outcome import Dead, Retry
from holdfast.telemetry.redaction import redact_end, redact_start

ERROR_LENGTH = 4_000
CLASS_LENGTH = 100
TRACEBACK_LENGTH = 8_000


@dataclass(frozen=True, slots=True)
class Failure:
    """Error, class and traceback of a failed turn, kept beside its event."""

    error: str | None
    error_class: str | None
    traceback: str | None


NO_FAILURE = Failure(None, None, None)


def failure_of(outcome: Retry | Dead) -> Failure:
    """Return the failure of an outcome as it is stored."""
    error = outcome.reason if isinstance(outcome, Dead) else outcome.error
    # Users' code sets these fields; a value that is not a text must not keep the turn from ending.
    kind = (
        None
        if outcome.error_class is None
        else storable_text(str(outcome.error_class))[:CLASS_LENGTH]
    )
    trace = (
        None
        if outcome.traceback is None
        else storable_text(redact_end(str(outcome.traceback), TRACEBACK_LENGTH))
    )
    return Failure(stored_error(error), kind, trace)


def stored_error(error: str | None) -> str | None:
    """Return an error as it is stored: redacted, shortened, without unstorable characters."""
    return None if error is None else storable_text(redact_start(str(error), ERROR_LENGTH))

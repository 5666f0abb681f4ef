"""The audit log: who did what, and when. Rows are appended, never changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, get_args

from holdfast.message import Payload

Action = Literal[
    "retried",
    "discarded",
    "cancelled",
    "signalled",
    "replayed",
    "forgot",
    "approved",
    "revoked",
    "logged_in",
    "logged_out",
    "rotated",
    "token_created",
    "token_revoked",
    "people_linked",
    "people_unlinked",
    "schedule_added",
    "schedule_paused",
    "schedule_resumed",
    "schedule_ran",
    "schedule_removed",
    "conversation_deleted",
    "paused",
    "resumed",
    "noted",
    "corrected",
    "erased",
]
"""Acts that are recorded; add a new kind of act here."""
ACTIONS: tuple[str, ...] = get_args(Action)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One act of one actor.

    The log outlives what is forgotten, so no field may hold personal data: `subject` names an
    event (`event:17`), a token (`token:ci`) or a person by `Store.pseudonym`, and `details` holds
    numbers and kinds, never names or texts. `actor` is `cli:<login>`, a channel with the pseudonym
    of a person (`telegram:person:…`), or what `holdfast.api.security.caller.actor_of` returns."""

    actor: str
    action: Action
    subject: str = ""
    details: Payload = field(default_factory=dict)
    id: int | None = None
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Entries to list; every field that is given must match."""

    action: str | None = None
    actor: str | None = None
    subject: str | None = None
    since: datetime | None = None


def event_subject(event_id: int) -> str:
    """Return the name of an event as a subject of the log."""
    return f"event:{event_id}"

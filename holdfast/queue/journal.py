"""The journal of an event: recorded steps, the text written so far, waits and signals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from holdfast.message import Payload
from holdfast.queue.turn import LeasedTurn

StepState = Literal["started", "done", "failed", "unknown"]
StepKind = Literal["step", "once", "sleep", "signal"]
Assume = Literal["done", "not-done"]
"""Decision of a person about a once-step that may have happened."""
EFFECT_UNKNOWN = "EffectUnknown"
"""Error class of a dead letter with a once-step that may have happened."""


# Not frozen: each step creates one, and a frozen one takes three times as long to create.
@dataclass(slots=True, kw_only=True)
class Step:
    """One named part of a turn, and its result once it has one."""

    key: str
    """The name; `name#2` for its second use in the turn."""
    state: StepState
    attempt: int
    """0 if a person decided about a once-step that may have happened."""
    kind: StepKind = "step"
    events: int = 1
    """Number of events in the turn. Except for once-steps, a result is only reused in a turn of as
    many events."""
    arguments: str | None = None
    """Arguments of a once-step as JSON text, cut and without secrets, for a person to read."""
    digest: str | None = None
    """Digest of the whole arguments of a once-step."""
    result: str | None = None
    """The result as JSON text."""
    error: str | None = None
    signal: str | None = None
    """Name of the signal that a wait is for."""
    due_at: datetime | None = None
    """The time at which a wait ends; None if it has no time limit."""
    tokens: int | None = None
    cost: float | None = None
    started_at: datetime | None = None
    """None takes the store's time when the attempt first recorded the step."""
    ended_at: datetime | None = None
    """None takes the store's time unless the step is only started."""


@dataclass(frozen=True, slots=True)
class Write:
    """Text of the answer, to store from `offset` on. Repeating a write changes nothing.

    The first write of a greater generation replaces the whole text. A text that would begin beyond
    the end of the stored one is refused."""

    generation: int
    """Number of this version of the text, 1 for the first."""
    offset: int
    """Number of Unicode code points before `text`."""
    text: str


@dataclass(slots=True, kw_only=True)
class JournalEntry:
    """Changes to the journal of a turn's primary event, stored together under the turn's fence."""

    turn: LeasedTurn
    steps: Sequence[Step] = ()
    write: Write | None = None
    progress: str | None = None
    preview: Payload | None = None
    """Where a channel shows the growing answer, such as the id of the message that it edits."""
    frames: Sequence[Payload] = ()
    """Frames for the activity log, in the same transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """Everything recorded about an event, live or finished."""

    steps: Mapping[str, Step] = field(default_factory=dict)
    """Steps by key, in the order in which they were first recorded."""
    generation: int = 0
    text: str = ""
    """The text written so far, from the requested offset on."""
    length: int = 0
    """Code points of the whole text."""
    progress: str | None = None
    preview: Payload | None = None

    @property
    def waits(self) -> bool:
        """Whether the event waits for a moment or a signal."""
        return any(
            step.kind in ("sleep", "signal") and step.state == "started"
            for step in self.steps.values()
        )


class JournalTable(Protocol):
    """Records steps and texts of turns under their fence, and carries signals to waiting turns."""

    async def record(self, entry: JournalEntry) -> None:
        """Store an entry; entries that wait at the same time share a commit. Raises LeaseLost."""

    async def journal(self, event_id: int, *, offset: int = 0, results: bool = True) -> Journal:
        """Return the journal of an event, with the text from `offset` on. Empty if it has none.

        Readers that do not need the results and arguments of steps leave them out."""

    async def signal(
        self, event_id: int, name: str, value: Any, *, actor: str | None = None
    ) -> bool:
        """Keep a signal for a live event and resume its turn if that waits for the name.

        An `actor` is recorded in the audit log in the same transaction. Returns False if the event
        is not live."""

    async def take_signal(self, turn: LeasedTurn, step: Step) -> Step | None:
        """Take the oldest signal `step.signal` that an event of the turn got and no step took yet.

        Taking it and recording the step as done are one transaction. Returns the step with the
        value as its result. Returns None and records nothing if there is no such signal. Raises
        LeaseLost."""

    async def resume_signalled(self, event_id: int | None = None) -> int:
        """Make waiting turns due whose signal came just before they began to wait.

        Checks the signals of one event, or of all. Returns the number of turns."""

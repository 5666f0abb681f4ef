"""The answer to one message as it grows: its text, its steps and its end.

Frames derive from what is stored, not from a log: a position names what its reader has seen, and
the next frames are the difference. So a reader can resume at any server, at any time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from holdfast.message import Payload, written_of
from holdfast.queue.event import Event, FinishedEvent, payload_to_show
from holdfast.queue.journal import Step
from holdfast.queue.store import Store
from holdfast.store.activity import SUBJECT, message_frame
from holdfast.store.chain import Chain, read_chain

End = Literal["", "ready", "failed"]

_POSITION = re.compile(
    r"(\d{1,9})\.(\d{1,9})\.(\d{1,6})((?:-\d{1,6})*)(?:\.(ready|failed))?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Position:
    """The part of an answer that a reader has seen. As text, it is the id of a frame."""

    generation: int = 0
    offset: int = 0
    """Code points of the text of this generation."""
    steps: int = 0
    """Steps whose start was shown, in the order in which they were first recorded."""
    running: frozenset[int] = frozenset()
    """Indexes of the steps whose start was shown, but not their end."""
    end: End = ""

    def __str__(self) -> str:
        running = "".join(f"-{index}" for index in sorted(self.running))
        end = f".{self.end}" if self.end else ""
        return f"{self.generation}.{self.offset}.{self.steps}{running}{end}"

    @classmethod
    def read(cls, text: str) -> Position | None:
        """Parse the id of a frame; None if it is not one."""
        found = _POSITION.fullmatch(text)
        if found is None:
            return None
        generation, offset, steps = (int(part) for part in found.groups()[:3])
        running = frozenset(int(index) for index in found[4].split("-")[1:])
        if any(index >= steps for index in running):
            return None
        return cls(generation, offset, steps, running, _END[found[5]])


_END: dict[str | None, End] = {None: "", "ready": "ready", "failed": "failed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a message, as far as it is written."""

    message: Event
    agent: str
    generation: int = 0
    text: str = ""
    offset: int = 0
    """Code points of the answer before `text`."""
    steps: Mapping[str, Step] = field(default_factory=dict)
    end: End = ""

    def since(self, seen: Position) -> Iterator[tuple[Payload, Position]]:
        """Yield the frames that a reader has not seen, each with the position after it."""
        if self.end and seen.end == self.end:
            return
        at = replace(seen, end="")
        for frames_since in (self._steps_since, self._text_since):
            for frame, behind in frames_since(at):
                at = behind
                yield frame, behind
        if self.end:
            yield self._end_frame(), replace(at, end=self.end)

    def _steps_since(self, at: Position) -> Iterator[tuple[Payload, Position]]:
        for index, step in enumerate(self.steps.values()):
            if index >= at.steps:
                at = replace(at, steps=index + 1, running=at.running | {index})
                yield self._step_frame("step_start", step), at
            if index in at.running and step.state == "done":
                at = replace(at, running=at.running - {index})
                yield self._step_frame("step_done", step), at

    def _text_since(self, at: Position) -> Iterator[tuple[Payload, Position]]:
        shown = at.offset
        if at.generation != self.generation or shown > self.offset + len(self.text):
            at = replace(at, generation=self.generation, offset=0)
            if shown:
                yield self._frame("response_reset", generation=self.generation), at
        rest = self.text[at.offset - self.offset :]
        if rest:
            frame = self._frame(
                "response_delta", text=rest, offset=at.offset, generation=self.generation
            )
            yield frame, replace(at, offset=at.offset + len(rest))

    def _step_frame(self, kind: str, step: Step) -> Payload:
        return self._frame(kind, key=step.key, attempt=step.attempt)

    def _end_frame(self) -> Payload:
        if self.end == "ready":
            return self._frame("response_ready")
        message = self.message
        return self._frame(
            "message_failed",
            eventId=message.id,
            error=message.last_error,
            errorClass=message.error_class,
            attempts=message.attempts,
            dead=True,
        )

    def _frame(self, kind: str, **further: object) -> Payload:
        message = self.message
        frame = message_frame(
            kind, message.id, message.message_id, self.agent, payload_to_show(message)
        )
        del frame[SUBJECT]
        return frame | further


async def read_answer(store: Store, message: Event, agent: str, seen: Position) -> Answer | None:
    """Read the answer to a message, at least what a reader has not seen; None if it is gone."""
    if isinstance(message, FinishedEvent) or await store.live(message.id) is None:
        chain = await read_chain(store, message.message_id or "")
        return None if chain is None else answer_of(chain, agent)
    journal = await store.journal(message.id, offset=seen.offset, results=False)
    offset = seen.offset
    if journal.generation != seen.generation or journal.length < offset:
        journal, offset = await store.journal(message.id, results=False), 0
    return Answer(
        message=message,
        agent=agent,
        generation=journal.generation,
        text=journal.text,
        offset=offset,
        steps=journal.steps,
    )


def answer_of(chain: Chain, agent: str) -> Answer:
    """Return the answer to a message: its response, or the text that was kept so far."""
    journal = chain.journal
    generation, text, end = journal.generation, journal.text, _end_of(chain)
    if end == "ready":
        text = response_text(chain)
        # If hooks changed the text that was shown, the response is a new generation of it.
        generation += not text.startswith(journal.text)
    return Answer(
        message=chain.message,
        agent=agent,
        generation=generation,
        text=text,
        steps=journal.steps,
        end=end,
    )


def response_text(chain: Chain) -> str:
    """Return the text of the first response to a message, '' if there is none."""
    own = chain.own_responses
    return written_of(payload_to_show(own[0])) if own else ""


def _end_of(chain: Chain) -> End:
    return "failed" if chain.status == "dead" else "ready" if chain.status == "completed" else ""

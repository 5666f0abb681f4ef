"""Frames: events of the stream about a turn, one dict each."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.chat import AgentMessage
from holdfast.message import Payload, written_of
from holdfast.queue.event import INBOX, OUTBOX, payload_to_show
from holdfast.queue.outcome import Done
from holdfast.queue.turn import LeasedTurn
from holdfast.store.activity import STREAMED, message_frame

TYPES = (
    "message_received",
    "agent_routed",
    "chain_step_start",
    "chain_step_done",
    "chain_handoff",
    "step_start",
    "step_done",
    "progress",
    "response_delta",
    "response_reset",
    "response_ready",
    "message_failed",
    "processor_start",
)


def turn_frame(kind: str, turn: LeasedTurn, agent: str, **further: object) -> Payload:
    """Build a frame about a turn; `messageIds` names all messages if there are several."""
    primary = turn.primary
    frame = message_frame(
        kind, primary.id, primary.message_id, agent, payload_to_show(primary), primary.sent_by
    )
    frame |= further
    if len(turn.events) > 1:
        frame["messageIds"] = [event.message_id or str(event.id) for event in turn.events]
    return frame


def start_frame(turn: LeasedTurn, agent: str) -> Payload:
    """Build the frame of a turn that begins, with the time of its claim."""
    claimed_at = int(turn.primary.claimed[-1].timestamp() * 1000)
    return turn_frame("chain_step_start", turn, agent, timestamp=claimed_at, attempt=turn.attempt)


def done_frames(
    turn: LeasedTurn, agent: str, outcome: Done, *, is_streamed: bool = False
) -> Iterator[Payload]:
    """Build the frames of a completed turn: its answer, its hand-offs and its responses.

    An answer that was not streamed is one `response_delta`, which readers derive from the answer
    (`holdfast.store.activity.with_deltas`) unless the response has another text."""
    answers = [
        record.content
        for record in outcome.records
        if isinstance(record, AgentMessage) and record.role == "assistant"
    ]
    shown = answers[-1] if answers else ""
    yield turn_frame("chain_step_done", turn, agent, response=shown)
    streamed = {STREAMED: True} if is_streamed else {}
    for emit in outcome.emits:
        if emit.queue == INBOX:
            yield turn_frame("chain_handoff", turn, agent, fromAgent=agent, toAgent=emit.target)
        elif emit.queue == OUTBOX:
            text = written_of(emit.event)
            if not streamed and text != shown:
                yield turn_frame("response_delta", turn, agent, text=text, offset=0)
            yield turn_frame("response_ready", turn, agent, **streamed)
            # Only the first response is the text of the stream.
            shown, streamed = "", {STREAMED: True}

"""The journal on PostgreSQL: entries as arguments of agent.record_journal, and rows as journals."""

from __future__ import annotations

from dataclasses import replace

from holdfast.message import Payload
from holdfast.queue.journal import Journal, JournalEntry, Step
from holdfast.queue.outcome import Lost
from holdfast.queue.turn import LeasedTurn
from holdfast.store.failure import stored_error
from holdfast.store.journal import stored_text, text_from
from holdfast.store.payload import dump, parse, storable_name
from holdfast.store.postgres.connections import Connections

STEP = (
    *("key", "state", "attempt", "kind", "events", "digest", "error", "signal", "due_at", "tokens"),
    *("cost", "started_at", "ended_at", "arguments", "result"),
)
OPTIONAL = (
    *("digest", "signal", "tokens", "cost", "arguments", "result", "due_at", "started_at"),
    "ended_at",
)
ABRIDGED = ", ".join((*STEP[:-2], "null", "null"))
"""The columns of a step without its arguments and its result."""


def entry_row(entry: JournalEntry) -> Payload:
    """Return an element of the argument of agent.record_journal."""
    row: Payload = {"id": entry.turn.primary.id, "fence": entry.turn.fence}
    if entry.steps:
        row["steps"] = [step_row(step) for step in entry.steps]
    if entry.write is not None:
        text = stored_text(entry.write.text)
        row["write"] = {
            "generation": entry.write.generation,
            "offset": entry.write.offset,
            "length": len(text),
            "text": text,
        }
    if entry.progress is not None:
        row["progress"] = stored_text(entry.progress)
    if entry.preview is not None:
        row["preview"] = entry.preview
    if entry.frames:
        # As in agent.record: text without brackets, so that the server can join several.
        row["frames"] = dump(entry.frames)[1:-1]
    return row


def step_row(step: Step) -> Payload:
    """Return a step of an entry; values that are None are left out."""
    row: Payload = {
        "key": stored_text(step.key),
        "state": step.state,
        "attempt": step.attempt,
        "kind": step.kind,
        "events": step.events,
    }
    for name in OPTIONAL:
        value = getattr(step, name)
        if value is not None:
            row[name] = storable_name(value) if isinstance(value, str) else value
    if step.error is not None:
        row["error"] = stored_error(step.error)
    return row


async def record(connections: Connections, entries: list[Payload]) -> list[bool]:
    """Store entries in one transaction. Returns for each whether its turn is still held."""
    match entries:
        case [{"id": event_id, "fence": fence, "steps": [step], **rest}] if not rest:
            arguments = (event_id, fence, dump(step))
            return [await connections.value("select agent.record_step(%s, %s, %s)", arguments)]
    held: list[bool] = await connections.value("select agent.record_journal(%s)", (dump(entries),))
    return held


async def read_journal(
    connections: Connections, event_id: int, offset: int, *, results: bool
) -> Journal:
    # One statement for the text and its position, or they could be of two generations.
    kept = await connections.rows(
        "select journal.generation, journal.length, journal.progress, journal.preview"
        ", part.position, part.text"
        " from agent.journal as journal"
        " left join agent.journal_text as part on part.event_id = journal.event_id"
        " and part.position >= coalesce((select max(position) from agent.journal_text"
        " where event_id = %(id)s and position <= %(offset)s), 0)"
        " where journal.event_id = %(id)s order by part.position",
        {"id": event_id, "offset": offset},
    )
    steps = await connections.rows(
        f"select {', '.join(STEP) if results else ABRIDGED} from agent.step"
        " where event_id = %s order by id",
        (event_id,),
    )
    generation, length, progress, preview = kept[0][:4] if kept else (0, 0, None, None)
    return Journal(
        steps={row[0]: Step(**dict(zip(STEP, row, strict=True))) for row in steps},
        generation=generation,
        text=text_from([(at, text) for *_, at, text in kept if text is not None], offset),
        length=length,
        progress=progress,
        preview=None if preview is None else parse(preview),
    )


async def take_signal(connections: Connections, turn: LeasedTurn, step: Step) -> Step | Lost | None:
    """Take a signal as the result of a step. Returns the step, None if there is no signal.

    Returns Lost if the turn is lost."""
    [(held, value)] = await connections.rows(
        "select held, value from agent.take_signal(%s, %s, %s)",
        (turn.primary.id, turn.fence, dump(step_row(step) | {"ids": turn.ids})),
    )
    if not held:
        return Lost(turn)
    return None if value is None else replace(step, state="done", result=value)

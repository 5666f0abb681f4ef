"""Print the journal of one event: its steps and the text of its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.cli.printing import ago, echo, print_json, print_table, short
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.queue.event import Event
    from holdfast.queue.journal import Journal, Step
    from holdfast.store import Store

STEP_COLUMNS = ("step", "kind", "status", "attempt", "started", "took", "result or error")
UNKNOWN_STATES = ("started", "unknown")


async def read_event(store: Store, id: int) -> Event:
    """Read an event, live or finished."""
    from holdfast.queue.store import Filter

    event = await store.live(id) or next(iter(await store.finished(Filter(ids=[id]))), None)
    if event is None:
        raise HoldfastError(f"there is no event {id}")
    return event


def print_journal(event: Event, journal: Journal, as_json: bool) -> None:
    """Print an event with its steps and its text."""
    if as_json:
        print_json({"event": event, **journal_fields(journal)})
        return
    echo(_heading(event))
    if journal.progress:
        echo(f"  progress  {journal.progress}")
    print_table(STEP_COLUMNS, map(_row, journal.steps.values()), empty="no steps were recorded")
    if journal.text:
        echo(f"text so far, {journal.length} characters:")
        echo(journal.text)


def journal_fields(journal: Journal) -> dict[str, Any]:
    return {
        "steps": list(journal.steps.values()),
        "text": journal.text,
        "progress": journal.progress,
    }


def unknown_calls(journal: Journal) -> list[Step]:
    """Return the once-steps that began and of which nobody knows whether they happened."""
    return [
        step
        for step in journal.steps.values()
        if step.kind == "once" and step.state in UNKNOWN_STATES
    ]


def _heading(event: Event) -> str:
    from holdfast.queue.event import FinishedEvent

    agent = event.target or "the default agent"
    end = (
        f"{event.outcome} {ago(event.finished_at)}" if isinstance(event, FinishedEvent) else "live"
    )
    return f"event {event.id}, message {event.message_id}, for {agent}: {end}"


def _row(step: Step) -> tuple[object, ...]:
    took = step.ended_at - step.started_at if step.ended_at and step.started_at else None
    detail = short(step.error or step.result or "")
    return step.key, step.kind, step.state, step.attempt, step.started_at, took, detail

"""The history that a run of an app left behind, and what differs from that of another run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from holdfast.queue.event import INBOX, OUTBOX, Event, FinishedEvent
from holdfast.queue.journal import EFFECT_UNKNOWN
from holdfast.queue.store import DEAD_OUTCOMES, Filter, Store
from holdfast.testing.prove.plan import Input

PAGE = 500
LIVE = "live"


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The end of one message, and its responses."""

    outcome: str
    error_class: str | None = None
    responses: int = 0
    handed_on: int = 0
    steps: int = 0
    """Steps that were recorded as done, over all attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHistory:
    """Everything that one run left in the store."""

    courses: Mapping[str, Course]
    """By message id; a message that is in no table is missing."""
    further: int = 0
    """Messages that the app itself put, without those that were emitted at the end of a turn."""
    order: Sequence[str] = ()
    """Pairs of messages of one conversation that were answered in the wrong order."""


@dataclass(slots=True)
class Violations:
    """Differences between a run with faults and an undisturbed one, in words."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    steps_repeated: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.lost or self.doubled or self.out_of_order or self.steps_repeated)

    def all(self) -> Iterator[str]:
        yield from (*self.lost, *self.doubled, *self.out_of_order, *self.steps_repeated)


async def read_history(store: Store, inputs: Sequence[Input]) -> RunHistory:
    """Read the ends of the messages."""
    messages = await _all(store, INBOX)
    responses = await _all(store, OUTBOX)
    roots = {event.message_id: event for event in messages if event.root_id in (None, event.id)}
    known = {one.message_id for one in inputs}
    steps = await _steps_by_root(store, messages)
    answers = Counter(_root(event) for event in responses)
    handed_on = Counter(_root(event) for event in messages if _root(event) != event.id)
    courses = {
        name: Course(
            outcome=event.outcome if isinstance(event, FinishedEvent) else LIVE,
            error_class=event.error_class,
            responses=answers[event.id],
            handed_on=handed_on[event.id],
            steps=steps[event.id],
        )
        for name, event in roots.items()
        if name in known and name is not None
    }
    return RunHistory(
        courses=courses,
        further=sum(name not in known for name in roots),
        order=list(_swaps(inputs, roots, responses)),
    )


async def _all(store: Store, queue: str) -> list[Event]:
    """Return all events of a queue, live and finished."""
    finished: list[Event] = []
    while page := await store.finished(
        Filter(queue=queue), limit=PAGE, before_id=finished[-1].id if finished else None
    ):
        finished += page
    found = {event.id: event for event in finished}
    newest: list[Event] = []
    while recent := await store.recent(
        queue, limit=PAGE, before_id=newest[-1].id if newest else None
    ):
        newest += recent
    return [found.pop(event.id, event) for event in newest] + list(found.values())


async def _steps_by_root(store: Store, messages: Sequence[Event]) -> Counter[int]:
    steps: Counter[int] = Counter()
    for event in messages:
        journal = await store.journal(event.id, results=False)
        steps[_root(event)] += sum(
            step.state == "done" and step.kind == "step" for step in journal.steps.values()
        )
    return steps


def _root(event: Event) -> int:
    return event.root_id or event.id


def _swaps(
    inputs: Sequence[Input], roots: Mapping[str | None, Event], responses: Sequence[Event]
) -> Iterator[str]:
    """Describe messages that were answered after a later one of the same person and agent."""
    first: dict[int, int] = {}
    for response in responses:
        parent = response.parent_id or 0
        first[parent] = min(response.id, first.get(parent, response.id))
    talks: defaultdict[tuple[str, str], list[Event]] = defaultdict(list)
    for one in inputs:
        event = roots.get(one.message_id)
        if event is not None and event.id in first:
            talks[one.sender, event.target].append(event)
    for (sender, _), events in talks.items():
        answered = sorted(events, key=lambda event: first[event.id])
        for earlier, later in pairwise(answered):
            if later.id < earlier.id:
                yield (
                    f"{later.message_id} of {sender} was answered after {earlier.message_id}, "
                    "which came later"
                )


def compare(run: RunHistory, undisturbed: RunHistory) -> Violations:
    """Return how a run differs from an undisturbed one in what its people and tools would see."""
    violations = Violations(out_of_order=list(run.order))
    for name, expected in undisturbed.courses.items():
        course = run.courses.get(name)
        if course is None:
            violations.lost.append(f"{name} was stored and is in no table")
        else:
            _compare_course(name, course, expected, violations)
    if run.further > undisturbed.further:
        violations.doubled.append(
            f"the app put {run.further} messages by itself, {undisturbed.further} undisturbed: "
            "give app.put a message_id, or emit them with the turn's end"
        )
    elif run.further < undisturbed.further:
        violations.lost.append(
            f"the app put {run.further} messages by itself, {undisturbed.further} undisturbed"
        )
    return violations


def _compare_course(name: str, course: Course, expected: Course, found: Violations) -> None:
    if course.outcome == LIVE and expected.outcome != LIVE:
        found.lost.append(f"{name} did not end, undisturbed it is {expected.outcome}")
        return
    if course.outcome in DEAD_OUTCOMES:
        # A dead letter is not lost: a person sees and retries it.
        return
    for what, there, wanted in (
        ("responses", course.responses, expected.responses),
        ("messages handed on", course.handed_on, expected.handed_on),
    ):
        if there != wanted:
            kind = found.lost if there < wanted else found.doubled
            kind.append(f"{name} has {there} {what}, {wanted} undisturbed")
    if course.steps > expected.steps:
        found.steps_repeated.append(
            f"{name} recorded {course.steps} steps, {expected.steps} undisturbed: the name of a "
            "step must be the same in every attempt"
        )


def unknown_effects(run: RunHistory) -> int:
    """Count dead letters that wait for a person to say whether a call happened."""
    return sum(course.error_class == EFFECT_UNKNOWN for course in run.courses.values())


def dead_letters(run: RunHistory) -> int:
    return sum(course.outcome in DEAD_OUTCOMES for course in run.courses.values())

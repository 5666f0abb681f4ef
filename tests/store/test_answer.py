"""The answer to a message as its readers see it, from one state to the next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.message import Payload
from holdfast.queue.event import Event
from holdfast.queue.journal import Step, StepState
from holdfast.store.answer import Answer, Position

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MESSAGE = Event(
    id=7,
    queue="inbox",
    target="coder",
    lane=None,
    head=True,
    event_ts=NOW,
    attempts=1,
    vt=NOW,
    claimed=(NOW,),
    payload='{"kind": "message", "channel": "api", "sender": "Ada", "message": "hi"}',
    fence=1,
    holder=None,
    message_id="api_1",
    max_attempts=None,
    parent_id=None,
    root_id=None,
    hops=0,
    state=None,
    last_error=None,
    error_class=None,
    created_at=NOW,
    updated_at=NOW,
    sent_by=None,
    routed_text=None,
    routed_team=None,
)
EMPTY = Answer(message=MESSAGE, agent="coder")


def step(key: str, state: StepState) -> Step:
    return Step(key=key, state=state, attempt=1)


@dataclass
class Reader:
    """Collects frames as a client does, and goes on from the id of the last one."""

    seen: Position = field(default_factory=Position)
    text: str = ""
    steps: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)

    def read(self, answer: Answer, most: int | None = None) -> int:
        """Read up to `most` frames of a state. Returns how many there were."""
        for count, (frame, behind) in enumerate(answer.since(self.seen)):
            if count == most:
                return count
            self._take(frame)
            again = Position.read(str(behind))
            assert again == behind
            self.seen = again
        return 0

    def _take(self, frame: Payload) -> None:
        match frame["type"]:
            case "response_reset":
                self.text = ""
            case "response_delta":
                assert frame["offset"] == len(self.text)
                self.text += frame["text"]
            case "step_start" | "step_done":
                self.steps.append(f"{frame['type']} {frame['key']}")
            case kind:
                self.ends.append(kind)


def texts(frames: Iterable[tuple[Payload, Position]]) -> list[tuple[str, str]]:
    return [(frame["type"], frame.get("text", "")) for frame, _ in frames]


def test_a_reader_gets_only_the_text_that_it_has_not_seen() -> None:
    seen = Position(1, 6)
    grown = replace(EMPTY, generation=1, text="Hello world")
    assert texts(grown.since(seen)) == [("response_delta", "world")]
    tail = replace(grown, text="world", offset=6)
    assert texts(tail.since(seen)) == [("response_delta", "world")]
    assert texts(tail.since(Position(1, 11))) == []


def test_text_of_another_generation_comes_after_a_reset() -> None:
    again = replace(EMPTY, generation=2, text="Hi")
    assert texts(again.since(Position(1, 6))) == [("response_reset", ""), ("response_delta", "Hi")]
    assert texts(again.since(Position(1, 0))) == [("response_delta", "Hi")], "nothing was shown"


def test_text_that_is_gone_is_reset() -> None:
    erased = replace(EMPTY, generation=1)
    assert texts(erased.since(Position(1, 6))) == [("response_reset", "")]


def test_steps_may_end_in_another_order_than_they_began() -> None:
    reader = Reader()
    both = {"a": step("a", "started"), "b": step("b", "started")}
    for steps in (both, both | {"b": step("b", "done")}, both | {"a": step("a", "failed")}):
        reader.read(replace(EMPTY, steps=steps))
    reader.read(replace(EMPTY, steps={"a": step("a", "done"), "b": step("b", "done")}))
    assert reader.steps == ["step_start a", "step_start b", "step_done b", "step_done a"]


def test_a_position_at_the_end_gives_nothing_more() -> None:
    reader = Reader()
    ended = replace(EMPTY, text="Hi", end="ready")
    reader.read(ended)
    assert reader.ends == ["response_ready"]
    assert list(ended.since(reader.seen)) == []


def test_a_dead_letter_that_was_retried_goes_on_behind_its_end() -> None:
    reader = Reader()
    reader.read(replace(EMPTY, generation=1, text="Hel", end="failed"))
    reader.read(replace(EMPTY, generation=1, text="Hello"))
    reader.read(replace(EMPTY, generation=1, text="Hello", end="ready"))
    assert (reader.text, reader.ends) == ("Hello", ["message_failed", "response_ready"])


@pytest.mark.parametrize(
    "text",
    ["x", "1", "1.2", "1.2.x", "-1.0.0", "1.2.3.gone", "1.2.1-1", "1.2.3-", "1.2.3 ", "١.2.3"],
)
def test_a_text_that_is_no_position_is_not_read(text: str) -> None:
    assert Position.read(text) is None


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.text("aé😀 ", min_size=1, max_size=5)),
        st.tuples(st.just("reset"), st.just("")),
        st.tuples(st.just("start"), st.sampled_from("abcd")),
        st.tuples(st.just("done"), st.sampled_from("abcd")),
    ),
    max_size=20,
)


def changed(answer: Answer, change: str, value: str) -> Answer:
    """The next state, as the journal would show it."""
    steps = dict(answer.steps)
    match change:
        case "write":
            generation = max(answer.generation, 1)
            return replace(answer, text=answer.text + value, generation=generation)
        case "reset":
            return replace(answer, text="", generation=answer.generation + 1)
        case "start":
            steps.setdefault(value, step(value, "started"))
        case "done" if value in steps:
            steps[value] = step(value, "done")
    return replace(answer, steps=steps)


@given(changes=CHANGES, pauses=st.lists(st.integers(0, 3), max_size=20), final=st.text("ab"))
def test_a_reader_that_reconnects_anywhere_has_the_final_text_and_each_step_once(
    changes: list[tuple[str, str]], pauses: list[int], final: str
) -> None:
    answer, reader = EMPTY, Reader()
    for index, (change, value) in enumerate(changes):
        answer = changed(answer, change, value)
        reader.read(answer, pauses[index] if index < len(pauses) else None)
    ended = (
        replace(answer, text=final, end="ready", generation=answer.generation + 1)
        if not final.startswith(answer.text)
        else replace(answer, text=final, end="ready")
    )
    while reader.read(ended, 1):
        pass
    assert (reader.text, reader.ends) == (final, ["response_ready"])
    done = [f"step_done {key}" for key, one in answer.steps.items() if one.state == "done"]
    expected = sorted([*(f"step_start {key}" for key in answer.steps), *done])
    assert sorted(reader.steps) == expected

"""The order in which agents read the history of a conversation."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.chat import AgentMessage


def pair_answers(lines: Iterable[AgentMessage]) -> list[AgentMessage]:
    """Return stored lines oldest first, each message right before its answer.

    Messages are stored when they arrive, so others may come between a message and its answer. A
    message without an answer of its own stays with the one before it: either both were collected
    in one turn, or it became a dead letter."""
    in_order = sorted(lines, key=_id)
    answers: dict[str, int] = {}
    positions: dict[int, int] = {}
    for line in reversed(in_order):
        if line.role == "user":
            positions[_id(line)] = answers.get(line.message_id, 0)
        else:
            positions[_id(line)] = answers[line.message_id] = _id(line)
    previous = 0
    for line in in_order:
        if line.role == "user":
            previous = positions[_id(line)] = positions[_id(line)] or max(previous, _id(line))
    return sorted(in_order, key=lambda line: (positions[_id(line)], _id(line)))


def _id(line: AgentMessage) -> int:
    assert line.id is not None, "a stored line has an id"
    return line.id

"""The order in which agents read a conversation."""

from __future__ import annotations

import pytest

from holdfast.agents.history import pair_answers
from holdfast.chat import AgentMessage


def line(id_: int, text: str) -> AgentMessage:
    """`u1` is what a user said in message 1, `a1` its answer."""
    return AgentMessage(
        id=id_,
        agent_id="coder",
        role="user" if text[0] == "u" else "assistant",
        channel="api",
        sender="ann",
        message_id=text[1:],
        content=text,
    )


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        pytest.param("u1 u2 a1 a2", "u1 a1 u2 a2", id="came-while-another-was-worked"),
        pytest.param("u1 u2 u3 a1 u4 a4", "u1 u2 u3 a1 u4 a4", id="collected"),
        pytest.param("u1 u2 a2 u3 a3", "u1 u2 a2 u3 a3", id="the-first-died"),
        pytest.param("u1 a1 u2", "u1 a1 u2", id="the-last-died"),
        pytest.param("u1 u2 a2 a1", "u2 a2 u1 a1", id="answered-after-a-retry"),
        pytest.param("a1 u2 a2", "a1 u2 a2", id="an-answer-without-its-message"),
        pytest.param("u1 a1 u1 a1", "u1 a1 u1 a1", id="an-id-used-again"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_each_answer_follows_its_message(stored: str, read: str) -> None:
    newest_first = [line(id_, text) for id_, text in enumerate(stored.split(), 1)][::-1]
    assert [found.content for found in pair_answers(newest_first)] == read.split()

"""The answer of a command-line agent, read from its output."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents.transcript import transcript_of

CLAUDE: list[Any] = [
    {"type": "system", "subtype": "init", "session_id": "s", "tools": ["Bash"]},
    {
        "type": "assistant",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "let me look"}]},
    },
    {
        "type": "assistant",
        "message": {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t", "name": "Bash"}],
        },
    },
    {
        "type": "user",
        "message": {"role": "user", "content": [{"type": "tool_result", "content": "ok"}]},
    },
    {
        "type": "assistant",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "it is fixed"}]},
    },
]
RESULT = {"type": "result", "subtype": "success", "is_error": False, "result": "it is fixed"}
RESULT |= {"usage": {"input_tokens": 12, "output_tokens": 7, "service_tier": "standard"}}
CODEX: list[Any] = [
    {"type": "thread.started", "thread_id": "0199"},
    {"type": "turn.started"},
    {
        "type": "item.completed",
        "item": {"id": "item_0", "type": "reasoning", "text": "**Thinking**"},
    },
    {
        "type": "item.completed",
        "item": {"id": "item_1", "type": "command_execution", "command": "ls", "exit_code": 0},
    },
    {
        "type": "item.completed",
        "item": {"id": "item_2", "type": "agent_message", "text": "two files"},
    },
    {
        "type": "turn.completed",
        "usage": {"input_tokens": 5, "cached_input_tokens": 1, "output_tokens": 3},
    },
]


def lines(events: list[Any]) -> str:
    return "\n".join(event if isinstance(event, str) else json.dumps(event) for event in events)


def test_the_result_of_claude_is_the_answer() -> None:
    transcript = transcript_of(lines([*CLAUDE, RESULT]))
    assert (transcript.text, transcript.error) == ("it is fixed", None)
    assert transcript.usage == {"input_tokens": 12, "output_tokens": 7}
    assert transcript_of(json.dumps(RESULT)).text == "it is fixed"
    assert transcript_of(json.dumps([*CLAUDE, RESULT])).text == "it is fixed"


def test_without_a_result_the_last_text_of_claude_is_the_answer() -> None:
    assert transcript_of(lines(CLAUDE)).text == "it is fixed"


def test_an_error_of_claude_is_no_answer() -> None:
    failed = {
        "type": "result",
        "subtype": "error_during_execution",
        "is_error": True,
        "result": "overloaded",
    }
    assert transcript_of(lines([*CLAUDE, failed])).error == "overloaded"


def test_the_last_message_of_codex_is_the_answer() -> None:
    transcript = transcript_of(lines(CODEX))
    assert (transcript.text, transcript.usage) == (
        "two files",
        {"input_tokens": 5, "output_tokens": 3},
    )


def test_an_error_of_codex_is_no_answer() -> None:
    assert (
        transcript_of(
            lines([*CODEX[:2], {"type": "turn.failed", "error": {"message": "quota"}}])
        ).error
        == "quota"
    )


def test_broken_lines_among_events_are_ignored() -> None:
    broken = [
        '{"type": "assistant", "message"',
        "warning: slow",
        '{"type": "result", "result": }',
        "[" * 100_000,
    ]
    assert transcript_of(lines([*broken, *CLAUDE, *broken, RESULT, *broken])).text == "it is fixed"


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        '{"type": "result", "result":',
        '{"answer": 42}',
        "[1, 2]\n[3]",
        '{"type": "unheard"}',
        "{not json}",
        "[]",
        "null",
    ],
)
def test_anything_else_is_the_answer_as_it_is(text: str) -> None:
    assert transcript_of(f"\n{text}\n").text == text


@given(st.text())
def test_no_output_is_too_strange(text: str) -> None:
    assert transcript_of(text).error is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "type",
                        "message",
                        "content",
                        "item",
                        "text",
                        "result",
                        "usage",
                        "error",
                        "is_error",
                    ]
                ),
                inner,
            )
        ),
    )
)
def test_no_event_is_too_strange(event: object) -> None:
    for kind in ("assistant", "result", "item.completed", "turn.completed", "turn.failed", "error"):
        shaped = (
            event | {"type": kind}
            if isinstance(event, dict)
            else {"type": kind, "message": event, "item": event}
        )
        transcript_of(json.dumps(shaped))

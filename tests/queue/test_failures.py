"""A failed turn can be debugged from its log line, whether raised or returned."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import timedelta
from typing import Any

import pytest

from holdfast import AgentHarness, Dead, Retry
from holdfast.agents.command import CommandAgent
from holdfast.agents.turn import Turn
from holdfast.queue.store import Filter, Store
from holdfast.queue.turn import LeasedTurn
from holdfast.settings import Settings
from holdfast.telemetry import CLAIM_FAILED, CLAIM_RESUMED, DEAD_LETTER, TURN_FAILED
from holdfast.telemetry.logs import Entry, JsonLines, TextLines
from tests.steps import Proxy, both_engines, consuming, policy, running, until

QUICKLY: dict[str, Any] = {
    "retry_first": timedelta(milliseconds=5),
    "retry_most": timedelta(milliseconds=10),
}


def records(caplog: pytest.LogCaptureFixture, event: str) -> list[logging.LogRecord]:
    return [
        record
        for record in caplog.records
        if isinstance(record.msg, Entry) and record.msg.event == event
    ]


def fields(record: logging.LogRecord) -> dict[str, object]:
    assert isinstance(record.msg, Entry)
    return record.msg.fields


async def fail_for_good(app: AgentHarness, settings: Settings, max_attempts: int = 1) -> int:
    """Let a message fail for good. Returns the id of the dead letter."""
    async with running(app, settings.model_copy(update=QUICKLY | {"max_attempts": max_attempts})):
        await app.put("hi", message_id="api_hello")
        [letter] = await until(lambda: app.store.dead(Filter()))
        return int(letter.id)


@both_engines
async def test_issue_14_24_a_failed_turn_is_one_warning_with_all_details(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    def compute(number: int) -> float:
        return 1 / number

    async def answer(turn: Turn) -> str:
        return str(compute(0))

    app = AgentHarness(default="coder")
    app.add("coder", answer)
    id_ = await fail_for_good(app, settings, max_attempts=2)
    first, second = records(caplog, TURN_FAILED)
    assert first.levelno == logging.WARNING
    about = {"queue": "inbox", "agent": "coder", "message_id": "api_hello", "event_id": id_}
    error = {"error": "ZeroDivisionError: division by zero", "error_class": "ZeroDivisionError"}
    assert fields(first) == about | {"attempt": "1 of 2"} | error
    assert fields(second) == about | {"attempt": "2 of 2"} | error
    short, whole = TextLines().format(first), json.loads(JsonLines().format(first))
    assert "in compute" in short
    assert "ZeroDivisionError" in short.splitlines()[-1]
    assert "holdfast/consumers/inbox.py" not in short
    assert "holdfast/consumers/inbox.py" in whole["traceback"]
    assert "in compute" in whole["traceback"]
    [dead] = records(caplog, DEAD_LETTER)
    assert dead.levelno == logging.ERROR
    assert fields(dead) == about | error | {"retry_with": f"holdfast dead retry {id_}"}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda turn: Retry("not yet"), "not yet"),
        (lambda turn: Retry(), "the handler asked for a retry"),
        (lambda turn: Dead("never", "hopeless"), "never"),
        (lambda turn: 42, "agent 'agent' answered int instead of a text"),
    ],
)
async def test_issue_14_24_returned_failures_are_logged_alike(
    settings: Settings, caplog: pytest.LogCaptureFixture, answer: Any, error: str
) -> None:
    id_ = await fail_for_good(AgentHarness(answer), settings)
    [line] = records(caplog, TURN_FAILED)
    assert (fields(line)["error"], fields(line)["event_id"]) == (error, id_)
    assert fields(line)["attempt"] == "1 of 1"
    assert len(records(caplog, DEAD_LETTER)) == 1


async def test_issue_14_24_a_time_out_is_logged_alike(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(turn: Turn) -> None:
        await asyncio.Event().wait()

    app = AgentHarness()
    app.add("agent", answer, timeout=timedelta(milliseconds=50))
    await fail_for_good(app, settings)
    [line] = records(caplog, TURN_FAILED)
    assert str(fields(line)["error"]).startswith("no answer within")


async def test_issue_14_24_the_exit_code_of_a_command_is_logged_with_the_end_of_its_stderr(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    app = AgentHarness(
        CommandAgent(["sh", "-c", "echo no such model >&2; exit 3"], settings.home / "workspace")
    )
    await fail_for_good(app, settings)
    [line] = records(caplog, TURN_FAILED)
    assert "exit code 3: no such model" in str(fields(line)["error"])


async def test_issue_14_24_the_traceback_is_stored_without_secrets(settings: Settings) -> None:
    async def answer(turn: Turn) -> None:
        raise ValueError("xoxb-1234567890-abcdef is no token")

    app = AgentHarness(answer)
    async with running(app, settings.model_copy(update={"max_attempts": 1})):
        await app.put("hi")
        [letter] = await until(lambda: app.store.dead(Filter()))
        assert letter.last_error == "ValueError: *** is no token"
        assert "in answer" in letter.traceback
        assert letter.traceback.endswith("ValueError: *** is no token\n")


async def test_issue_14_24_the_end_of_an_outage_is_logged_too(
    store: Store, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(turn: LeasedTurn) -> Any:
        raise AssertionError

    with caplog.at_level(logging.INFO):
        proxy.down = True
        async with consuming(proxy, handle, policy("")):
            await until(lambda: records(caplog, CLAIM_FAILED))
            proxy.down = False
            [line] = await until(lambda: records(caplog, CLAIM_RESUMED))
            assert fields(line)["queue"] == "inbox"

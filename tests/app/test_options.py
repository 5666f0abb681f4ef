"""Options of agents and answers are accepted where they make sense, else refused in one line."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.agents.base import Answer, Reply
from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.errors import HoldfastError
from holdfast.queue.outcome import Retry, Snooze
from holdfast.settings import Settings
from tests.steps import finished, running


async def answer(turn: Turn) -> Answer:
    return "yes"


async def test_a_default_that_is_no_agent_is_refused_at_start(settings: Settings) -> None:
    app = AgentHarness(default="x", settings=settings)
    app.add("coder", answer)
    with pytest.raises(
        HoldfastError, match="the default agent 'x' is not an agent of this app: it has coder"
    ):
        await app.run()
    with pytest.raises(HoldfastError, match="it has none"):
        await AgentHarness(default="x", settings=settings).run()


async def test_the_bare_decorator_takes_the_name_of_the_function(settings: Settings) -> None:
    app = AgentHarness()

    @app.agent
    async def coder(turn: Turn) -> str:
        return "I am the coder"

    @app.agent(lane="agent")
    async def writer(turn: Turn) -> str:
        return "I am the writer"

    assert list(app.agents) == ["coder", "writer"]
    assert app.policies["writer"].lane == "agent"
    async with running(app, settings):
        await app.put("@writer hi")
        await finished(app.store, 1, queue="inbox")
        assert [one.event["message"] for one in await app.responses("api")] == ["I am the writer"]


@pytest.mark.parametrize(
    "given", [timedelta(minutes=5), 300, 300.0, "300", "5 min", "5min", "300s"]
)
def test_a_duration_is_a_timedelta_a_number_of_seconds_or_a_text(given: Any) -> None:
    app = AgentHarness()
    app.add("coder", answer, timeout=given, lease=given, idle=given, heartbeat=given)
    policy = app.policies["coder"]
    expected = timedelta(minutes=5)
    assert (policy.timeout, policy.lease, policy.idle, policy.heartbeat) == (expected,) * 4
    assert (Snooze(given).delay, Retry(delay=given).delay) == (expected, expected)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"timout": 5}, "there is no option timout; did you mean timeout?"),
        ({"zzz": 5}, "there is no option zzz; there are name, description, icon, lane, turns"),
        (
            {"lane": "banana"},
            "lane: input should be 'conversation', 'agent' or 'none' (it is 'banana')",
        ),
        ({"turns": "all"}, "turns: input should be 'each' or 'collect' (it is 'all')"),
        ({"max_attempts": 0}, "max_attempts: input should be greater than or equal to 1 (it is 0)"),
        (
            {"concurrency": "two"},
            "concurrency: input should be a valid integer, unable to parse string as an integer",
        ),
        ({"concurrency": 0}, "concurrency: input should be greater than or equal to 1 (it is 0)"),
        (
            {"timeout": "soon"},
            'timeout: a duration is a text like "30s", "10 min" or "24h", or a number of seconds',
        ),
        ({"timeout": 0}, "timeout: input should be greater than 0s (it is 0)"),
        ({"lease": -1}, "lease: a duration is"),
        ({"memory": "perhaps"}, "memory: input should be a valid boolean"),
    ],
)
def test_a_wrong_option_is_refused_at_once_in_one_line(
    options: dict[str, Any], complaint: str
) -> None:
    app = AgentHarness()
    with pytest.raises(HoldfastError) as refusal:
        app.agent("coder", **options)(answer)
    assert str(refusal.value).startswith(f"agent 'coder': {complaint}")
    assert "\n" not in str(refusal.value)
    assert not app.agents


def test_a_function_without_parameters_is_refused_at_once() -> None:
    def nothing() -> str:
        return "hello"

    def too_much(turn: Turn, more: str) -> str:
        return more

    app = AgentHarness()
    for function in (nothing, too_much):
        with pytest.raises(
            HoldfastError, match=f"{function.__name__} must take one argument, the turn"
        ):
            app.add("coder", function)  # type: ignore[arg-type]
    with pytest.raises(HoldfastError, match="agent 'coder' is of type str: give a function"):
        app.add("coder", "answer")  # type: ignore[arg-type]
    assert not app.agents


def test_functions_with_optional_parameters_and_objects_are_accepted() -> None:
    class Polite:
        async def answer(self, turn: Turn) -> Answer:
            return "dear"

    app = AgentHarness()
    app.add("a", lambda turn, more="": more)  # type: ignore[misc]
    app.add("b", Polite())
    app.add("c", lambda *turns: "all")
    assert list(app.agents) == ["a", "b", "c"]


@pytest.mark.parametrize("wrong", [None, 5, b"text"])
def test_a_reply_without_a_text_is_refused_when_created(wrong: Any) -> None:
    with pytest.raises(
        TypeError,
        match=r"a Reply has a text, not .*; return None instead of a Reply to stay silent",
    ):
        Reply(wrong)


def test_files_of_a_reply_are_one_or_several() -> None:
    assert Reply(files="a.txt").files == ("a.txt",)
    assert Reply("see", files=Path("a.txt")).files == ("a.txt",)
    assert Reply("see", ["a.txt", Path("b.txt")]).files == ("a.txt", "b.txt")
    assert Reply("see") == Reply("see", (), {})
    assert (Reply("see").text, Reply("see").files, Reply("see").metadata) == ("see", (), {})


@pytest.mark.parametrize("wrong", ["soon", True, -5, "5 fortnights"])
def test_an_invalid_delay_is_refused_when_created(wrong: Any) -> None:
    with pytest.raises(ValueError, match="a duration is a text like"):
        Snooze(wrong)
    with pytest.raises(ValueError, match="a duration is a text like"):
        Retry("no", wrong)

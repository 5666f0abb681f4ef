"""The real clients of providers against local servers: streams, tools, limits, failures."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import RunContext

from holdfast import AgentHarness, Dead, Done, Retry
from holdfast.agents.llm import Context, LlmAgent, model_of
from holdfast.queue.outcome import Outcome
from holdfast.queue.store import Filter
from holdfast.settings import Settings
from holdfast.settings.providers import Provider
from holdfast.telemetry import TURN_FAILED, redaction
from holdfast.telemetry.logs import Entry
from holdfast.testing.trial import trial
from tests.agents.dialects import DIALECTS, Call, Dialect, Refusal
from tests.agents.provider_server import BREAK_OFF, Server, serving
from tests.steps import running, until


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_secrets", [])
    monkeypatch.setenv("LOCAL_KEY", "sk-local")


@pytest.fixture(params=DIALECTS, ids=[dialect.kind for dialect in DIALECTS])
def dialect(request: pytest.FixtureRequest) -> Dialect:
    speaks: Dialect = request.param
    return speaks


def app_on(server: Server, **given: Any) -> AgentHarness:
    providers = {
        "local": Provider(kind=server.dialect.kind, base_url=server.url, key_variable="LOCAL_KEY")
    }
    app = AgentHarness()
    app.add("coder", LlmAgent(model_of("local:fake", providers), **given))
    return app


async def asked(app: AgentHarness, *texts: str) -> list[Outcome]:
    outcomes = []
    async with trial(app) as at_work:
        for text in texts:
            await at_work.say(text)
            outcomes += [outcome for _, outcome in await at_work.work()]
    return outcomes


def payload(outcome: Outcome) -> dict[str, Any]:
    assert isinstance(outcome, Done), outcome
    return outcome.emits[0].event


def test_the_key_of_a_provider_is_redacted_whatever_it_looks_like(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOCAL_KEY", "precious")
    model_of("openai:fake", {"openai": Provider(key_variable="LOCAL_KEY")})
    assert redaction.redact("401 for precious") == "401 for ***"


async def test_an_answer_is_streamed_with_the_history_before_it(dialect: Dialect) -> None:
    async with serving(dialect, "I am well", "as I said") as server:
        first, second = await asked(app_on(server), "how are you?", "pardon?")
    assert payload(first)["message"] == "I am well"
    assert payload(second)["message"] == "as I said"
    usage = payload(first)["metadata"]["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["model"]) == (11, 7, "fake")
    assert server.keys == ["Bearer sk-local"] * 2
    conversation = dialect.lines(server.requests[1])
    assert conversation == [
        ("user", "how are you?"),
        ("assistant", "I am well"),
        ("user", "pardon?"),
    ]
    assert "coder" in dialect.system(server.requests[1])


async def test_a_tool_is_called_and_its_result_goes_back(dialect: Dialect) -> None:
    async def look_up(context: RunContext[Context], word: str) -> str:
        """Look a word up."""
        return f"{word} for {context.deps.turn.agent}"

    async with serving(dialect, Call("look_up", {"word": "holdfast"}), "found it") as server:
        [outcome] = await asked(app_on(server, tools=[look_up]), "look it up")
    assert payload(outcome)["message"] == "found it"
    assert payload(outcome)["metadata"]["usage"]["input_tokens"] == 22
    assert dialect.tools(server.requests[0]) == ["look_up"]
    assert dialect.result(server.requests[1]) == "holdfast for coder"


async def test_too_many_requests_are_tried_again_when_the_provider_says(dialect: Dialect) -> None:
    async with serving(
        dialect, Refusal(429, "rate_limit_exceeded", "slow down", {"Retry-After": "7"})
    ) as server:
        [outcome] = await asked(app_on(server), "hello")
    assert isinstance(outcome, Retry)
    assert (outcome.delay, outcome.error_class) == (timedelta(seconds=7), "ModelRateLimitError")
    assert "slow down" in str(outcome.error)
    assert len(server.requests) == 1, "the client does not try again by itself"


async def test_a_failing_server_is_tried_again(dialect: Dialect) -> None:
    async with serving(dialect, Refusal(500, "server_error", "oops")) as server:
        [outcome] = await asked(app_on(server), "hello")
    assert isinstance(outcome, Retry)
    assert outcome.error_class == "ModelServerError"
    assert len(server.requests) == 1


async def test_half_an_answer_is_none(dialect: Dialect) -> None:
    async with serving(dialect, BREAK_OFF) as server:
        [outcome] = await asked(app_on(server), "hello")
    assert isinstance(outcome, Retry), outcome


async def test_a_server_that_is_not_there_is_tried_again(dialect: Dialect) -> None:
    async with serving(dialect) as server:
        pass
    [outcome] = await asked(app_on(server), "hello")
    assert isinstance(outcome, Retry)
    assert outcome.error_class == "ModelConnectionError"


@pytest.mark.parametrize(
    ("refusal", "error_class"),
    [
        (Refusal(401, "invalid_api_key", "Incorrect API key provided"), "ModelAuthenticationError"),
        (Refusal(404, "model_not_found", "The model `fake` does not exist"), "ModelNotFoundError"),
        (Refusal(400, "invalid_request_error", "bad request"), "ModelRequestRejectedError"),
    ],
)
async def test_a_permanent_failure_is_a_dead_letter_with_the_reason(
    dialect: Dialect, refusal: Refusal, error_class: str
) -> None:
    async with serving(dialect, refusal) as server:
        [outcome] = await asked(app_on(server), "hello")
    assert isinstance(outcome, Dead)
    assert outcome.error_class == error_class
    assert refusal.message in outcome.reason
    assert "sk-local" not in outcome.reason


async def test_issue_14_24_a_401_of_a_provider_is_logged_like_any_failure(
    dialect: Dialect, database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = Refusal(401, "invalid_api_key", "Incorrect API key provided")
    async with serving(dialect, refusal) as server:
        app = app_on(server)
        async with running(app, Settings(home=tmp_path, database=database_url)):
            await app.put("hello", message_id="api_hello")
            await until(lambda: app.store.dead(Filter()))
    [line] = [
        record.msg.fields
        for record in caplog.records
        if isinstance(record.msg, Entry) and record.msg.event == TURN_FAILED
    ]
    assert (line["message_id"], line["error_class"]) == ("api_hello", "ModelAuthenticationError")
    assert refusal.message in str(line["error"])

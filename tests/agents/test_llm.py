"""Language models, played by scripts: their prompts, tools and failures."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from holdfast import Dead, Done, Retry
from holdfast.agents.llm import Context, Prompt, model_of
from holdfast.agents.llm.history import tokens
from holdfast.chat import AgentMessage
from holdfast.errors import HoldfastError
from holdfast.routing.router import Address
from holdfast.settings.providers import Provider
from holdfast.telemetry import TOKENS
from holdfast.testing.trial import trial
from tests.agents.playing import Play, With, app_of, instructions, prompt_text, send, send_all, text


async def test_the_model_answers() -> None:
    [outcome] = await send_all(
        app_of(lambda messages, _: f"heard: {prompt_text(messages)}"), "hello"
    )
    assert text(outcome) == "heard: hello"


async def test_it_remembers_the_conversation_and_no_other() -> None:
    async with trial(app_of(lambda messages, _: f"{len(messages)} said")) as at_work:
        await send(at_work, "one")
        await send(at_work, "other", sender="bob")
        await send(at_work, "two")
    app = app_of(lambda messages, _: prompt_text(messages))
    async with trial(app) as at_work:
        assert text(await send(at_work, "one")) == "one"
        assert text(await send(at_work, "other", sender="bob")) == "other"
        assert text(await send(at_work, "two")) == "one | one | two"


async def test_the_model_sees_each_answer_behind_its_message_and_no_message_that_waits() -> None:
    app = app_of(lambda messages, _: prompt_text(messages))
    async with trial(app) as at_work:
        for line in ("one", "two", "three"):
            await at_work.say(line, address=Address(sender="ann"))
        outcomes = [text(outcome) for _, outcome in await at_work.work()]
    assert outcomes[:2] == ["one", "one | one | two"]
    assert outcomes[2] == "one | one | two | one | one | two | three"


async def test_of_a_long_conversation_the_newest_is_kept_within_the_budget() -> None:
    app = app_of(lambda messages, _: prompt_text(messages), history_tokens=tokens("x" * 400) * 3)
    async with trial(app) as at_work:
        lines = [
            AgentMessage(
                agent_id="coder",
                role=role,
                channel="api",
                sender="ann",
                message_id="m",
                content=content,
                conversation="api:ann",
            )
            for number in range(200)
            for role, content in (
                ("user", f"{number} " + "x" * 396),
                ("assistant", f"re {number} " + "x" * 390),
            )
        ]
        await at_work.store.put([], records=lines)
        seen = text(await send(at_work, "now")).split(" | ")
    # Three lines fit. The oldest is an answer without its question, so it is left out.
    assert [part[:6].strip() for part in seen] == ["199 xx", "re 199", "now"]


async def test_the_model_can_tell_people_of_one_conversation_apart() -> None:
    app = app_of(lambda messages, _: prompt_text(messages))
    async with trial(app) as at_work:
        await at_work.say("I am ann", address=Address(sender="ann", sender_id="room"))
        await at_work.work()
        await at_work.say("I am bob", address=Address(sender="bob", sender_id="room"))
        [(_, outcome)] = await at_work.work()
    assert text(outcome) == "ann: I am ann | I am ann | I am bob"


async def test_the_prompt_knows_agent_team_sender_and_date(tmp_path: Path) -> None:
    path = tmp_path / "prompt.md"
    path.write_text(
        "{{ name }}/{{ agent }} {{ channel }} {{ sender }} {{ date }}"
        "{% for id in teammates %} @{{ id }}{% endfor %}"
    )
    app = app_of(
        lambda messages, _: instructions(messages), {"name": "Coder"}, prompt=Prompt.read(path)
    )
    app.add("writer", lambda turn: "written")
    app.team("dev", agents=["coder", "writer"], leader="coder")
    async with trial(app) as at_work:
        today = (await at_work.store.now()).date()
        assert text(await send(at_work, "hello")) == f"Coder/coder api ann {today} @writer"


async def test_the_standard_prompt_names_the_agent_and_how_to_reach_its_teammates() -> None:
    app = app_of(lambda messages, _: instructions(messages))
    app.add("writer", lambda turn: "written", name="Writer")
    app.team("dev", agents=["coder", "writer"], leader="coder")
    [outcome] = await send_all(app, "hello")
    assert "You are coder" in text(outcome)
    assert "Writer (@writer)" in text(outcome)


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("hello\n{% if %}", r"prompt.md:2: "),
        ("{{ teammmates }}", "there is no 'teammmates' to write; known are: agent,"),
    ],
)
def test_a_mistake_in_a_prompt_is_found_before_anything_runs(
    tmp_path: Path, template: str, problem: str
) -> None:
    path = tmp_path / "prompt.md"
    path.write_text(template)
    with pytest.raises(HoldfastError, match=problem):
        Prompt.read(path)
    with pytest.raises(HoldfastError, match="cannot be read"):
        Prompt.read(tmp_path / "none.md")


async def test_reminders_are_added_to_the_prompt() -> None:
    async def remind(context: Context) -> str:
        return f"{context.turn.sender} likes tea."

    app = app_of(
        lambda messages, _: instructions(messages), prompt=Prompt("Be brief."), reminders=[remind]
    )
    [outcome] = await send_all(app, "hello")
    assert text(outcome) == "Be brief.\n\nann likes tea."


async def test_tools_know_the_turn_and_the_app() -> None:
    async def who(context: RunContext[Context], greeting: str) -> str:
        """Return the name of the sender."""
        mates = ", ".join(context.deps.teammates) or "nobody"
        return f"{greeting} {context.deps.turn.sender}, beside {mates}"

    def play(messages: list[ModelMessage], info: AgentInfo) -> Any:
        returned = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        if returned:
            return f"tool said: {returned[0].content}"
        assert [tool.name for tool in info.function_tools] == ["who"]
        return ModelResponse(parts=[ToolCallPart("who", {"greeting": "hello"})])

    async with trial(app_of(play, tools=[who])) as at_work:
        assert text(await send(at_work, "who am I?")) == "tool said: hello ann, beside nobody"


async def test_the_tokens_of_a_turn_go_with_its_response_and_are_counted() -> None:
    before = TOKENS.values.get(("coder", "script", "output"), 0)
    [outcome] = await send_all(app_of(lambda messages, _: "one two three"), "hello")
    assert isinstance(outcome, Done)
    usage = outcome.emits[0].event["metadata"]["usage"]
    assert usage["model"] == "script"
    assert usage["requests"] == 1
    assert usage["input_tokens"] > 0
    assert TOKENS.values["coder", "script", "output"] - before == usage["output_tokens"] > 0


async def test_words_as_they_come_are_signs_of_work() -> None:
    signs: list[int] = []
    app = app_of(lambda messages, _: "a few words")
    app.agents["coder"] = With(
        app.agents["coder"], lambda turn: setattr(turn, "on_progress", lambda: signs.append(1))
    )
    await send_all(app, "hello")
    assert len(signs) >= 2


@pytest.mark.parametrize("empty", ["", " \n"])
async def test_an_empty_answer_is_replaced_by_a_note(empty: str) -> None:
    [outcome] = await send_all(app_of(lambda messages, _: empty), "hello")
    assert text(outcome) == "(no answer)"
    assert isinstance(outcome, Done)
    assert outcome.emits[0].event["metadata"]["usage"]["requests"] == 1, (
        "the model is not asked again"
    )


def failing(error: Exception) -> Play:
    def play(messages: list[ModelMessage], info: AgentInfo) -> Any:
        raise error

    return play


async def test_a_server_that_fails_is_tried_again() -> None:
    [outcome] = await send_all(
        app_of(failing(ModelHTTPError(500, "gpt", {"message": "oops"}))), "hello"
    )
    assert isinstance(outcome, Retry)
    assert "500" in str(outcome.error)


async def test_a_model_that_never_ends_is_a_dead_letter() -> None:
    def again() -> str:
        """Again."""
        return "again"

    def play(messages: list[ModelMessage], info: AgentInfo) -> Any:
        return ModelResponse(parts=[ToolCallPart("again", {})])

    [outcome] = await send_all(app_of(play, tools=[again], max_requests=3), "hello")
    assert isinstance(outcome, Dead)
    assert outcome.error_class == "UsageLimitExceeded"


def test_a_model_limits_its_time() -> None:
    policy = app_of(lambda messages, _: "x").policies["coder"]
    assert (policy.timeout, policy.idle) == (timedelta(minutes=10), timedelta(minutes=2))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("gpt", 'a model is named "provider:model"'),
        ("groq:llama", r"the provider 'groq' needs a package: .*pydantic-ai-slim\[groq\]"),
        ("nosuch:model", "the model 'nosuch:model' cannot be used: "),
        ("openai:gpt-5", "the model 'openai:gpt-5' cannot be used: set OPENAI_API_KEY, or "),
        ("mine:model", "the key of the provider 'mine' is missing: MY_KEY is not set"),
    ],
)
def test_a_missing_package_or_key_of_a_model_is_one_clear_line(
    name: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(HoldfastError, match=problem) as refusal:
        model_of(
            name,
            {
                "mine": Provider(
                    kind="openai-chat", base_url="http://127.0.0.1:1/v1", key_variable="MY_KEY"
                )
            },
        )
    assert "\n" not in str(refusal.value)

"""Language models stream: the answer is kept and shown while the model writes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from holdfast import AgentHarness, Retry, Turn
from holdfast.agents.llm import HoldfastDurability, LlmAgent, scripted
from holdfast.agents.llm.stream import ResponseText
from holdfast.agents.turn import current_turn
from holdfast.chat import ChatStore
from holdfast.testing.clock import Clock
from holdfast.testing.trial import trial
from tests.agents.playing import Script, app_of, call, text
from tests.agents.trials import journal_of, trial_on
from tests.steps import until


def talk() -> str:
    """Talk."""
    return "talked"


def app_with(model: FunctionModel) -> AgentHarness:
    app = AgentHarness()
    app.add("coder", LlmAgent(model))
    return app


def saying(words: str, then: str) -> ModelResponse:
    """Return a response with a text before the call of a tool."""
    return ModelResponse(parts=[TextPart(words), *call(then).parts])


async def test_text_is_kept_while_the_model_writes_on(store: ChatStore, clock: Clock) -> None:
    goes_on = asyncio.Event()

    ids: list[int] = []

    async def play(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        turn = current_turn()
        assert turn is not None
        ids.append(turn.primary.id)
        yield "Once upon "
        await goes_on.wait()
        yield "a time"

    async def is_kept() -> bool:
        return bool(ids) and (await store.journal(ids[0])).text == "Once upon"

    app = app_with(FunctionModel(stream_function=play))
    async with trial_on(store, clock, app) as at_work:
        await at_work.say("tell me")
        async with asyncio.TaskGroup() as tasks:
            work = tasks.create_task(at_work.work())
            await until(is_kept)
            goes_on.set()
        [(_, outcome)] = work.result()
        assert text(outcome) == "Once upon a time"
        assert (await journal_of(at_work)).text == "Once upon a time"


async def test_without_streaming_the_final_answer_comes_alone() -> None:
    script = Script(saying("let me see", "talk"), "done")
    async with trial(app_of(script, tools=[talk], stream=False)) as at_work:
        assert await at_work.ask("go") == "done"
        assert (await journal_of(at_work)).text == ""


async def test_texts_before_and_after_a_tool_call_are_paragraphs_of_the_answer() -> None:
    script = Script(saying(" let me see\n", "talk"), call("talk"), "\nfound it ")
    async with trial(app_of(script, tools=[talk])) as at_work:
        assert await at_work.ask("go") == "let me see\n\nfound it"
        assert (await journal_of(at_work)).text == "let me see\n\nfound it"


async def test_a_later_attempt_goes_on_behind_the_text_of_recorded_requests() -> None:
    talks: list[str] = []

    def talk_badly() -> str:
        """Talk."""
        talks.append("talk")
        if len(talks) == 1:
            raise OSError("hoarse")
        return "talked"

    script = Script(saying("let me see", "talk_badly"), "found it")
    async with trial(app_of(script, tools=[talk_badly])) as at_work:
        await at_work.say("go")
        await at_work.work()
        journal = await journal_of(at_work)
        assert (journal.generation, journal.text) == (1, "let me see")
        at_work.clock.tick(hours=1)
        [(_, outcome)] = await at_work.work()
        assert text(outcome) == "let me see\n\nfound it"
        journal = await journal_of(at_work)
    assert (journal.generation, journal.text) == (1, "let me see\n\nfound it")


async def test_text_of_a_request_that_broke_off_is_replaced() -> None:
    requests: list[str] = []

    async def play(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        requests.append("request")
        yield f"answer {len(requests)}, "
        if len(requests) == 1:
            raise ModelHTTPError(500, "fake")
        yield "whole"

    async with trial(app_with(FunctionModel(stream_function=play))) as at_work:
        await at_work.say("go")
        [(_, first)] = await at_work.work()
        assert isinstance(first, Retry)
        assert (await journal_of(at_work)).text == "answer 1,"
        at_work.clock.tick(hours=1)
        [(_, outcome)] = await at_work.work()
        journal = await journal_of(at_work)
    assert text(outcome) == "answer 2, whole"
    assert (journal.generation, journal.text) == (2, "answer 2, whole")


async def test_an_empty_answer_says_so_with_streaming_too() -> None:
    async with trial(app_of(lambda *_: " ")) as at_work:
        assert await at_work.ask("go") == "(no answer)"


async def test_an_agent_that_a_user_brings_can_stream() -> None:
    script = Script(saying("let me see", "talk"), "found it")
    helper = Agent(
        scripted(script),
        name="helper",
        tools=[talk],
        capabilities=[HoldfastDurability(stream=True)],
    )

    async def answer(turn: Turn) -> None:
        await helper.run(turn.text)

    async with trial(AgentHarness(answer)) as at_work:
        assert await at_work.ask("go") == "let me see\n\nfound it"


class Written(list[str]):
    """An answer that is written."""

    @property
    def written_text(self) -> str:
        return "".join(self)

    async def write(self, piece: str) -> None:
        self.append(piece)


@given(st.lists(st.text(" \nab", max_size=4)))
def test_white_space_around_a_response_is_not_written(pieces: list[str]) -> None:
    async def write() -> str:
        turn = Written()
        response = ResponseText(turn)
        for piece in pieces:
            await response.write(piece)
        return turn.written_text

    assert asyncio.run(write()) == "".join(pieces).strip()

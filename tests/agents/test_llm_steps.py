"""Model requests and tool calls are steps: a later attempt makes only the missing ones."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    DeferredToolRequests,
    FunctionToolset,
    ModelRetry,
    RunContext,
    Tool,
)
from pydantic_ai.durable_exec import (
    CapabilityOperationId,
    DurableOperationId,
    ModelCancelSuspendedResponseId,
    ModelCompactMessagesId,
    ModelRequestId,
    ToolsetCallToolId,
    ToolsetGetInstructionsId,
    ToolsetGetToolsId,
    ToolsetValidateToolArgumentsId,
)
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.toolsets import WrapperToolset
from pydantic_ai.usage import RequestUsage

from holdfast import AgentHarness, Dead, NewEvent, NotDone, Retry, Turn, tool
from holdfast.agents.base import Answer
from holdfast.agents.llm import Context, HoldfastDurability, server_of
from holdfast.agents.llm.step_names import StepNames
from holdfast.chat import ChatStore
from holdfast.queue.event import INBOX
from holdfast.queue.journal import JournalEntry, Step
from holdfast.settings.agents import McpTable
from holdfast.testing.clock import Clock
from holdfast.testing.trial import Trial, trial
from tests.agents.playing import Script, With, app_of, call, prompt_text, text
from tests.agents.test_llm_memory import Notes
from tests.agents.trials import journal_of, trial_on

PROGRAM = str(Path(__file__).parent / "mcp_server.py")


class Words:
    """A dictionary that notes what was looked up, and fails on its n-th use."""

    def __init__(self, *, fails_at: int = 0) -> None:
        self.looked_up: list[str] = []
        self._fails_at = fails_at

    def look_up(self, word: str) -> str:
        """Look a word up."""
        self.looked_up.append(word)
        if len(self.looked_up) == self._fails_at:
            raise OSError("the dictionary is gone")
        return word.upper()


async def work_twice(at_work: Trial, message: str = "go") -> Any:
    """Work a message whose first attempt fails. Returns the outcome of the second."""
    await at_work.say(message)
    [(_, first)] = await at_work.work()
    assert isinstance(first, Retry), first
    return await work_later(at_work)


async def work_later(at_work: Trial) -> Any:
    at_work.clock.tick(hours=1)
    [(_, outcome)] = await at_work.work()
    return outcome


def returned(script: Script) -> list[object]:
    """Return the results of tools in the last message that the model got."""
    parts = script.requests[-1][-1].parts
    return [part.content for part in parts if isinstance(part, ToolReturnPart)]


async def tamper(at_work: Trial, step: Step) -> None:
    """Record a step of the waiting message as another process could have done."""
    at_work.clock.tick(hours=1)
    [turn] = await at_work.store.claim(INBOX, ["coder", ""], limit=1, lease=timedelta(minutes=1))
    await at_work.store.record(JournalEntry(turn=turn, steps=[step]))
    await at_work.store.settle([(turn, Retry("tampered", timedelta(0)))])


def own_app(script: Script, **given: Any) -> AgentHarness:
    """Return an app with a pydantic-ai agent of a user's own, in a function."""
    options = {"capabilities": [HoldfastDurability()], "name": "helper"} | given
    helper = Agent(FunctionModel(script), **options)
    app = AgentHarness()

    @app.agent("coder")
    async def coder(turn: Turn) -> Answer:
        return str((await helper.run(turn.text)).output)

    return app


async def test_a_later_attempt_makes_only_the_missing_requests(
    store: ChatStore, clock: Clock
) -> None:
    words = Words(fails_at=2)
    script = Script(call("look_up", word="a"), call("look_up", word="b"), "found")
    async with trial_on(store, clock, app_of(script, tools=[words.look_up])) as at_work:
        outcome = await work_twice(at_work)
    assert text(outcome) == "found"
    assert (len(script.requests), words.looked_up) == (3, ["a", "b", "b"])
    assert outcome.emits[0].event["metadata"]["usage"]["requests"] == 3


async def test_so_does_an_agent_that_a_user_brings() -> None:
    words = Words(fails_at=2)
    script = Script(call("look_up", word="a"), call("look_up", word="b"), "found")
    async with trial(own_app(script, tools=[words.look_up])) as at_work:
        assert text(await work_twice(at_work)) == "found"
        steps = (await journal_of(at_work)).steps
    assert (len(script.requests), words.looked_up) == (3, ["a", "b", "b"])
    assert [*steps] == [
        "helper: model request",
        "helper: tool look_up",
        "helper: model request#2",
        "helper: tool look_up#2",
        "helper: model request#3",
    ]


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        (ModelRequestId(model_name="m"), "bot: model request"),
        (ModelRequestId(streaming=True, model_name="m"), "bot: model request"),
        (ModelRequestId("openai:gpt", model_name="m"), "bot: model request"),
        (ModelRequestId("other", model_name="m"), "bot: model request (other)"),
        (ModelCompactMessagesId(model_name="m"), "bot: compact messages"),
        (ModelCancelSuspendedResponseId(model_name="m"), "bot: cancel response"),
        (ToolsetCallToolId("function", toolset_id="<agent>"), "bot: tool look_up"),
        (ToolsetCallToolId("function", toolset_id="words"), "bot: tool words.look_up"),
        (ToolsetCallToolId("mcp", toolset_id="words"), "bot: tool words.look_up"),
        (ToolsetCallToolId("dynamic", toolset_id="words"), "bot: tool words.look_up"),
        (
            ToolsetValidateToolArgumentsId("function", toolset_id="<agent>"),
            "bot: arguments of look_up",
        ),
        (ToolsetGetToolsId("mcp", toolset_id="words"), "bot: tools of words"),
        (ToolsetGetInstructionsId("words"), "bot: instructions of words"),
        (CapabilityOperationId("search", operation="find"), "bot: search.find"),
    ],
)
def test_step_names_never_change_because_they_are_stored(
    operation: DurableOperationId, name: str
) -> None:
    names = StepNames("bot", "openai:gpt")
    assert names.invocation_name(operation, label="look_up").operation_name == name


async def test_the_steps_of_a_run_have_these_keys() -> None:
    server = server_of("loud", McpTable(command=(sys.executable, PROGRAM)))
    words = FunctionToolset([Words().look_up], id="words").prefixed("my")

    def check(context: RunContext[Context], word: str) -> None:
        assert word

    def spell(word: str) -> str:
        """Spell a word."""
        return "-".join(word)

    script = Script(
        call("spell", word="ab"), call("my_look_up", word="a"), call("loud_shout", text="a"), "end"
    )
    app = app_of(script, tools=[Tool(spell, args_validator=check)], toolsets=[words, server])
    async with trial(app) as at_work:
        assert await at_work.ask("go") == "end"
        steps = (await journal_of(at_work)).steps
    assert [*steps] == [
        "llm: tools of loud",
        "llm: model request",
        "llm: arguments of spell",
        "llm: tool spell",
        "llm: model request#2",
        "llm: tool words.look_up",
        "llm: model request#3",
        "llm: tool loud.shout",
        "llm: model request#4",
    ]


async def test_calls_of_one_tool_in_one_response_keep_their_results() -> None:
    words = Words()
    both = ModelResponse(parts=[*call("look_up", word="a").parts, *call("look_up", word="b").parts])
    script = Script(both, call("look_up", word="c"), "found")
    async with trial(app_of(script, tools=[words.look_up])) as at_work:
        assert await at_work.ask("go") == "found"
        steps = (await journal_of(at_work)).steps
    results = {key: step.result for key, step in steps.items() if " tool " in key}
    assert {key: "A" in str(result) for key, result in results.items()} == {
        "llm: tool look_up (1 of 2)": True,
        "llm: tool look_up (2 of 2)": False,
        "llm: tool look_up": False,
    }


async def test_an_error_for_the_model_is_recorded_and_not_raised_again() -> None:
    words = Words(fails_at=2)

    def look_up(word: str) -> str:
        """Look a word up."""
        found = words.look_up(word)
        if word == "x":
            raise ModelRetry("there is no x, look up b")
        return found

    script = Script(call("look_up", word="x"), call("look_up", word="b"), "found")
    async with trial(app_of(script, tools=[look_up])) as at_work:
        assert text(await work_twice(at_work)) == "found"
    assert (len(script.requests), words.looked_up) == (3, ["x", "b", "b"])
    assert "there is no x, look up b" in prompt_text(script.requests[-1])


async def test_a_call_that_waits_for_approval_is_recorded() -> None:
    asked: list[str] = []

    def delete(name: str) -> str:
        """Delete a file."""
        asked.append(name)
        raise ApprovalRequired

    script = Script(call("delete", name="a.txt"))
    helper = Agent(
        FunctionModel(script),
        name="helper",
        tools=[delete],
        output_type=[str, DeferredToolRequests],
        capabilities=[HoldfastDurability()],
    )

    async def answer(turn: Turn) -> Answer:
        requests = (await helper.run(turn.text)).output
        assert isinstance(requests, DeferredToolRequests)
        if turn.attempt == 1:
            raise OSError("gone")
        return f"approve {requests.approvals[0].tool_name}?"

    async with trial(AgentHarness(answer)) as at_work:
        assert text(await work_twice(at_work)) == "approve delete?"
    assert (len(script.requests), asked) == (1, ["a.txt"])


@pytest.mark.parametrize("key", ["llm: tool look_up", "llm: model request"])
async def test_a_step_that_cannot_be_read_is_fatal_and_no_error_for_the_model(key: str) -> None:
    words = Words(fails_at=2)
    script = Script(call("look_up", word="a"), call("look_up", word="b"), "found")
    async with trial(app_of(script, tools=[words.look_up])) as at_work:
        await at_work.say("go")
        await at_work.work()
        await tamper(at_work, Step(key=key, state="done", attempt=1, result='{"kind":"gone"}'))
        outcome = await work_later(at_work)
    assert isinstance(outcome, Dead)
    assert outcome.error_class == "Unreadable"
    assert f"the stored result of the step {key!r} cannot be read" in str(outcome.reason)
    assert len(script.requests) == 2


async def test_a_result_that_cannot_be_stored_names_its_step() -> None:
    def look_up(word: str) -> object:
        """Look a word up."""
        return object()

    script = Script(call("look_up", word="a"), "found")
    async with trial(app_of(script, tools=[look_up])) as at_work:
        await at_work.say("go")
        [(_, outcome)] = await at_work.work()
    assert isinstance(outcome, Retry)
    assert "the result of step 'llm: tool look_up' cannot be stored" in str(outcome.error)


async def test_a_once_tool_that_may_have_run_ends_the_turn() -> None:
    paid: list[int] = []

    @tool(effect="once")
    def pay(amount: int) -> str:
        """Pay an amount."""
        paid.append(amount)
        raise OSError("no answer from the bank")

    script = Script(call("pay", amount=5), "paid")
    async with trial(app_of(script, tools=[pay])) as at_work:
        outcome = await work_twice(at_work)
    assert isinstance(outcome, Dead)
    assert outcome.error_class == "EffectUnknown"
    assert "step 'llm: tool pay': the call pay with arguments" in str(outcome.reason)
    assert '"amount":5' in str(outcome.reason)
    assert (len(script.requests), paid) == (1, [5])


@pytest.mark.parametrize("was_paid", [True, False])
async def test_a_probe_says_whether_a_once_tool_has_run(was_paid: bool) -> None:
    paid: list[int] = []

    async def find_payment(amount: int) -> str:
        if not was_paid:
            raise NotDone
        return f"payment of {amount}, found"

    @tool(effect="once", probe=find_payment)
    async def pay(amount: int) -> str:
        """Pay an amount."""
        paid.append(amount)
        if len(paid) == 1:
            raise OSError("no answer from the bank")
        return f"payment of {amount}"

    script = Script(call("pay", amount=5), "paid")
    async with trial(own_app(script, tools=[pay])) as at_work:
        assert text(await work_twice(at_work)) == "paid"
        step = (await journal_of(at_work)).steps["helper: tool pay"]
    assert paid == ([5] if was_paid else [5, 5])
    assert returned(script) == ["payment of 5, found" if was_paid else "payment of 5"]
    assert (step.kind, step.state) == ("once", "done")


async def test_a_once_tool_that_a_person_calls_done_returns_nothing() -> None:
    @tool(effect="once")
    async def pay(amount: int) -> str:
        """Pay an amount."""
        raise OSError("no answer from the bank")

    script = Script(call("pay", amount=5), "paid")
    async with trial(app_of(script, tools=[pay])) as at_work:
        await at_work.say("go")
        await at_work.work()
        await tamper(
            at_work, Step(key="llm: tool pay", kind="once", state="done", attempt=1, result=None)
        )
        assert text(await work_later(at_work)) == "paid"
    assert returned(script) == [None]


async def test_parallel_calls_of_a_once_tool_keep_their_places() -> None:
    paid: list[str] = []

    @tool(effect="once")
    async def pay(who: str) -> str:
        """Pay somebody."""
        paid.append(who)
        return f"receipt of {who}"

    class LateFirst(WrapperToolset[Any]):
        """In the first attempt, lets the call about `a` fail after that about `b` has ended."""

        async def call_tool(self, name: str, tool_args: dict[str, Any], *rest: Any) -> Any:
            if tool_args["who"] == "a" and not one_is_paid.is_set():
                await one_is_paid.wait()
                raise OSError("killed")
            result = await super().call_tool(name, tool_args, *rest)
            # Only now is its step recorded as done.
            one_is_paid.set()
            return result

    one_is_paid = asyncio.Event()
    both = ModelResponse(parts=[ToolCallPart("pay", {"who": who}) for who in ("a", "b")])
    script = Script(both, call("pay", who="c"), "paid")
    toolset = LateFirst(FunctionToolset([pay], id="bank"))
    async with trial(own_app(script, toolsets=[toolset])) as at_work:
        assert text(await work_twice(at_work)) == "paid"
        steps = (await journal_of(at_work)).steps
    assert paid == ["b", "a", "c"]
    assert {key: step.arguments for key, step in steps.items() if step.kind == "once"} == {
        "helper: tool bank.pay#2": '[{"who":"b"}]',
        "helper: tool bank.pay": '[{"who":"a"}]',
        "helper: tool bank.pay#3": '[{"who":"c"}]',
    }
    assert "receipt of a | receipt of b | receipt of c" in prompt_text(script.requests[-1])


async def test_a_repeatable_tool_may_be_decorated_too() -> None:
    @tool
    async def look_up(word: str) -> str:
        """Look a word up."""
        return word.upper()

    async with trial(
        app_of(Script(call("look_up", word="a"), "found"), tools=[look_up])
    ) as at_work:
        assert await at_work.ask("go") == "found"
        assert "llm: tool look_up" in (await journal_of(at_work)).steps


async def test_what_a_model_observes_is_not_lost_by_a_later_attempt() -> None:
    words, notes = Words(fails_at=1), Notes()
    script = Script(call("observe", content="ann is here"), call("look_up", word="a"), "noted")
    app = app_of(script, tools=[words.look_up])

    def take_notes(turn: Turn) -> None:
        notes.observed.clear()
        turn.memory = notes

    app.agents["coder"] = With(app.agents["coder"], take_notes)
    async with trial(app) as at_work:
        assert text(await work_twice(at_work)) == "noted"
    assert notes.observed == ["ann is here"]


async def test_tokens_and_cost_of_a_request_are_recorded_with_its_step() -> None:
    usage = RequestUsage(input_tokens=20, output_tokens=3, cost=Decimal("0.25"))
    script = Script(ModelResponse(parts=[TextPart("hello")], usage=usage))
    async with trial(own_app(script)) as at_work:
        assert await at_work.ask("hi") == "hello"
        [step] = (await journal_of(at_work)).steps.values()
    assert (step.tokens, step.cost) == (23, 0.25)


async def test_the_cost_of_a_model_without_a_known_price_is_not_recorded() -> None:
    async with trial(app_of(Script("hello"))) as at_work:
        assert await at_work.ask("hi") == "hello"
        [step] = (await journal_of(at_work)).steps.values()
    assert (step.tokens is not None, step.cost) == (True, None)


async def test_outside_of_turns_and_inside_of_steps_an_agent_runs_as_it_is() -> None:
    helper = Agent(
        FunctionModel(Script("hello")), name="helper", capabilities=[HoldfastDurability()]
    )

    async def ask(text: str) -> str:
        return (await helper.run(text)).output

    async def answer(turn: Turn) -> Answer:
        return await turn.step("ask", ask, turn.text)

    async with trial(AgentHarness(answer)) as at_work:
        assert await at_work.ask("hi") == "hello"
        assert [*(await journal_of(at_work)).steps] == ["ask"]
    assert await ask("hi") == "hello"


@pytest.mark.parametrize("metadata", [None, {"holdfast": False}])
async def test_a_tool_that_adds_to_the_turn_needs_to_run_in_each_attempt(
    metadata: dict[str, Any] | None,
) -> None:
    async def remind(context: RunContext[Context], text: str) -> str:
        """Remind somebody."""
        context.deps.turn.emit(NewEvent(queue="reminders", event={"text": text}))
        return "reminded"

    words = Words(fails_at=1)
    tools = [Tool(remind, metadata=metadata), words.look_up]
    script = Script(call("remind", text="tea"), call("look_up", word="a"), "done")
    async with trial(app_of(script, tools=tools)) as at_work:
        await at_work.say("go")
        [(_, first)] = await at_work.work()
        assert isinstance(first, Retry)
        if metadata is None:
            assert "step 'llm: tool remind' adds an event to its turn" in str(first.error)
            return
        outcome = await work_later(at_work)
    assert [new.event for new in outcome.emits if new.queue == "reminders"] == [{"text": "tea"}]


async def test_a_tool_without_a_step_may_use_the_turn() -> None:
    async def wait(context: RunContext[Context], minutes: int) -> str:
        """Wait."""
        await context.deps.turn.sleep(timedelta(minutes=minutes))
        return f"waited {minutes}"

    waiting = Tool(wait, metadata={"holdfast": False})
    script = Script(call("wait", minutes=5), "awake")
    async with trial(app_of(script, tools=[waiting])) as at_work:
        assert await at_work.ask("go") == "awake"
    assert len(script.requests) == 2

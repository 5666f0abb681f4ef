"""Durable runs of pydantic-ai agents: each model request and tool call is a step of the turn."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar, cast

from pydantic import ValidationError
from pydantic_ai import AgentStreamEvent, RunContext, Tool
from pydantic_ai.agent import EventStreamHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    BoundDurableOperation,
    CacheIdentity,
    CallableOperationBackend,
    DurabilityEngineSpec,
    DurableOperation,
    DurableOperationBackend,
    DurableOperationId,
    DynamicToolsetCallToolParams,
    EventStreamHandlerId,
    ModelRequestId,
    ResultCodec,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    ToolsetCallToolParams,
)
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.tools import AgentDepsT
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool
from pydantic_ai.toolsets.function import FunctionToolsetTool
from pydantic_core import PydanticSerializationError

from holdfast.agents.call import StepOptions, options_of
from holdfast.agents.codec import Unencodable
from holdfast.agents.llm.step_names import StepNames
from holdfast.agents.llm.stream import write_events, write_response
from holdfast.agents.steps import note_usage
from holdfast.agents.turn import Turn, current_turn
from holdfast.errors import StepError, Unreadable

TOOL_METADATA = "holdfast"
NO_STEP = {TOOL_METADATA: False}
"""Metadata of a tool whose calls are not steps: it runs in every attempt, and may use the turn."""

Params = TypeVar("Params")
Wire = TypeVar("Wire")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class RecordedResult:
    """The stored result of a step."""

    step: str
    payload: object


class StepCodec(ResultCodec[Result], Generic[Result]):
    """Encodes results as JSON. A stored result that cannot be read fails the turn, not the call."""

    def __init__(self, codec: ResultCodec[Result]) -> None:
        self._codec = codec

    def dump(self, value: Result) -> object:
        try:
            return self._codec.dump(value)
        except (PydanticSerializationError, TypeError) as error:
            raise Unencodable(f"cannot be stored: {error}") from error

    def load(self, payload: object) -> Result:
        assert isinstance(payload, RecordedResult)
        try:
            return self._codec.load(payload.payload)
        except ValidationError as error:
            # pydantic-ai would take a ValidationError in a tool call for wrong arguments.
            raise _unreadable(payload.step, error) from error


def _unreadable(step: str, error: ValidationError) -> Unreadable:
    return Unreadable(
        f"the stored result of the step {step!r} cannot be read"
        f" ({error.errors(include_url=False)[0]['msg']}); replay the message to begin anew"
    )


class WholeParams(CacheIdentity[Params], Generic[Params]):
    """Hands the parameters of an operation to `execute`."""

    def project(self, params: Params) -> tuple[object, ...]:
        return (params,)


REPEATABLE = StepOptions()

_substitute: ContextVar[Callable[..., Any] | None] = ContextVar("_substitute", default=None)
"""Function to call instead of the function of a tool."""


class StepBackend(CallableOperationBackend[StepOptions]):
    """Runs each operation as a step of the current turn."""

    def __init__(self, names: StepNames, config: Any, *, stream: bool) -> None:
        super().__init__(namer=names, config=config)
        self._stream = stream

    def bind(
        self, operation: DurableOperation[Params, Wire, Result]
    ) -> BoundDurableOperation[Params, Wire, Result]:
        async def handler(params: Params) -> Result:
            return await operation.handler(_with_substitute(params))

        return super().bind(
            replace(
                operation,
                handler=handler,
                cache_identity=WholeParams[Params](),
                result_codec=StepCodec(operation.result_codec),
            )
        )

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: StepOptions,
    ) -> object:
        if isinstance(operation_id, EventStreamHandlerId):
            # Events are shown again in a later attempt; only answers are recorded.
            return RecordedResult(name, await body())
        turn, [params] = _turn(), cache_key
        if config.effect == "repeatable":
            name = _number_call(name, params)
        body = _with_clear_error(name, body)
        if isinstance(operation_id, ModelRequestId):
            payload = await self._request(turn, name, body)
        elif config.effect == "once":
            payload = await _call_once(turn, name, body, params, config)
        else:
            payload = await turn.step(name, body)
        return RecordedResult(name, payload)

    async def _request(self, turn: Turn, name: str, body: Callable[[], Awaitable[Any]]) -> object:
        is_replayed = True

        async def ask() -> Any:
            nonlocal is_replayed
            is_replayed = False
            payload = await body()
            _note_usage(_response(name, payload))
            return payload

        payload = await turn.step(name, ask)
        if is_replayed and self._stream:
            await write_response(turn, _response(name, payload))
        return payload


def _with_clear_error(
    name: str, body: Callable[[], Awaitable[object]]
) -> Callable[[], Awaitable[Any]]:
    """Return the body of a step. It raises StepError if its result cannot be stored."""

    async def run() -> Any:
        try:
            return await body()
        except Unencodable as error:
            raise StepError(f"the result of step {name!r} {error}") from error

    return run


async def _call_once(
    turn: Turn,
    name: str,
    body: Callable[[], Awaitable[Any]],
    params: object,
    options: StepOptions,
) -> object:
    assert isinstance(params, ToolsetCallToolParams)

    async def call(_: dict[str, Any]) -> Any:
        return await body()

    async def probe(_: dict[str, Any]) -> Any:
        with _substituting(options.probe):
            return await body()

    assert turn.journal is not None
    call.__qualname__ = params.name
    steps, (called, calls) = turn.journal.steps, _calls_of_tool(params)
    payload = await steps.call(
        name,
        call,
        [params.tool_args],
        options=StepOptions("once", probe if options.probe else None),
        number=steps.use_in_batch(name, calls, called),
    )
    if payload is not None:
        return payload
    # A person said that it was done; the result is not known.
    with _substituting(_nothing):
        return await body()


@contextmanager
def _substituting(function: Callable[..., Any] | None) -> Iterator[None]:
    token = _substitute.set(function)
    try:
        yield
    finally:
        _substitute.reset(token)


def _with_substitute(params: Params) -> Params:
    function = _substitute.get()
    if function is None:
        return params
    assert isinstance(params, ToolsetCallToolParams)
    assert isinstance(params.tool, FunctionToolsetTool)
    tool = replace(params.tool, call_func=Tool(function).function_schema.call)
    return cast(Params, replace(params, tool=tool))


def _nothing(**_: Any) -> None:
    """Return None, whatever the arguments."""


def _number_call(name: str, params: object) -> str:
    """Tell several calls of one tool in one response apart, which may start in any order."""
    if not isinstance(params, ToolsetCallToolParams | DynamicToolsetCallToolParams):
        return name
    called, calls = _calls_of_tool(params)
    return f"{name} ({calls.index(called) + 1} of {len(calls)})" if len(calls) > 1 else name


def _calls_of_tool(
    params: ToolsetCallToolParams | DynamicToolsetCallToolParams,
) -> tuple[str, list[str]]:
    """Return the id of this call, and the ids of all calls of the same tool in the response."""
    responses = (one for one in reversed(params.ctx.messages) if isinstance(one, ModelResponse))
    response = next(responses, ModelResponse(parts=[]))
    tools = {call.tool_call_id: call.tool_name for call in response.tool_calls}
    called = params.ctx.tool_call_id or ""
    return called, [id_ for id_, tool in tools.items() if tool == tools.get(called)] or [called]


def _response(name: str, payload: object) -> ModelResponse:
    try:
        return cast(ModelResponse, JSON_CODEC.load(ModelResponse, payload))
    except ValidationError as error:
        raise _unreadable(name, error) from error


def _turn() -> Turn:
    turn = current_turn()
    assert turn is not None, "steps run in turns only"
    return turn


def _note_usage(response: ModelResponse) -> None:
    """Record the tokens of a request with its step, and the cost of a model with known prices."""
    usage = response.usage
    cost = usage.cost
    if cost is None:
        # genai-prices raises LookupError for unknown models.
        with suppress(AssertionError, LookupError, ValueError):
            cost = response.cost().total_price
    note_usage(usage.total_tokens, None if cost is None else float(cost))


class HoldfastDurability(BaseDurabilityCapability[AgentDepsT]):
    """Records model requests and tool calls of a pydantic-ai agent as steps of the current turn.

    A later attempt of the turn gets the recorded results. Outside of turns, and inside of steps,
    the agent runs as without it."""

    engine_spec = DurabilityEngineSpec(
        engine_name="Holdfast",
        durable_unit_noun="step",
        durable_container_noun="turn",
        codec=JSON_CODEC,
        toolset_lifecycles={
            "function": "enter-always",
            "mcp": "enter-in-durable-unit",
            "dynamic": "enter-never",
        },
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        tool_config_key=TOOL_METADATA,
    )

    def __init__(
        self,
        *,
        stream: bool = False,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
    ) -> None:
        """Write the text of responses to the turn if `stream`. `name` begins the step names."""
        self._stream = stream
        self._on_events = event_stream_handler
        handler = self._write_events if stream else event_stream_handler
        super().__init__(models=models, event_stream_handler=handler, name=name)

    @property
    def in_durable_context(self) -> bool:
        turn = current_turn()
        return turn is not None and not turn.in_step

    def get_durable_operation_backend(self) -> DurableOperationBackend[StepOptions]:
        config = RoleBasedOperationConfig(
            model=REPEATABLE,
            event=REPEATABLE,
            capability=REPEATABLE,
            tool=REPEATABLE,
            resolve_tool=self._tool_options,
        )
        names = StepNames(self.name, self.default_model_id)
        return StepBackend(names, config, stream=self._stream)

    async def _write_events(
        self, context: RunContext[AgentDepsT], events: AsyncIterable[AgentStreamEvent]
    ) -> None:
        turn = current_turn()
        written = events if turn is None else write_events(turn, events)
        if self._on_events is not None:
            await self._on_events(context, written)
        async for _ in written:
            pass

    def _tool_options(
        self, operation_id: DurableOperationId, tool: object | None, name: str
    ) -> StepOptions | Literal[False]:
        metadata = tool.tool_def.metadata if isinstance(tool, ToolsetTool) else None
        if metadata is not None and metadata.get(TOOL_METADATA) is False:
            return False
        if not isinstance(operation_id, ToolsetCallToolId):
            return REPEATABLE
        function = self._function(operation_id.toolset_id, name)
        return REPEATABLE if function is None else options_of(function) or REPEATABLE

    def _function(self, toolset_id: str, name: str) -> Callable[..., Any] | None:
        """Return the function of a tool, None for tools that are not functions."""
        found: list[FunctionToolset[Any]] = []

        def visit(toolset: AbstractToolset[Any]) -> None:
            if isinstance(toolset, FunctionToolset) and toolset.id == toolset_id:
                found.append(toolset)

        for toolset in () if self.agent is None else self.agent.toolsets:
            toolset.apply(visit)
        tools = [toolset.tools[name] for toolset in found if name in toolset.tools]
        return tools[0].function if tools else None

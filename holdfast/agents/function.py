"""Agents that are Python functions: plain, async, or async generators that yield their text."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, nullcontext
from functools import partial

from holdfast.agents.base import Answer
from holdfast.agents.threads import is_async, run_in_thread
from holdfast.agents.turn import Turn

Function = Callable[[Turn], Answer | Awaitable[Answer] | AsyncIterator[Answer]]


class FunctionAgent:
    """Answers turns with a function. A plain one runs in a thread, so it does not block others."""

    kind = "function"

    def __init__(self, function: Function) -> None:
        self._function = function
        self._is_async = is_async(function)

    async def answer(self, turn: Turn) -> Answer:
        result = self._function(turn) if self._is_async else await self._in_thread(turn)
        if inspect.iscoroutine(result):
            # The usual case; the other checks take ten times as long.
            answer: Answer = await result
            return answer
        if isinstance(result, AsyncIterator):
            return await _write_all(turn, result)
        return await result if inspect.isawaitable(result) else result

    async def _in_thread(self, turn: Turn) -> Answer | Awaitable[Answer] | AsyncIterator[Answer]:
        call = partial(self._function, turn)
        return await run_in_thread(call, agent=turn.agent, event_id=turn.primary.id)


async def _write_all(turn: Turn, answers: AsyncIterator[Answer]) -> Answer:
    """Write each text of an iterator. The first Reply or outcome that it yields ends it."""
    async with aclosing(answers) if isinstance(answers, AsyncGenerator) else nullcontext():
        async for answer in answers:
            if not isinstance(answer, str):
                return answer
            await turn.write(answer)
    return None

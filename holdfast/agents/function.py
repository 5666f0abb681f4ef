"""An agent that is a Python function, plain or async."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from holdfast.agent import Answer
from holdfast.event import Turn

Function = Callable[[Turn], Answer | Awaitable[Answer]]


class FunctionAgent:
    """A plain function runs in a thread, so that it holds up nobody else."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function)

    async def answer(self, turn: Turn) -> Answer:
        result = self._function(turn) if self._is_async else await asyncio.to_thread(self._function, turn)
        return await result if inspect.isawaitable(result) else result

"""Functions whose calls are steps: `tool`, and the decorator behind `app.step`."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from holdfast.agents.call import RUNNING, Effect, StepOptions, check_options, set_options
from holdfast.agents.journal import CURRENT
from holdfast.agents.threads import is_async

P = ParamSpec("P")
T = TypeVar("T")

_NAMELESS = "of a decorated function"


class Decorator(Protocol):
    """Turns a function into an async one whose calls are steps."""

    @overload
    def __call__(
        self, function: Callable[P, Awaitable[T]], /
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...

    @overload
    def __call__(self, function: Callable[P, T], /) -> Callable[P, Coroutine[Any, Any, T]]: ...


def as_step(
    function: Callable[..., Any], options: StepOptions, *, is_tool: bool = False
) -> Callable[..., Awaitable[Any]]:
    """Return an async function: inside of a turn, each call is a step named after it.

    Outside of a turn it is a plain call. So is a tool inside of a step with the same effect, since
    an agent that records its tool calls runs them in steps of its own."""

    @functools.wraps(function)
    async def step(*args: Any, **kwargs: Any) -> Any:
        journal, running = CURRENT.get(), RUNNING.get()
        is_inside = (
            is_tool
            and running is not None
            and options.effect in ("repeatable", running.options.effect)
        )
        if journal is not None and not journal.has_ended and not is_inside:
            return await journal.steps.call(name, function, args, kwargs, options=options)
        result = (
            function(*args, **kwargs)
            if is_async(function)
            else await asyncio.to_thread(function, *args, **kwargs)
        )
        return await result if inspect.isawaitable(result) else result

    name = getattr(function, "__name__", type(function).__name__)
    set_options(step, options)
    return step


@overload
def step(function: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]: ...


@overload
def step(*, effect: Effect = ..., probe: Callable[..., Any] | None = ...) -> Decorator: ...


def step(
    function: Callable[..., Any] | None = None,
    /,
    *,
    effect: Effect = "repeatable",
    probe: Callable[..., Any] | None = None,
) -> Any:
    """Decorate an async function: inside of a turn, each call is a step named after it.

    Outside of turns it is a plain call. A decorated plain function becomes async."""
    options = check_options(_NAMELESS, StepOptions(effect, probe))
    return _decorate(function, lambda decorated: as_step(decorated, options))


@overload
def tool(function: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]: ...


@overload
def tool(function: Callable[P, T], /) -> Callable[P, Coroutine[Any, Any, T]]: ...


@overload
def tool(*, effect: Effect = ..., probe: Callable[..., Any] | None = ...) -> Decorator: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    effect: Effect = "repeatable",
    probe: Callable[..., Any] | None = None,
) -> Any:
    """Decorate a function whose calls in a turn are steps: a tool of a language model, or any.

    The decorated function is async. With `effect="once"` it never runs twice for one message:
    `probe`, called with the same arguments, returns the value if it was done and raises NotDone if
    it was not."""
    options = check_options(_NAMELESS, StepOptions(effect, probe))
    return _decorate(function, lambda decorated: as_step(decorated, options, is_tool=True))


def _decorate(function: Callable[..., Any] | None, decorate: Callable[..., Any]) -> Any:
    return decorate if function is None else decorate(function)

"""Times the calls of a store, whichever engine it is."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.queue.store import Store
from holdfast.telemetry import STORE_CALL, STORE_ERRORS, spans

CALLS = tuple(
    name
    for name, method in vars(Store).items()
    if inspect.iscoroutinefunction(method) and name != "close"
)


def measured(store: Store) -> Store:
    """The same store; what it is asked from now on is timed as its caller feels it."""
    for name in CALLS:
        setattr(store, name, _timed(name, getattr(store, name)))
    return store


def _timed(name: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(call)
    async def timed(*arguments: Any, **named: Any) -> Any:
        began_at = time.perf_counter()
        try:
            if spans.tracing is None:
                return await call(*arguments, **named)
            with spans.store_call(name):
                return await call(*arguments, **named)
        except Exception as error:
            STORE_ERRORS.add(name, type(error).__name__)
            raise
        finally:
            STORE_CALL.of(name).observe(time.perf_counter() - began_at)

    return timed

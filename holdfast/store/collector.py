"""Creating many objects without the garbage collector looking through them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def without_collector(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function that creates a batch of objects, none of them garbage.

    The collector would look through a claim of 500 a dozen times: an eighth of a drain."""

    @wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        was_on = gc.isenabled()
        gc.disable()
        try:
            return function(*arguments, **named)
        finally:
            if was_on:
                gc.enable()

    return call

"""Many objects made at once, none of them garbage: the collector need not look through them meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def uncollected(function: Callable[P, T]) -> Callable[P, T]:
    """For functions that make a batch: a claim of 500 would be looked through a dozen times, an eighth of a drain."""

    @wraps(function)
    def made(*arguments: P.args, **named: P.kwargs) -> T:
        was_on = gc.isenabled()
        gc.disable()
        try:
            return function(*arguments, **named)
        finally:
            if was_on:
                gc.enable()

    return made

"""Measure how the time of a function grows with its input."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

Input = TypeVar("Input")

SIZES = (2_000, 8_000, 32_000)
"""Each is four times the one before: linear work takes four times as long, quadratic sixteen."""
MAX_GROWTH = 9.0
NEGLIGIBLE = 0.02
"""Seconds below which a measurement is noise."""


def superlinear(
    work: Callable[[Input], object],
    hostile: Callable[[int], Input],
    sizes: Sequence[int] = SIZES,
) -> str:
    """Return '' if `work` is linear in the size of its input, often the length of a text, else a
    measurement that shows more.

    Only the processor time of this thread counts, so that a busy machine changes nothing. Small
    inputs come first: a quadratic function is found before it costs minutes.
    """
    before = NEGLIGIBLE
    for size in sizes:
        given = hostile(size)
        took = _seconds(work, given)
        if took > max(NEGLIGIBLE, MAX_GROWTH * before):
            # A page fault does not recur.
            took = min(took, _seconds(work, given))
        if took > max(NEGLIGIBLE, MAX_GROWTH * before):
            shown = repr(given)[:24]
            return f"{took:.3f} s for a size of {size:,}, {before:.4f} s before: {shown}"
        before = max(took, NEGLIGIBLE / MAX_GROWTH)
    return ""


def _seconds(work: Callable[[Input], object], given: Input) -> float:
    # The garbage collector would visit everything that other tests left behind.
    gc.disable()
    try:
        start = time.thread_time()
        work(given)
        return time.thread_time() - start
    finally:
        gc.enable()

"""Measure how the time of a function grows with its text."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

SIZES = (2_000, 8_000, 32_000)
"""Each is four times the one before: linear work takes four times as long, quadratic sixteen."""
MAX_GROWTH = 9.0
NEGLIGIBLE = 0.02
"""Seconds below which a measurement is noise."""


def superlinear(work: Callable[[str], object], hostile: Callable[[int], str]) -> str:
    """Return '' if `work` is linear in the length of the text, else a measurement that shows more.

    Only the processor time of this thread counts, so that a busy machine changes nothing. Small
    texts come first: a quadratic function is found before it costs minutes.
    """
    before = NEGLIGIBLE
    for size in SIZES:
        text = hostile(size)
        took = _seconds(work, text)
        if took > max(NEGLIGIBLE, MAX_GROWTH * before):
            # A page fault is not there the second time.
            took = min(took, _seconds(work, text))
        if took > max(NEGLIGIBLE, MAX_GROWTH * before):
            return f"{took:.3f} s for {size:,} characters of {text[:24]!r}, {before:.4f} s before"
        before = max(took, NEGLIGIBLE / MAX_GROWTH)
    return ""


def _seconds(work: Callable[[str], object], text: str) -> float:
    # The collector visits everything that other tests left behind, which has nothing to do with it.
    gc.disable()
    try:
        start = time.thread_time()
        work(text)
        return time.thread_time() - start
    finally:
        gc.enable()

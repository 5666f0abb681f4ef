"""Animated PNG files: a palette for all frames, and of each frame the part that changed."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np

from tools.screenshots.png import (
    Bytes,
    header_of,
    join_chunks,
    packed,
    read_png,
    reduce_colors,
)

FOREVER = 0


@dataclass(frozen=True)
class Frame:
    """A picture as PNG, and for how long it is shown."""

    png: bytes
    seconds: float


def write_animation(frames: Sequence[Frame], path: Path) -> None:
    """Write frames of one size as an animation that repeats for ever."""
    rows, palette = reduce_colors(*[read_png(frame.png) for frame in frames])
    control = (b"acTL", struct.pack(">II", len(frames), FOREVER))
    head = ((b"IHDR", header_of(rows[0])), (b"PLTE", palette.tobytes()), control)
    path.write_bytes(join_chunks(*head, *_frames(frames, rows)))


def _frames(frames: Sequence[Frame], rows: Sequence[Bytes]) -> Iterator[tuple[bytes, bytes]]:
    numbers = count()
    for at, frame in enumerate(frames):
        top, left, part = _changed(rows[at - 1], rows[at]) if at else (0, 0, rows[0])
        height, width = part.shape
        delay = (round(frame.seconds * 1000), 1000)
        bounds = (next(numbers), width, height, left, top, *delay, 0, 0)
        yield b"fcTL", struct.pack(">IIIIIHHBB", *bounds)
        if at == 0:
            yield b"IDAT", packed(part)
        else:
            yield b"fdAT", struct.pack(">I", next(numbers)) + packed(part)


def _changed(before: Bytes, after: Bytes) -> tuple[int, int, Bytes]:
    """Return the smallest part of a picture with all changes: top, left and pixels."""
    ys, xs = np.nonzero(before != after)
    top, left = (int(ys.min()), int(xs.min())) if len(ys) else (0, 0)
    bottom, right = (int(ys.max()), int(xs.max())) if len(ys) else (0, 0)
    return top, left, after[top : bottom + 1, left : right + 1]

"""Small PNG files: the most frequent 256 colours of a picture, as well packed as zlib can."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

MOST_COLORS = 256
FREQUENT = 160
SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {2: 3, 6: 4}
"""Bytes of a pixel by colour type: RGB, and RGB with alpha."""

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def write_small(data: bytes, path: Path) -> None:
    """Write a picture with a palette. Rare colours become the nearest frequent one."""
    [rows], palette = reduce_colors(read_png(data))
    path.write_bytes(_written(rows, palette))


def reduce_colors(*pictures: Bytes) -> tuple[list[Bytes], Bytes]:
    """Return the index of each pixel's colour in a palette for all pictures, and the palette."""
    codes = [pixels.astype(np.int32) @ (1 << 16, 1 << 8, 1) for pixels in pictures]
    found = [np.unique(one, return_counts=True) for one in codes]
    known, positions = np.unique(np.concatenate([one for one, _ in found]), return_inverse=True)
    counts = np.bincount(positions, np.concatenate([number for _, number in found]))
    colors = np.stack([known >> 16, known >> 8 & 255, known & 255], axis=1).astype(np.uint8)
    kept = _palette(colors, counts)
    nearest = _nearest(colors, kept)
    return [nearest[np.searchsorted(known, one)] for one in codes], kept


def _palette(colors: Bytes, counts: Any) -> Bytes:
    """Return the frequent colours, and of the rare ones those that are unlike all others."""
    ranked = colors[np.argsort(-counts)]
    kept, rest = ranked[:FREQUENT], ranked[FREQUENT:].astype(np.int32)
    distances = np.full(len(rest), np.inf)
    for color in kept:
        distances = np.minimum(distances, ((rest - color) ** 2).sum(axis=1))
    for _ in range(min(MOST_COLORS - len(kept), len(rest))):
        color = rest[distances.argmax()]
        kept = np.vstack([kept, color.astype(np.uint8)])
        distances = np.minimum(distances, ((rest - color) ** 2).sum(axis=1))
    return kept


def _nearest(colors: Bytes, kept: Bytes) -> Any:
    """Return the index of the nearest kept colour for each colour."""
    wide = colors.astype(np.int32)
    found = np.empty(len(colors), np.uint8)
    for start in range(0, len(colors), 1024):
        block = wide[start : start + 1024, None, :] - kept.astype(np.int32)[None, :, :]
        found[start : start + 1024] = (block**2).sum(axis=2).argmin(axis=1)
    return found


def _chunks(data: bytes) -> dict[bytes, bytes]:
    """Return the chunks by type; those of one type are joined."""
    chunks: dict[bytes, bytes] = {}
    at = len(SIGNATURE)
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        chunks[kind] = chunks.get(kind, b"") + data[at + 8 : at + 8 + length]
        at += length + 12
    return chunks


def read_png(data: bytes) -> Bytes:
    """Decode a picture of eight bits a channel, as Chromium writes it with `optimizeForSpeed`."""
    chunks = _chunks(data)
    width, height, _, kind = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    size = CHANNELS[kind]
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, -1)
    above = np.zeros(width * size, np.uint8)
    rows = []
    for line in lines:
        above = _unfiltered(int(line[0]), line[1:], above, size)
        rows.append(above)
    return np.stack(rows).reshape(height, width, size)[:, :, :3]


def _unfiltered(kind: int, line: Bytes, above: Bytes, size: int) -> Bytes:
    """Undo the filter of a line: none, or the difference to the left or to the line above."""
    if kind == 0:
        return line
    if kind == 1:
        return line.reshape(-1, size).cumsum(axis=0, dtype=np.uint8).reshape(-1)
    if kind == 2:
        return line + above
    raise ValueError(f"unexpected filter {kind}; take the picture with optimizeForSpeed")


def _written(rows: Bytes, palette: Bytes) -> bytes:
    parts = ((b"IHDR", header_of(rows)), (b"PLTE", palette.tobytes()), (b"IDAT", packed(rows)))
    return join_chunks(*parts)


def header_of(rows: Bytes) -> bytes:
    height, width = rows.shape
    return struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)


def packed(rows: Bytes) -> bytes:
    """Compress rows of indexes, without filters."""
    return zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows), 9)


def join_chunks(*parts: tuple[bytes, bytes]) -> bytes:
    """Return a whole file of chunks, each a type and a body."""
    return SIGNATURE + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in (*parts, (b"IEND", b""))
    )

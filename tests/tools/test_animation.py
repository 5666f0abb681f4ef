"""The animated picture of the README."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np

from tools.screenshots.animation import Frame, write_animation
from tools.screenshots.png import join_chunks

WIDTH, HEIGHT = 8, 4


def picture(*red: tuple[int, int]) -> bytes:
    """Return a white picture with red pixels, as Chromium writes one."""
    pixels = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
    for y, x in red:
        pixels[y, x] = (255, 0, 0)
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)
    return join_chunks((b"IHDR", header), (b"IDAT", zlib.compress(lines)))


def chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    found, at = [], 8
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        found.append((kind, data[at + 8 : at + 8 + length]))
        at += length + 12
    return found


def test_an_animation_has_the_changed_part_of_each_frame(tmp_path: Path) -> None:
    path = tmp_path / "film.png"
    pictures = [picture(), picture((1, 2), (2, 4)), picture((1, 2), (2, 4), (3, 7))]
    write_animation([Frame(one, 0.25) for one in pictures], path)
    found = chunks(path.read_bytes())
    controls = [struct.unpack(">IIIIIHHBB", body) for kind, body in found if kind == b"fcTL"]
    # number, width, height, left, top, delay in ms
    assert [one[:6] for one in controls] == [
        (0, WIDTH, HEIGHT, 0, 0, 250),
        (1, 3, 2, 2, 1, 250),
        (3, 1, 1, 7, 3, 250),
    ]
    palette = dict(found)[b"PLTE"]
    [_, second] = [body for kind, body in found if kind == b"fdAT"]
    number, pixel = struct.unpack(">I", second[:4])[0], zlib.decompress(second[4:])[1]
    assert number == 4
    assert palette[pixel * 3 : pixel * 3 + 3] == b"\xff\0\0"


def test_the_picture_of_the_readme_moves_and_is_small() -> None:
    path = Path(__file__).parents[2] / "docs" / "images" / "demo-crash.png"
    assert path.stat().st_size < 600_000
    assert sum(kind == b"fcTL" for kind, _ in chunks(path.read_bytes())) > 10

"""Texts cut at the limit of a platform that counts UTF-16 units."""

from __future__ import annotations

import pytest

from holdfast.channels.split import reach_utf16, split

FACE = "\N{GRINNING FACE}"


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


@pytest.mark.parametrize(
    "text",
    [
        FACE * 3000,
        f"{FACE} " * 3000,
        f"a{FACE}" * 3000,
        "a" * 4095 + FACE + "b",
        f"```python\n{FACE * 40}\n" + f"x = '{FACE}'\n" * 2000 + "```\nend",
    ],
)
def test_no_part_has_more_utf_16_units_than_the_limit(text: str) -> None:
    parts = split(text, 4096, reach_utf16)
    assert max(map(units, parts)) <= 4096
    assert sum(part.count(FACE) for part in parts) >= text.count(FACE)
    assert all(part.count("```") % 2 == 0 for part in parts)


def test_an_emoji_is_never_cut_in_two() -> None:
    assert split("a" * 4090 + FACE * 10, 4096, reach_utf16) == ["a" * 4090 + FACE, FACE * 9]


def test_a_text_that_just_fits_stays_whole() -> None:
    assert split(FACE * 2048, 4096, reach_utf16) == [FACE * 2048]

"""Tags in replies are found in any surrounding text, in linear time."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.routing.tags import Tag, tags, without

FOUND = [
    ("[@coder: fix it]", [("mate", ("coder",), "fix it")]),
    ("[@coder: fix arr[0]]", [("mate", ("coder",), "fix arr[0]")]),
    ("[@coder: fix a[b[0]][1] now] bye", [("mate", ("coder",), "fix a[b[0]][1] now")]),
    ("[@coder,writer: do]", [("mate", ("coder", "writer"), "do")]),
    ("[@coder, @Writer : do]", [("mate", ("coder", "Writer"), "do")]),
    ("[@coder: one][@coder: two]", [("mate", ("coder",), "one"), ("mate", ("coder",), "two")]),
    ("[@coder: two\nlines]", [("mate", ("coder",), "two\nlines")]),
    ("[#dev: hello]", [("room", ("dev",), "hello")]),
    ("[send_file: a b.png]", [("file", (), "a b.png")]),
    ("[@coder: ]", [("mate", ("coder",), "")]),
    ("[@: x]", [("mate", (), "x")]),
    ("[@coder: ask [@writer: x]]", [("mate", ("coder",), "ask [@writer: x]")]),
    ("[see [@coder: x]]", [("mate", ("coder",), "x")]),
    ("[open [@coder: x]", [("mate", ("coder",), "x")]),
    ("] ] [@coder: x]", [("mate", ("coder",), "x")]),
    ("```\n[@coder: x]\n```", []),
    ("~~~\n[@coder: x]\n~~~", []),
    ("a ~~~ [@coder: x] ~~~", [("mate", ("coder",), "x")]),
    ("````\n```\n[@coder: x]\n````", []),
    ("``` [@coder: x] ``` [@coder: y]", [("mate", ("coder",), "y")]),
    (
        "[@coder: run\n```\nprint(']'\n```\nplease]",
        [("mate", ("coder",), "run\n```\nprint(']'\n```\nplease")],
    ),
    ("[@coder: x] ```\n[@coder: y]", [("mate", ("coder",), "x")]),
    ("`[@coder: x]`", [("mate", ("coder",), "x")]),
    ("[@coder x]", []),
    ("[@coder\n: x]", []),
    ("[@coder: x", []),
    ("[ @coder: x]", []),
    ("[coder: x]", []),
    ("@coder: x", []),
    ("[send_files: x]", []),
    ("[@日本: はい🦀]", [("mate", ("日本",), "はい🦀")]),
]


@pytest.mark.parametrize(("text", "expected"), FOUND)
def test_tags_are_found(text: str, expected: list[tuple[str, tuple[str, ...], str]]) -> None:
    assert [(tag.kind, tag.names, tag.text) for tag in tags(text)] == expected


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("[@a: x]", ""),
        ("Hello [@a: x] there", "Hello there"),
        ("Hello\n[@a: x]\nBye", "Hello\nBye"),
        ("Hello\n\n[@a: x]\n\nBye", "Hello\n\n\nBye"),
        ("a [@a: x][@b: y] b", "a b"),
        ("a[@a: x]b", "ab"),
        ("  keep  this [@a: x]", "keep  this"),
        ("none", "none"),
    ],
)
def test_the_text_without_tags_has_no_gaps(text: str, rest: str) -> None:
    assert without(text, tags(text)) == rest


patient = settings(deadline=None)

PIECES = st.sampled_from(
    [
        "[",
        "]",
        "[@",
        "[#",
        "[@a:",
        "[#t: ",
        "[send_file:",
        ":",
        "```",
        "````",
        "~~~",
        "\n",
        "`",
        "a",
        ",",
        " ",
        "🦀",
        "é",
    ]
)
TEXTS = st.one_of(st.text(), st.lists(PIECES, max_size=60).map("".join))


@patient
@given(TEXTS)
def test_any_text_is_split_without_loss(text: str) -> None:
    found = tags(text)
    at = 0
    for tag in found:
        assert at <= tag.start < tag.end <= len(text)
        assert text[tag.start] == "["
        assert text[tag.end - 1] == "]"
        assert tag.text in text[tag.start : tag.end]
        at = tag.end
    assert without(text, ()) == text.strip()
    kept = "".join(without(text, found).split())
    edges = zip(
        [0, *(tag.end for tag in found)], [*(tag.start for tag in found), None], strict=True
    )
    outside = "".join(text[start:end] for start, end in edges)
    assert kept == "".join(outside.split())


CALM = st.text(st.characters(exclude_characters="[]`~", exclude_categories=["Cs"])).map(
    lambda text: f"x{text}x"
)


def nested(text: str, depth: int) -> str:
    return f"{'[' * depth}{text}{']' * depth}"


@patient
@given(before=CALM, body=CALM, after=CALM, depth=st.integers(0, 5), code=CALM)
def test_a_tag_is_found_inside_any_balanced_text(
    before: str, body: str, after: str, depth: int, code: str
) -> None:
    inner = nested(body, depth)
    text = f"{before}```\n[@no: {code}]\n```{nested(before, depth)}[@coder: {inner}]{after}"
    [tag] = tags(text)
    assert (tag.names, tag.text, text[tag.start : tag.end]) == (
        ("coder",),
        inner.strip(),
        f"[@coder: {inner}]",
    )


@patient
@given(CALM)
def test_a_text_without_brackets_has_no_tags(text: str) -> None:
    assert tags(text) == []


LONG = [
    "[@a: x]",
    "[",
    "[@",
    "]",
    "[@a: ",
    "[[]",
    "```[@a: x]```",
    "```",
    "x[@a:\n",
    "🦀[@é: ü] ",
    "[@a,b",
    "` ",
]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("piece", LONG)
def test_the_time_to_find_tags_is_linear_in_the_text(piece: str) -> None:
    times = [
        best_of_three(piece * (size // len(piece)) + "[@a: x]") for size in (100_000, 1_000_000)
    ]
    # Ten times the text; quadratic time would be a hundred times as long.
    assert times[1] < 30 * max(times[0], 0.001)


def best_of_three(text: str) -> float:
    took = []
    for _ in range(3):
        began_at = time.process_time()
        without(text, tags(text))
        took.append(time.process_time() - began_at)
    return min(took)


def test_a_tag_knows_its_position() -> None:
    assert tags("hi [@a: x]") == [Tag("mate", ("a",), "x", 3, 10)]

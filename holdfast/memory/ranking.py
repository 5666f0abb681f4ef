"""Two searches made one: reciprocal ranks, weighed by how like the vectors are and how many words are shared."""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.memory.knowledge import Hit

CANDIDATES = 50
"""How many of each search are fused."""

_K = 60
_WORD = re.compile(r"\w+")
_SAID_ANYWAY = """
a about after all also am an and any are as at be because been before being both but by can could did do does doing for
from get had has have having he her here hers him his how i if in into is it its just know me more most my no not of on
one or other our out over own she should so some such tell than that the their them then there these they this those to
too under until up us was we were what when where which while who whom whose why will with would you your yours
"""
_COMMON = frozenset(_SAID_ANYWAY.split())


def terms(text: str) -> set[str]:
    """The words that carry meaning, cut to what their inflections share."""
    words = {word.casefold() for word in _WORD.findall(text)}
    return {_stem(word) for word in words.difference(_COMMON)}


def search_words(text: str) -> list[str]:
    """The words to look for: those that carry meaning, or all where none does."""
    words = list(dict.fromkeys(_WORD.findall(text)))
    return [word for word in words if word.casefold() not in _COMMON] or words


def _stem(word: str) -> str:
    for ending in ("ings", "ing", "ied", "ies", "ers", "est", "ed", "es", "er", "ly", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def fused(
    query: str, by_meaning: Sequence[tuple[str, str, float]], by_words: Sequence[tuple[str, str]]
) -> list[Hit]:
    """Hits, best first, from lists that are best first: id, content and, by meaning, the likeness.

    Ranks alone would let one shared word of ten outweigh a good match by meaning, and the least bad of a bad lot
    score as high as a perfect one."""
    asked = terms(query)
    contents = {id_: content for id_, content, _ in by_meaning} | dict(by_words)
    doubts = dict.fromkeys(contents, 1.0)
    for rank, (id_, _, likeness) in enumerate(by_meaning):
        doubts[id_] *= 1 - max(0.0, min(likeness, 1.0)) * _weight(rank)
    for rank, (id_, content) in enumerate(by_words):
        covered = len(asked & terms(content)) / len(asked) if asked else 0
        doubts[id_] *= 1 - covered * _weight(rank)
    ranked = sorted(doubts.items(), key=lambda item: (item[1], item[0]))
    return [Hit(id=id_, content=contents[id_], score=1 - doubt) for id_, doubt in ranked]


def _weight(rank: int) -> float:
    return (_K + 1) / (_K + 1 + rank)

"""Fuse two searches into one ranking.

A reciprocal rank is weighted by the similarity of the vectors, or by the share of common words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.memory.knowledge import Hit

CANDIDATES = 50
"""Number of results of each search that are fused."""

_K = 60
_WORD = re.compile(r"\w+")
_STOP_WORD_LIST = """
a about after all also am an and any are as at be because been before being both but by can
could did do does doing for from get had has have having he her here hers him his how i if in
into is it its just know me more most my no not of on one or other our out over own she should
so some such tell than that the their them then there these they this those to too under until
up us was we were what when where which while who whom whose why will with would you your yours
"""
_STOP_WORDS = frozenset(_STOP_WORD_LIST.split())


def terms(text: str) -> set[str]:
    """Return the stems of the words that carry meaning."""
    words = {word.casefold() for word in _WORD.findall(text)}
    return {_stem(word) for word in words.difference(_STOP_WORDS)}


def search_words(text: str) -> list[str]:
    """Return the words to search for: those that carry meaning, or all if none does."""
    words = list(dict.fromkeys(_WORD.findall(text)))
    return [word for word in words if word.casefold() not in _STOP_WORDS] or words


def _stem(word: str) -> str:
    for ending in ("ings", "ing", "ied", "ies", "ers", "est", "ed", "es", "er", "ly", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def fuse(
    query: str, by_meaning: Sequence[tuple[str, str, float]], by_words: Sequence[tuple[str, str]]
) -> list[Hit]:
    """Fuse two lists of id and content, both best first; `by_meaning` also has a similarity.

    Ranks alone would let one common word of ten outweigh a good match by meaning, and would give
    the best of poor matches the score of a perfect one. Returns hits, best first."""
    asked = terms(query)
    contents = {id_: content for id_, content, _ in by_meaning} | dict(by_words)
    doubts = dict.fromkeys(contents, 1.0)
    for rank, (id_, _, similarity) in enumerate(by_meaning):
        doubts[id_] *= 1 - max(0.0, min(similarity, 1.0)) * _weight(rank)
    for rank, (id_, content) in enumerate(by_words):
        covered = len(asked & terms(content)) / len(asked) if asked else 0
        doubts[id_] *= 1 - covered * _weight(rank)
    ranked = sorted(doubts.items(), key=lambda item: (item[1], item[0]))
    return [Hit(id=id_, content=contents[id_], score=1 - doubt) for id_, doubt in ranked]


def _weight(rank: int) -> float:
    return (_K + 1) / (_K + 1 + rank)

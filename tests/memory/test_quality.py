"""The search finds answers in other words, and the fused search is as good as the better one."""

from __future__ import annotations

import pytest

from bench.quality import QUESTIONS, index_facts, measure_recall
from bench.questions import FACTS, PARAPHRASED
from holdfast.memory.index import KnowledgeIndex
from holdfast.memory.ranking import terms

MIN_RECALL = 0.7
"""Share of paraphrased questions that must be answered."""


def test_the_questions_share_no_word_of_meaning_with_their_answers() -> None:
    assert len(PARAPHRASED) >= 60
    assert len(set(FACTS)) == len(FACTS) >= 120
    shared = {question: terms(question) & terms(answer) for question, answer in PARAPHRASED}
    assert {question: words for question, words in shared.items() if words} == {}


@pytest.mark.parametrize("kind", QUESTIONS)
async def test_the_fused_search_finds_as_much_as_the_better_one_alone(
    knowledge: KnowledgeIndex, kind: str
) -> None:
    await index_facts(knowledge)
    found = await measure_recall(knowledge, QUESTIONS[kind])
    assert found.fused >= found.better_alone, found
    if found.vectors is not None:
        assert found.fused >= MIN_RECALL, found

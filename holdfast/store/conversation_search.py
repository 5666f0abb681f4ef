"""Search over conversations: their titles and lines, with snippets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.queue.store import Store
from holdfast.store.conversations import CURRENT, Conversation, Conversations
from holdfast.store.scoped import Scope, dialect_of

BATCH = 50
"""Conversations that one query searches."""
MOST_SEARCHED = 500
"""Conversations that one request searches."""
MOST_SNIPPETS = 3
MOST_WORDS = 8
LONGEST_SEARCHED = 50_000
"""Characters of a line that are searched, from its beginning."""
BEFORE, AFTER = 60, 140
"""Characters of a snippet around the first word."""

Marks = list[tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """A piece of a line around a match; marks are ranges of code points."""

    line_id: int
    message_id: str
    role: str
    agent: str
    created_at: datetime
    text: str
    marks: Marks


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A conversation whose title or lines contain all words."""

    conversation: Conversation
    title_marks: Marks = field(default_factory=list)
    snippets: Sequence[Snippet] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """Hits, latest conversation first. `next_before` is the id to go on from, None at the end."""

    hits: list[Hit]
    next_before: int | None


class ConversationSearch:
    """Searches the conversations of a store in batches, latest first."""

    def __init__(
        self, store: Store, *, batch: int = BATCH, most_searched: int = MOST_SEARCHED
    ) -> None:
        self._batch = batch
        self._most_searched = most_searched
        self._conversations = Conversations(store)
        self._dialect = dialect_of(store)

    async def search(
        self,
        scope: Scope,
        query: str,
        *,
        reader: str = "",
        limit: int = 20,
        before_id: int | None = None,
    ) -> SearchResult:
        """Return up to `limit` conversations that contain all words, in any case."""
        words, hits, searched = fold(query).split()[:MOST_WORDS], list[Hit](), 0
        while searched < self._most_searched:
            page = await self._conversations.recent(
                scope, reader=reader, limit=self._batch, before_id=before_id
            )
            found = await self._search(page, words, scope)
            for hit in found:
                hits.append(hit)
                if len(hits) == limit:
                    return SearchResult(hits=hits, next_before=hit.conversation.id)
            if len(page) < self._batch:
                return SearchResult(hits=hits, next_before=None)
            before_id, searched = page[-1].id, searched + len(page)
        return SearchResult(hits=hits, next_before=before_id)

    async def _search(
        self, page: Sequence[Conversation], words: Sequence[str], scope: Scope
    ) -> list[Hit]:
        names = [one.conversation for one in page]
        snippets = await self._snippets(names, words, scope) if page and words else {}
        hits = []
        for one in page:
            # The title quotes the first message, whose agent this caller may not be allowed to see.
            title_marks = find_marks(one.title, words) if scope.agents is None else []
            own = snippets.get(one.conversation, [])
            if own or title_marks:
                hits.append(Hit(conversation=one, title_marks=title_marks, snippets=own))
        return hits

    async def _snippets(
        self, names: Sequence[str], words: Sequence[str], scope: Scope
    ) -> dict[str, list[Snippet]]:
        dialect = self._dialect
        agents = scope.agents
        if agents is None:
            agents = tuple(await self._conversations.known_agents())
        marks = [dialect.mark.format(f"word{nth}") for nth in range(len(words))]
        contains = " and ".join(f"content {dialect.like} {mark} escape '!'" for mark in marks)
        current = CURRENT.format(f"{dialect.schema}message_version")
        rows = await dialect.rows(
            "select conversation, id, message_id, role, agent_id, created_at, content from"
            " (select conversation, id, message_id, role, agent_id, created_at,"
            f" substr(content, 1, {LONGEST_SEARCHED}) as content,"
            " row_number() over (partition by conversation order by id desc) as nth"
            f" from {dialect.schema}agent_message as line"
            f" where agent_id in (select value from {dialect.each.format('agents')})"
            f" and conversation in (select value from {dialect.each.format('names')})"
            f" and {contains} and {current}) as hit where nth <= {MOST_SNIPPETS}"
            " order by id desc",
            {
                "agents": dialect.array(list(agents)),
                "names": dialect.array(list(names)),
                **{f"word{nth}": pattern_of(word) for nth, word in enumerate(words)},
            },
        )
        found: dict[str, list[Snippet]] = {}
        for row in rows:
            if (snippet := self._snippet(row[1:], words)) is not None:
                found.setdefault(row[0], []).append(snippet)
        return found

    def _snippet(self, row: Sequence[Any], words: Sequence[str]) -> Snippet | None:
        line_id, message_id, role, agent, created_at, content = row
        cut = cut_snippet(content, words)
        if cut is None:
            return None
        return Snippet(
            line_id=line_id,
            message_id=message_id,
            role=role,
            agent=agent,
            created_at=self._dialect.to_datetime(created_at),
            text=cut[0],
            marks=cut[1],
        )


def fold(text: str) -> str:
    """Fold the case of a text for comparisons; every character keeps its position."""
    folded = text.casefold()
    if len(folded) == len(text):
        return folded
    # A character that folds to two, such as the German sharp s, stays as it is.
    return "".join(low if len(low := sign.casefold()) == 1 else sign for sign in text)


def pattern_of(word: str) -> str:
    """Return a LIKE pattern that matches every text with a word, and perhaps other texts.

    Databases fold letters beyond ASCII differently, so the pattern has wildcards in their place."""
    signs = [f"!{sign}" if sign in "%_!" else sign if sign.isascii() else "%" for sign in word]
    return f"%{''.join(signs)}%"


def find_marks(text: str, words: Sequence[str]) -> Marks:
    """Return the ranges of all words in a text; empty if it does not contain all of them."""
    folded, marks = fold(text), list[tuple[int, int]]()
    for word in words:
        at = folded.find(word)
        if at < 0:
            return []
        while at >= 0:
            marks.append((at, at + len(word)))
            at = folded.find(word, at + len(word))
    return _merge(sorted(marks))


def _merge(marks: Marks) -> Marks:
    merged: Marks = []
    for start, end in marks:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def cut_snippet(text: str, words: Sequence[str]) -> tuple[str, Marks] | None:
    """Return the piece of a text around its first word, on one line, with all marks in it.

    None if the text does not contain all words."""
    folded = fold(text)
    positions = [folded.find(word) for word in words]
    if not positions or min(positions) < 0:
        return None
    start = max(min(positions) - BEFORE, 0)
    end = min(min(positions) + AFTER, len(text))
    piece = "".join(" " if sign.isspace() else sign for sign in text[start:end])
    shown = f"{'…' if start else ''}{piece}{'…' if end < len(text) else ''}"
    marks = [mark for word in words for mark in find_marks(shown, [word])]
    return shown, _merge(sorted(marks))

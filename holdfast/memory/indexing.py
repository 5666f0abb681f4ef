"""Prepare documents for the index: split them into pieces and embed those that changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.memory.embedder import Embedder, model_key
from holdfast.memory.knowledge import KnowledgeDocument

MAX_CHARACTERS = 1200
"""Length of the longest piece; a vector cannot represent much more."""
OVERLAP = 150


@dataclass(frozen=True, slots=True)
class IndexedDocument:
    """State of a document in the index; a deleted one is a tombstone."""

    hash: str
    model: str
    version: int
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a document and its vector."""

    content: str
    embedding: bytes


@dataclass(frozen=True, slots=True)
class Entry:
    """A document to write.

    Without pieces, its content is indexed already and only its version moves."""

    document: KnowledgeDocument
    pieces: tuple[Piece, ...] | None


def build_entries(
    documents: Sequence[KnowledgeDocument],
    indexed: Mapping[str, IndexedDocument],
    embedder: Embedder,
) -> list[Entry]:
    """Return an entry for each document that is not outdated.

    Runs in a thread, because embedding is slow."""
    newest = {document.id: document for document in documents}.values()
    wanted = [document for document in newest if not _is_older(document, indexed.get(document.id))]
    changed = [
        document
        for document in wanted
        if not is_same(document, indexed.get(document.id), model_key(embedder))
    ]
    split = {document.id: split_text(document.content) for document in changed}
    texts = [text for pieces in split.values() for text in pieces]
    vectors = iter(_check_vectors(embedder.embed(texts), len(texts), embedder))
    embedded = {
        id_: tuple(Piece(text, next(vectors)) for text in pieces) for id_, pieces in split.items()
    }
    return [Entry(document, embedded.get(document.id)) for document in wanted]


def split_text(text: str) -> list[str]:
    """Split a text into pieces of at most MAX_CHARACTERS, at a space if possible.

    Each piece repeats the end of the one before, so that no sentence is lost at a cut."""
    pieces = []
    start = 0
    while len(text) - start > MAX_CHARACTERS:
        cut = text.rfind(" ", start + MAX_CHARACTERS // 2, start + MAX_CHARACTERS)
        end = cut if cut > 0 else start + MAX_CHARACTERS
        pieces.append(text[start:end])
        start = max(end - OVERLAP, start + 1)
    pieces.append(text[start:])
    return pieces


def _check_vectors(vectors: Sequence[bytes], count: int, embedder: Embedder) -> Sequence[bytes]:
    """Refuse vectors that could not be compared later."""
    if len(vectors) != count or any(len(vector) != 4 * embedder.dimensions for vector in vectors):
        raise ValueError(
            f"the model {embedder.model} must return one vector of {embedder.dimensions} numbers"
            " for each text"
        )
    return vectors


def _is_older(document: KnowledgeDocument, indexed: IndexedDocument | None) -> bool:
    return indexed is not None and document.version < indexed.version


def is_same(document: KnowledgeDocument, indexed: IndexedDocument | None, model: str) -> bool:
    """Return whether this model has indexed this content already."""
    return (
        indexed is not None
        and not indexed.deleted
        and (indexed.hash, indexed.model) == (document.hash, model)
    )

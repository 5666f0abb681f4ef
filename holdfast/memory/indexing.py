"""From documents to what an index writes: only what changed is embedded, and in pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.memory.chunk import chunks
from holdfast.memory.embedder import Embedder, model_key
from holdfast.memory.knowledge import KnowledgeDocument


@dataclass(frozen=True, slots=True)
class IndexedDocument:
    """What an index has of a document."""

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
    """A document to be written; without pieces only its version moves, for its content is there already."""

    document: KnowledgeDocument
    pieces: tuple[Piece, ...] | None


def entries(
    documents: Sequence[KnowledgeDocument], known: Mapping[str, IndexedDocument], embedder: Embedder
) -> list[Entry]:
    """What has to be written of these. Runs in a thread: embedding takes its time."""
    newest = {document.id: document for document in documents}.values()
    wanted = [document for document in newest if not _is_older(document, known.get(document.id))]
    changed = [
        document
        for document in wanted
        if not is_same(document, known.get(document.id), model_key(embedder))
    ]
    split = {document.id: chunks(document.content) for document in changed}
    texts = [text for pieces in split.values() for text in pieces]
    vectors = iter(_checked(embedder.embed(texts), len(texts), embedder))
    made = {
        id_: tuple(Piece(text, next(vectors)) for text in pieces) for id_, pieces in split.items()
    }
    return [Entry(document, made.get(document.id)) for document in wanted]


def _checked(vectors: Sequence[bytes], count: int, embedder: Embedder) -> Sequence[bytes]:
    """What cannot be compared later is refused now."""
    if len(vectors) != count or any(len(vector) != 4 * embedder.dimensions for vector in vectors):
        raise ValueError(
            f"the model {embedder.model} has to make one vector of {embedder.dimensions} numbers per text"
        )
    return vectors


def _is_older(document: KnowledgeDocument, known: IndexedDocument | None) -> bool:
    return known is not None and document.version < known.version


def is_same(document: KnowledgeDocument, known: IndexedDocument | None, model: str) -> bool:
    """Whether the index has this content already, by this model."""
    return (
        known is not None
        and not known.deleted
        and (known.hash, known.model) == (document.hash, model)
    )

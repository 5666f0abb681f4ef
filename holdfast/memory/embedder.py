"""Embedders turn texts into vectors: the protocol, and a local model that ships its weights."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from holdfast.memory.knowledge import IndexUnavailable
from holdfast.settings.extras import is_missing, needs


class Embedder(Protocol):
    """Turns texts into vectors of length 1; those of similar texts point in similar directions."""

    model: str
    """Recorded with every vector; a change of model indexes all documents anew."""
    dimensions: int

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return one vector per text, as little-endian float32.

        Called in a thread. May raise IndexUnavailable."""


def model_key(embedder: Embedder) -> str:
    """Return the mark of documents in the index; one with another mark must be embedded anew."""
    return f"{embedder.model}/{embedder.dimensions}"


class WordsOnly:
    """Used if the engine cannot compare vectors. Once it can, that is a change of model."""

    model = "words"
    dimensions = 0

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        return [b""] * len(texts)


class LocalEmbedder:
    """WordLlama: 256 numbers per text from a table of word vectors; 20 µs a text, no download."""

    model = "wordllama-l2-supercat-256"
    dimensions = 256

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: Any = None

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        if not texts:
            return []
        vectors = self._model().embed(list(texts), norm=False)
        lengths = (vectors * vectors).sum(axis=1, keepdims=True) ** 0.5
        # A text without a known word has a vector of zeros, which is far from everything.
        lengths[lengths == 0] = 1
        return [vector.tobytes() for vector in (vectors / lengths).astype("<f4")]

    def _model(self) -> Any:
        """Load the model at its first use; that takes a second and 60 MB."""
        with self._lock:
            if self._loaded is None:
                if is_missing("memory"):
                    raise IndexUnavailable(needs("memory", "memory"))
                import wordllama  # type: ignore[import-untyped]

                folder = Path(wordllama.__file__).parent
                self._loaded = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
            return self._loaded

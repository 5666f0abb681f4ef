"""Long texts in pieces that a vector can stand for."""

from __future__ import annotations

LONGEST = 1200
OVERLAP = 150


def chunks(text: str) -> list[str]:
    """Pieces of at most LONGEST characters, cut at a blank if there is one, each beginning a little before the cut."""
    pieces = []
    start = 0
    while len(text) - start > LONGEST:
        cut = text.rfind(" ", start + LONGEST // 2, start + LONGEST)
        end = cut if cut > 0 else start + LONGEST
        pieces.append(text[start:end])
        start = max(end - OVERLAP, start + 1)
    pieces.append(text[start:])
    return pieces

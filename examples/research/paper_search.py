"""The papers that the team reads, and the tool that finds them."""

from __future__ import annotations

from pathlib import Path

PAPERS = Path("papers")


def search(words: str) -> list[str]:
    """Return the papers that have most of the words, each with its name."""
    wanted = {word.strip(".,?!").lower() for word in words.split() if len(word) > 3}
    texts = {path.name: path.read_text() for path in sorted(PAPERS.glob("*.md"))}
    scores = {name: sum(word in text.lower() for word in wanted) for name, text in texts.items()}
    best = max(scores.values(), default=0)
    return [f"{name}: {texts[name]}" for name, score in scores.items() if 0 < score == best]

"""Scripts in a folder of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.commands import Scripts


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripts]:
    folder = tmp_path / "scripts"
    folder.mkdir()
    made = Scripts(folder)
    monkeypatch.setenv("MARK", made.mark)
    yield made
    assert made.until(lambda left: not left), f"left running: {made.left()}"

"""A fixture for shell scripts, which fails if they leave processes behind."""

from __future__ import annotations

import os
import signal
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
    is_clean, left = made.until(lambda left: not left), made.left()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert is_clean, f"left running: {left}"

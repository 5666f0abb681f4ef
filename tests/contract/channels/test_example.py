"""The example of a channel passes the contract, installed as its pyproject.toml says."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "channel"
sys.path.append(str(EXAMPLE))

from test_folder_channel import TestFolder  # noqa: E402

__all__ = ["TestFolder"]


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the metadata that an installation of the example would leave."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    metadata = tmp_path / "site" / f"{project['name'].replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Name: {project['name']}\nVersion: 1.0\n")
    lines = [
        line
        for group, points in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


def test_the_example_has_under_80_lines() -> None:
    assert len((EXAMPLE / "folder_channel.py").read_text().splitlines()) < 80

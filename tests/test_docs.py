"""Snippets in the documentation run as they are written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

ROOT = Path(__file__).parent.parent
DATABASE_PAGE = ROOT / "docs" / "database.md"


def test_the_examples_of_the_database_page_run(postgres_url: str) -> None:
    blocks = re.findall(r"```sql\n(.*?)```", DATABASE_PAGE.read_text(), re.DOTALL)
    assert len(blocks) > 8
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for block in blocks:
            connection.execute(block.encode())
        settled = connection.execute(
            "select count(*) from agent.event_hist where outcome = 'completed'"
        ).fetchone()
    assert settled is not None
    assert settled[0] >= 3, "the examples settled what they claimed"


def test_the_database_page_names_every_function_that_the_store_calls() -> None:
    store = "".join(module.read_text() for module in (ROOT / "holdfast" / "store").glob("**/*.py"))
    page = DATABASE_PAGE.read_text()
    called = set(re.findall(r"agent\.(\w+)\(", store))
    assert len(called) > 20
    assert sorted(name for name in called if f"agent.{name}(" not in page) == []


@pytest.fixture(scope="module")
def snippets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write every Python file of README and how-tos to a folder; its first line is its name."""
    folder = tmp_path_factory.mktemp("snippets")
    for page in [ROOT / "README.md", *sorted((ROOT / "docs" / "howto").glob("*.md"))]:
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
            named = re.match(r"# (\w+\.py)\n", block)
            assert named, f"{page.name}: a Python block begins with the name of its file:\n{block}"
            (folder / named[1]).write_text(block)
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    return folder


def test_the_test_files_of_the_how_tos_pass(snippets: Path) -> None:
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(run, cwd=snippets, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_snippets_of_the_how_tos_have_strict_types(snippets: Path) -> None:
    # Not the cache of `make check`: other options would invalidate it.
    cache = ["--cache-dir", str(ROOT / ".mypy_cache" / "snippets")]
    run = [sys.executable, "-m", "mypy", "--strict", *cache, "."]
    done = subprocess.run(run, cwd=snippets, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

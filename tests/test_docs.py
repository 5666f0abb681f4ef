"""What the docs show works as shown."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg

ROOT = Path(__file__).parent.parent
DATABASE_PAGE = ROOT / "docs" / "database.md"


def test_the_examples_of_the_database_page_run(postgres_url: str) -> None:
    blocks = re.findall(r"```sql\n(.*?)```", DATABASE_PAGE.read_text(), re.DOTALL)
    assert len(blocks) > 8
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for block in blocks:
            connection.execute(block.encode())
        settled = connection.execute("select count(*) from agent.event_hist where outcome = 'completed'").fetchone()
    assert settled is not None
    assert settled[0] >= 3, "the examples settled what they claimed"


def test_the_database_page_names_every_function_that_the_store_calls() -> None:
    store = "".join(module.read_text() for module in (ROOT / "holdfast" / "store").glob("**/*.py"))
    page = DATABASE_PAGE.read_text()
    called = set(re.findall(r"agent\.(\w+)\(", store))
    assert len(called) > 20
    assert sorted(name for name in called if f"agent.{name}(" not in page) == []

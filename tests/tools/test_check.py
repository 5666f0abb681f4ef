"""The rules of the house notice what they are there for."""

from pathlib import Path

import pytest

from tools import check


@pytest.fixture
def house(tmp_path: Path) -> Path:
    for folder in ("holdfast/store/sqlite", "docs"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.write_text(text)


def test_a_module_of_401_lines_of_code_is_too_long(house: Path) -> None:
    prose = '"""Say why."""\n\n# A reason.\n' * 50
    write(house / "holdfast/long.py", prose + "x = 1\n" * 401)
    write(house / "holdfast/short.py", prose + "x = 1\n" * 400)
    [fault] = check.sizes(house)
    assert fault.startswith("holdfast/long.py: 401 lines of code")


def test_a_function_of_41_lines_is_too_long(house: Path) -> None:
    write(
        house / "holdfast/a.py",
        "async def short():\n" + "    x = 1\n" * 39 + "\ndef long():\n" + "    x = 1\n" * 40,
    )
    [fault] = check.sizes(house)
    assert "long has 41 lines" in fault


def test_a_query_is_defined_once_and_used(house: Path) -> None:
    write(
        house / "holdfast/store/sqlite/a.sql",
        "-- name: good\nselect 1;\n-- name: idle\nselect 2;\n",
    )
    write(
        house / "holdfast/store/sqlite/b.sql",
        "-- name: twice\nselect 1;\n-- name: twice\nselect 2;\n",
    )
    write(
        house / "holdfast/store/a.py",
        'run(queries["good"]); run("twice"); run(queries["unknown"])\n',
    )
    assert list(check.queries(house)) == [
        "query idle is defined and never used",
        "query twice is defined 2 times",
        "query unknown is used and not defined",
    ]


def test_numbers_of_migration_scripts_are_taken_once_and_leave_no_gap(house: Path) -> None:
    for folder, names in {
        "incremental": ["000-a", "001-b", "001-c"],
        "sqlite": ["000-a", "002-b"],
    }.items():
        (house / "holdfast/migrations" / folder).mkdir(parents=True)
        for name in names:
            write(house / f"holdfast/migrations/{folder}/{name}.sql", "select 1;\n")
    assert list(check.scripts(house)) == [
        "migrations/incremental/001-c.sql: the number must be 002",
        "migrations/sqlite/002-b.sql: the number must be 001",
    ]


def test_documents_refer_to_what_exists(house: Path) -> None:
    write(house / "holdfast/store/a.py", "class Store:\n    def put(self): ...\nLIMIT = 3\n")
    write(house / "holdfast/store/sqlite/a.sql", "-- name: claim\nselect 1;\n")
    good = "`holdfast/store/a.py::Store.put` `store/a.py::LIMIT` `store/sqlite/a.sql::claim` [a](page.md)"
    bad = "`store/a.py::Store.gone` `store/b.py::Store` `store/sqlite/a.sql::gone` [b](missing.md)"
    write(house / "docs/page.md", f"{good}\n{bad}\n[far](https://example.org/x)\n")
    assert list(check.references(house)) == [
        "docs/page.md: store/a.py::Store.gone does not exist",
        "docs/page.md: store/b.py::Store does not exist",
        "docs/page.md: store/sqlite/a.sql::gone does not exist",
        "docs/page.md: the link to missing.md leads nowhere",
    ]

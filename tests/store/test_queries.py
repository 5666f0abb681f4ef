"""Statements are loaded by their names, which are unique."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.store.sqlite.connection import load, parse_statements


def test_a_section_is_a_statement_and_the_text_before_is_a_comment() -> None:
    text = "-- about this file\n\n-- name: one\n-- why\nselect 1;\n\n-- name: two\nselect 2;\n"
    assert parse_statements(text) == [("one", "-- why\nselect 1;"), ("two", "select 2;")]


def test_a_name_given_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("-- name: one\nselect 1;\n")
    (tmp_path / "b.sql").write_text("-- name: one\nselect 2;\n")
    with pytest.raises(HoldfastError, match=r"one is defined twice, again in b\.sql"):
        load(tmp_path)

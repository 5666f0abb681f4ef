"""Where a setting comes from, and which place wins."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.settings import load


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory and an environment without settings, both as before afterwards."""
    monkeypatch.chdir(tmp_path)
    before = dict(os.environ)
    for name in before:
        if name.startswith("HOLDFAST_"):
            del os.environ[name]
    yield tmp_path
    os.environ.clear()
    os.environ.update(before)


def test_the_default_is_a_file_below_the_home_folder() -> None:
    settings = load()
    assert settings.home == Path.home() / ".holdfast"
    assert settings.database == f"sqlite:///{Path.home()}/.holdfast/holdfast.db"


def test_a_relative_home_is_made_absolute(folder: Path) -> None:
    assert load(home=Path("here")).database == f"sqlite:///{folder}/here/holdfast.db"


def test_the_direct_database_is_the_same_unless_it_is_given() -> None:
    assert load(database="postgresql://pooler/d").database_direct == "postgresql://pooler/d"
    os.environ["HOLDFAST_DATABASE_DIRECT"] = "postgresql://server/d"
    assert load(database="postgresql://pooler/d").database_direct == "postgresql://server/d"


def test_the_command_line_wins_over_the_environment_over_dot_env_over_the_file(folder: Path) -> None:
    (folder / "holdfast.toml").write_text('database = "postgresql://file/d"\n')
    assert load().database == "postgresql://file/d"
    (folder / ".env").write_text("HOLDFAST_DATABASE=postgresql://dotenv/d\n")
    assert load().database == "postgresql://dotenv/d"
    os.environ["HOLDFAST_DATABASE"] = "postgresql://environment/d"
    assert load().database == "postgresql://environment/d"
    assert load(database="postgresql://given/d").database == "postgresql://given/d"
    assert load(database=None).database == "postgresql://environment/d"


def test_dot_env_reaches_the_environment_that_libraries_read(folder: Path) -> None:
    (folder / ".env").write_text("PGPASSFILE=/somewhere\n")
    load()
    assert os.environ["PGPASSFILE"] == "/somewhere"


def test_an_empty_variable_is_an_unset_one() -> None:
    os.environ["HOLDFAST_DATABASE"] = ""
    assert load().database.startswith("sqlite:///")


def test_a_named_file_must_exist() -> None:
    with pytest.raises(HoldfastError, match=r"no configuration file other\.toml"):
        load(config=Path("other.toml"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [("databse = 'x'", "databse"), ("home = 3", "home"), ("home = ", r"holdfast\.toml cannot be read")],
)
def test_a_mistake_in_the_file_is_one_line_that_names_it(folder: Path, text: str, problem: str) -> None:
    (folder / "holdfast.toml").write_text(text)
    with pytest.raises(HoldfastError, match=problem) as refusal:
        load()
    assert "\n" not in str(refusal.value)


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(load(database="postgresql://u:secret@h/d"))

"""Sources of settings, which one wins, and errors that name file and line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from holdfast.errors import HoldfastError
from holdfast.settings import (
    Settings,
    descriptions,
    duration,
    duration_text,
    load,
    locate_setting,
    value_text,
)
from holdfast.settings.sample import sections
from holdfast.settings.table import tables_in

ROOT = Path(__file__).parents[1]


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


def test_the_command_line_wins_over_the_environment_over_dot_env_over_the_file(
    folder: Path,
) -> None:
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
    with pytest.raises(HoldfastError, match=r"no settings file other\.toml"):
        load(config=Path("other.toml"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("databse = 'x'", "databse"),
        ("home = 3", "home"),
        ("home = ", r"holdfast\.toml cannot be read"),
    ],
)
def test_a_mistake_in_the_file_is_one_line_that_names_it(
    folder: Path, text: str, problem: str
) -> None:
    (folder / "holdfast.toml").write_text(text)
    with pytest.raises(HoldfastError, match=problem) as refusal:
        load()
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("wrokers = 3", "holdfast.toml:1: there is no setting wrokers; did you mean workers?"),
        (
            "zzz = 3",
            "there is no setting zzz; `holdfast init` writes a file with all settings",
        ),
        (
            "workers = 0",
            "holdfast.toml:1: workers: input should be greater than or equal to 1 (it is 0)",
        ),
        ("[workers]", "holdfast.toml:1: workers: input should be a valid integer (it is {})"),
        (
            "lease = 'soon'",
            'holdfast.toml:1: lease: a duration is a text like "30s", "10 min" or "24h",'
            " or a number of seconds (it is 'soon')",
        ),
        (
            "lease = '10ms'",
            "lease: input should be greater than or equal to 1 second (it is 0.01s)",
        ),
        (
            "log_level = 'loud'",
            "log_level: input should be 'debug', 'info', 'warning' or 'error' (it is 'loud')",
        ),
    ],
)
def test_a_mistake_names_file_line_key_and_remedy(folder: Path, text: str, problem: str) -> None:
    (folder / "holdfast.toml").write_text(text)
    with pytest.raises(HoldfastError) as refusal:
        load()
    assert problem in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "# a comment\n\n[providers.local]\nkind = 'openai'\nbase_ulr = 'x'\n",
            "holdfast.toml:5: there is no setting providers.local.base_ulr; did you mean base_url?",
        ),
        (
            "workers = 3\nproviders.local.base_url = 3\n",
            "holdfast.toml:2: providers.local.base_url: input should be a valid string (it is 3)",
        ),
        (
            "[providers]\nlocal = [\n  'a',\n  'b',\n]\n",
            "holdfast.toml:2: providers.local: a table is needed, such as [providers.local]",
        ),
        (
            '[providers.a]\nkind = """\n[providers.b]\nkind = 1\n"""\n'
            "\n[providers.b]\nkind = 2 # two\n",
            "holdfast.toml:8: providers.b.kind: input should be a valid string (it is 2)",
        ),
    ],
)
def test_a_mistake_in_a_table_names_its_line(folder: Path, text: str, problem: str) -> None:
    (folder / "holdfast.toml").write_text(text)
    with pytest.raises(HoldfastError) as refusal:
        load()
    assert str(refusal.value) == problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("agents = []", "agents: a table is needed, such as [agents.coder] (it is [])"),
        ("[agents]\ncoder = []", "agents.coder: a table is needed, such as [agents.coder]"),
        ("channels = []", "channels: a table is needed, such as [channels] (it is [])"),
        (
            "[channels]\nslack = 1",
            "channels.slack: a list is needed, such as [[channels.slack]] (it is 1)",
        ),
        (
            "[teams.dev]\nagents = 'a'\nleader = 'a'",
            "teams.dev.agents: a list is needed (it is 'a')",
        ),
        ("[agents.a]", "agents.a.kind: this key is required"),
        ("home = []", "home: a path is needed (it is [])"),
    ],
)
def test_a_value_of_the_wrong_shape_is_one_line_in_words_of_the_file(
    folder: Path, text: str, problem: str
) -> None:
    (folder / "holdfast.toml").write_text(text)
    with pytest.raises(HoldfastError) as refusal:
        load()
    assert str(refusal.value).endswith(f": {problem}")


def test_a_table_in_the_environment_is_json() -> None:
    os.environ["HOLDFAST_PROVIDERS"] = '{"local": {"kind": "openai"}}'
    assert load().providers["local"].kind == "openai"
    os.environ["HOLDFAST_PROVIDERS"] = '{"local": {"kind": 3}}'
    with pytest.raises(HoldfastError, match=r"^HOLDFAST_PROVIDERS: input should be a valid string"):
        load()
    os.environ["HOLDFAST_PROVIDERS"] = "local"
    with pytest.raises(HoldfastError, match=r"providers.*as JSON"):
        load()


def test_a_mistake_found_after_loading_can_name_its_line(folder: Path) -> None:
    (folder / "holdfast.toml").write_text("\n[providers.local]\nkind = 'unheard'\n")
    assert (
        locate_setting(load(), "providers", "local", "kind")
        == "holdfast.toml:3: providers.local.kind"
    )
    assert (
        locate_setting(load(), "providers", "local", "base_url")
        == "holdfast.toml:2: providers.local.base_url"
    )
    assert locate_setting(Settings(), "providers", "local") == "providers.local"


def test_a_mistake_elsewhere_names_the_variable_or_the_option() -> None:
    os.environ["HOLDFAST_API_PORT"] = "many"
    with pytest.raises(HoldfastError, match=r"^HOLDFAST_API_PORT: input should be a valid integer"):
        load()
    with pytest.raises(
        HoldfastError, match=r"^--port: input should be less than or equal to 65535"
    ):
        load(api_port=65_536)


def test_a_mistake_in_what_may_hold_a_password_is_not_repeated(folder: Path) -> None:
    (folder / "holdfast.toml").write_text("database = ['postgresql://u:secret@h/d']")
    with pytest.raises(HoldfastError, match="database") as refusal:
        load()
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("'30s'", timedelta(seconds=30)),
        ("'10 min'", timedelta(minutes=10)),
        ("'24h'", timedelta(hours=24)),
        ("' 1H 30 Minutes '", timedelta(hours=1, minutes=30)),
        ("'7 days'", timedelta(days=7)),
        ("'1500ms'", timedelta(seconds=1.5)),
        ("90", timedelta(seconds=90)),
        ("1.5", timedelta(seconds=1.5)),
        ("'90'", timedelta(seconds=90)),
    ],
)
def test_a_duration_is_a_text_with_units_or_a_number_of_seconds(
    folder: Path, text: str, meant: timedelta
) -> None:
    (folder / "holdfast.toml").write_text(f"lease = {text}")
    assert load().lease == meant
    (folder / "holdfast.toml").unlink()
    os.environ["HOLDFAST_LEASE"] = text.strip("'")
    assert load().lease == meant


@pytest.mark.parametrize(
    "value", ["", "s", "1h30", "-3s", "3 parsecs", "nan", "1e9", True, [], "9" * 30, "PT3S"]
)
def test_invalid_durations_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="a duration is a text like"):
        duration(value)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=10_000)))
def test_the_text_of_a_duration_means_the_same_duration(value: timedelta) -> None:
    assert duration(duration_text(value)) == value


def test_history_is_kept_for_a_day_on_sqlite_for_ever_on_postgresql_and_as_set(
    folder: Path,
) -> None:
    assert load().keep_history == timedelta(hours=24)
    assert load(database="postgresql://h/d").keep_history is None
    (folder / "holdfast.toml").write_text("keep_history = 'forever'")
    assert load().keep_history is None
    (folder / "holdfast.toml").write_text("keep_history = '2 days'")
    assert load(database="postgresql://h/d").keep_history == timedelta(days=2)


def test_the_page_of_settings_says_what_the_settings_say() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text().splitlines()
    rows = _rows(Settings, descriptions())
    for section in sections():
        assert f"### `{section.header}`" in page
        assert section.text in page
        rows += _rows(section.table, section.fields)
    assert [row for row in rows if row not in page] == []
    assert sum(line.startswith("| `") for line in page) == len(rows)


def _rows(model: type[BaseModel], texts: dict[str, str]) -> list[str]:
    fields = {name: model.model_fields[name] for name in texts}
    values = {
        name: f"`{value_text(name, model)}`{' (example)' if field.examples else ''}"
        for name, field in fields.items()
        if not tables_in(field)
    }
    return [f"| `{name}` | {value} | {texts[name]} |" for name, value in values.items()]


def test_settings_do_not_import_what_a_plugin_would() -> None:
    code = (
        "import sys, holdfast.settings;"
        "print([name for name in sys.modules if name.startswith('logfire')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout == "[]\n"


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(load(database="postgresql://u:secret@h/d"))

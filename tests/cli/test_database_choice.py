"""The choice of the database; the ready line names it and its source, without a password."""

from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.cli.shell import Shell

only_postgres = pytest.mark.parametrize("url", ["postgres"], indirect=True)


def ready(shell: Shell, *arguments: str, **variables: str) -> str:
    """Return the ready line of `work`."""
    with shell.running("work", *arguments, **variables) as work:
        work.signal()
        assert work.end() == 0
        return work.ready.partition("database by ")[2].strip()


@pytest.fixture
def plain(alone: Shell) -> Shell:
    """A shell in which nothing names a database."""
    alone.environment.pop("HOLDFAST_DATABASE", None)
    return alone


def test_the_default_is_a_file_in_the_home_folder(plain: Shell) -> None:
    assert ready(plain) == f"default: sqlite:///{plain.folder}/.holdfast/holdfast.db"


def test_a_database_url_counts_where_nothing_of_ours_does(plain: Shell) -> None:
    url = "sqlite:///common.db"
    assert ready(plain, DATABASE_URL=url) == "DATABASE_URL: sqlite:///common.db"
    assert (
        ready(plain, DATABASE_URL=url, HOLDFAST_DATABASE="sqlite:///own.db")
        == "HOLDFAST_DATABASE: sqlite:///own.db"
    )
    plain.write("holdfast.toml", 'database = "sqlite:///written.db"')
    assert ready(plain, DATABASE_URL=url) == "holdfast.toml: sqlite:///written.db"
    assert (
        ready(plain, "--database", "sqlite:///told.db", DATABASE_URL=url)
        == "--database: sqlite:///told.db"
    )


def test_a_database_url_of_another_kind_is_refused_in_one_line(plain: Shell) -> None:
    refusal = plain.refused("work", DATABASE_URL="mysql://ann:hunter2@there/db")
    assert (
        refusal
        == "holdfast: DATABASE_URL is neither postgresql:// nor sqlite:///: set HOLDFAST_DATABASE"
    )


def test_a_user_of_libpq_alone_chooses_no_database(plain: Shell) -> None:
    assert ready(plain, PGUSER="ann", PGPASSWORD="hunter2").startswith("default: sqlite:///")


@only_postgres
def test_variables_of_libpq_are_honoured_and_the_password_is_never_shown(shell: Shell) -> None:
    parts = conninfo_to_dict(shell.environment.pop("HOLDFAST_DATABASE"))
    variables = {
        "PGHOST": str(parts["host"]),
        "PGDATABASE": str(parts["dbname"]),
        "PGPASSWORD": "hunter2",
    }
    variables |= {"PGUSER": str(parts["user"])} if parts.get("user") else {}
    variables |= {"PGPORT": str(parts["port"])} if parts.get("port") else {}
    source = ready(shell, **variables)
    assert source.startswith("PGHOST and PGDATABASE: postgresql://")
    assert source.endswith(f"/{parts['dbname']}")
    assert "hunter2" not in source
    shell.environment |= variables
    with shell.running("work"):
        assert shell.out("send", "hello", "--wait") == "you said hello\n"


@only_postgres
def test_a_driver_in_the_scheme_of_a_database_url_is_left_out(shell: Shell) -> None:
    url = shell.environment.pop("HOLDFAST_DATABASE")
    source = ready(shell, DATABASE_URL=url.replace("postgresql://", "postgresql+psycopg://", 1))
    assert source.startswith("DATABASE_URL: postgresql://")
    assert "+psycopg" not in source

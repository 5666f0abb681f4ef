"""Each rule of tools/check.py reports the faults it is there for."""

from pathlib import Path

import pytest

from tools import check


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("holdfast/store/sqlite", "docs"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.write_text(text)


def test_a_module_of_401_lines_of_code_is_too_long(project: Path) -> None:
    prose = '"""Say why."""\n\n# A reason.\n' * 50
    write(project / "holdfast/long.py", prose + "x = 1\n" * 401)
    write(project / "holdfast/short.py", prose + "x = 1\n" * 400)
    [fault] = check.python_sizes(project)
    assert fault.startswith("holdfast/long.py: 401 lines of code")


def test_a_function_of_41_lines_is_too_long(project: Path) -> None:
    write(
        project / "holdfast/a.py",
        "async def short():\n" + "    x = 1\n" * 39 + "\ndef long():\n" + "    x = 1\n" * 40,
    )
    [fault] = check.python_sizes(project)
    assert "long has 41 lines" in fault


def test_a_tenth_of_all_functions_may_have_more_than_12_lines_of_code(project: Path) -> None:
    prose = '    """Say why.\n\n    At length."""\n\n    # A reason.\n'
    short = "def short():\n" + prose + "    x = 1\n" * 12
    long = "def long():\n" + prose + "    x = 1\n" * 13
    write(project / "holdfast/a.py", short * 9 + long)
    assert list(check.usual_sizes(project)) == []
    write(project / "holdfast/b.py", long)
    [fault] = check.usual_sizes(project)
    assert fault.startswith("2 of 11 functions have more than 12 lines of code")


def test_a_sql_file_of_301_lines_of_code_is_too_long(project: Path) -> None:
    prose = "-- A reason.\n\n/* A longer\nreason. */\n" * 50
    write(project / "holdfast/long.sql", prose + "select 1;\n" * 301)
    write(project / "holdfast/short.sql", prose + "select 1;\n" * 300)
    assert list(check.other_sizes(project)) == ["holdfast/long.sql: 301 lines of code; at most 300"]


@pytest.mark.parametrize("suffix", ["js", "css"])
def test_scripts_and_styles_of_the_page_have_at_most_400_lines(project: Path, suffix: str) -> None:
    write(project / f"holdfast/long.{suffix}", "/* A reason. */\n" + "x\n" * 401)
    write(project / f"holdfast/short.{suffix}", "/* A reason. */\n" + "x\n" * 400)
    [fault] = check.other_sizes(project)
    assert fault == f"holdfast/long.{suffix}: 401 lines of code; at most 400"


@pytest.mark.parametrize(
    ("head", "line", "end"),
    [
        ("create function agent.f() returns void as $$", "perform 1;", "$$;"),
        ("create or replace function agent.f() begin atomic", "select 1;", "end;"),
        ("create procedure agent.f() language sql as $body$", "select 1;", "$body$ stable;"),
    ],
)
def test_a_sql_function_of_41_lines_is_too_long(
    project: Path, head: str, line: str, end: str
) -> None:
    head = head.replace(" begin atomic", "\nbegin atomic")
    lines = 40 - head.count("\n") - 2
    short = "\n".join([head, *[line] * lines, end])
    long = "\n".join([head.replace("f()", "g()"), *[line] * (lines + 1), end])
    one_line = "create function agent.one() returns int4\nreturn 1;"
    write(project / "holdfast/a.sql", f"{one_line}\n{short}\n{long}\n")
    [fault] = check.other_sizes(project)
    assert "agent.g has 41 lines" in fault


@pytest.mark.parametrize(
    "head", ["export async function f(a) {", "const f = (a) => {", "  f(a) {", "  async f() {"]
)
def test_a_javascript_function_of_41_lines_is_too_long(project: Path, head: str) -> None:
    indent = " " * (len(head) - len(head.lstrip()))
    for name, lines in ("short", 38), ("long", 39):
        text = [head, *[f"{indent}  if (x) {{ y(); }}"] * lines, f"{indent}}}", ""]
        write(project / f"holdfast/{name}.js", "\n".join(text))
    [fault] = check.other_sizes(project)
    assert fault.startswith("holdfast/long.js:1: ")
    assert "has 41 lines" in fault


def test_docstrings_and_comments_do_not_begin_with_what_or_who(project: Path) -> None:
    write(
        project / "holdfast/a.py",
        '"""What it is."""\nx = 1  # who it is\n# Good.\n# What goes on is fine.\ny = "# What"\n',
    )
    write(project / "holdfast/b.sql", "-- Whoever.\nselect 1; -- Whose\n-- Fine.\n-- What.\n")
    write(project / "holdfast/c.js", "// What\nx = 1; // Whatever is fine.\n/* Who */\n")
    write(project / "holdfast/d.css", "/* Whose */\na {}\n")
    positions = [fault.split(": ")[0] for fault in check.openings(project)]
    assert positions == [
        "holdfast/a.py:1",
        "holdfast/a.py:2",
        "holdfast/b.sql:1",
        "holdfast/b.sql:2",
        "holdfast/c.js:1",
        "holdfast/c.js:3",
        "holdfast/d.css:1",
    ]


def test_a_line_of_101_characters_is_too_long(project: Path) -> None:
    for suffix in ("py", "sql", "js", "css"):
        write(project / f"holdfast/a.{suffix}", "ö" * 100 + "\n" + "ö" * 101 + "\n")
    assert [fault.split(": ")[0] for fault in check.long_lines(project)] == [
        "holdfast/a.css:2",
        "holdfast/a.js:2",
        "holdfast/a.py:2",
        "holdfast/a.sql:2",
    ]


def test_recorded_migration_scripts_stay_as_they_are(project: Path) -> None:
    for folder in ("incremental", "sqlite"):
        (project / "holdfast/migrations" / folder).mkdir(parents=True)
        for number in ("018", "019"):
            write(project / f"holdfast/migrations/{folder}/{number}-a.sql", "-- What it is\n")
    assert [fault.split(": ")[0] for fault in check.openings(project)] == [
        "holdfast/migrations/incremental/019-a.sql:1",
        "holdfast/migrations/sqlite/019-a.sql:1",
    ]


def test_a_query_is_defined_once_and_used(project: Path) -> None:
    write(
        project / "holdfast/store/sqlite/a.sql",
        "-- name: good\nselect 1;\n-- name: idle\nselect 2;\n",
    )
    write(
        project / "holdfast/store/sqlite/b.sql",
        "-- name: twice\nselect 1;\n-- name: twice\nselect 2;\n",
    )
    write(
        project / "holdfast/store/a.py",
        'run(queries["good"]); run("twice"); run(queries["unknown"])\n',
    )
    assert list(check.queries(project)) == [
        "query idle is defined and never used",
        "query twice is defined 2 times",
        "query unknown is used and not defined",
    ]


def test_numbers_of_migration_scripts_are_taken_once_and_leave_no_gap(project: Path) -> None:
    for folder, names in {
        "incremental": ["000-a", "001-b", "001-c"],
        "sqlite": ["000-a", "002-b"],
    }.items():
        (project / "holdfast/migrations" / folder).mkdir(parents=True)
        for name in names:
            write(project / f"holdfast/migrations/{folder}/{name}.sql", "select 1;\n")
    assert list(check.scripts(project)) == [
        "migrations/incremental/001-c.sql: the number must be 002",
        "migrations/sqlite/002-b.sql: the number must be 001",
    ]


def test_documents_refer_to_what_exists(project: Path) -> None:
    write(project / "holdfast/store/a.py", "class Store:\n    def put(self): ...\nLIMIT = 3\n")
    write(project / "holdfast/store/sqlite/a.sql", "-- name: claim\nselect 1;\n")
    good = "`holdfast/store/a.py::Store.put` `store/a.py::LIMIT` [a](page.md)"
    good += " `store/sqlite/a.sql::claim`"
    bad = "`store/a.py::Store.gone` `store/b.py::Store` `store/sqlite/a.sql::gone` [b](missing.md)"
    write(project / "docs/page.md", f"{good}\n{bad}\n[far](https://example.org/x)\n")
    assert list(check.references(project)) == [
        "docs/page.md: store/a.py::Store.gone does not exist",
        "docs/page.md: store/b.py::Store does not exist",
        "docs/page.md: store/sqlite/a.sql::gone does not exist",
        "docs/page.md: the link to missing.md leads nowhere",
    ]


def test_prose_of_documents_has_at_most_100_characters(project: Path) -> None:
    fits, too_long = "x" * 100, f"{'x' * 50} {'x' * 50}"
    code = f"```\n{too_long}\n```"
    table = f"| {too_long} |"
    link = f"[far](https://example.org/{too_long})"
    word = "x" * 101
    write(project / "docs/page.md", f"{fits}\n{code}\n{table}\n{link}\n{word}\n{too_long}\n")
    [fault] = check.long_prose(project)
    assert fault == "docs/page.md:8: 101 characters; prose has at most 100"


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("a.py", "def _place_of(row): ...\n", "_place_of"),
        ("a.py", "class UnheardClaims: ...\n", "UnheardClaims"),
        ("a.py", "for told in range(3): ...\n", "told"),
        ("a.py", "def read(letters): ...\n", "letters"),
        ("a.js", "    this.place = 1;\n", "place"),
        ("a.js", "  #tellEnd(number) {\n", "tellEnd"),
        ("a.css", ".verdict-line {\n", "verdict-line"),
    ],
)
def test_a_private_word_in_a_name_is_refused(
    project: Path, file: str, text: str, name: str
) -> None:
    write(project / "holdfast" / file, text)
    [fault] = check.names(project)
    assert fault.startswith(f"holdfast/{file}:1: {name} has the word")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("a.py", "class Found: ...\n"),
        ("a.py", "async def _listed(): ...\n"),
        ("a.js", "export function wrapped(node) {\n"),
    ],
)
def test_a_function_or_class_is_not_named_by_a_bare_participle(
    project: Path, file: str, text: str
) -> None:
    write(project / "holdfast" / file, text)
    [fault] = check.names(project)
    assert "is a bare participle" in fault


def test_words_of_the_field_are_names(project: Path) -> None:
    names = "dead_letters, replace, placeholder, tombstone, found = 1, 2, 3, 4, 5\n"
    write(project / "holdfast/a.py", f"{names}class Settled: ...\ndef find_answered(): ...\n")
    write(project / "holdfast/a.css", ".box {\n  place-items: center;\n  letter-spacing: 0;\n}\n")
    assert list(check.names(project)) == []

"""The documentation: its snippets run as written, and it has what readers look for."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from itertools import takewhile
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from holdfast.cli import app
from tests.type_check import check_types

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
    howtos = sorted((ROOT / "docs" / "howto").glob("*.md"))
    for page in [ROOT / "README.md", ROOT / "docs" / "tutorial.md", *howtos]:
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
            named = re.match(r"# (\w+\.py)\n", block)
            assert named, f"{page.name}: a Python block begins with the name of its file:\n{block}"
            (folder / named[1]).write_text(block)
    (folder / "test_refunds.py").write_text(README_TEST)
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    return folder


def test_the_test_files_of_the_how_tos_pass(snippets: Path) -> None:
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(run, cwd=snippets, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_snippets_of_the_how_tos_have_strict_types(snippets: Path) -> None:
    done = check_types(snippets)
    assert done.returncode == 0, done.stdout + done.stderr


PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "tutorial.md",
    *(ROOT / "docs" / "howto").glob("*.md"),
    *(ROOT / "examples").glob("**/README.md"),
]


def shell_lines(page: Path) -> list[str]:
    """Return the commands of a page: the lines of its blocks without a language or for sh."""
    blocks = re.findall(r"^```(?:sh)?\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.strip().removeprefix(".venv/bin/") for line in lines]


def words_of(line: str) -> list[str]:
    """Return the words of one command, up to a comment, a pipe or another command."""
    words = shlex.split(line.replace("$(", "'$(").replace(")", ")'"), comments=True)
    ends = [at for at, word in enumerate(words) if word in ("|", "&&", ";", ">", "&")]
    return words[: ends[0]] if ends else words


def has_option(command: list[str]) -> str | None:
    """Return the complaint about a command of holdfast whose help does not know an option."""
    names = list(takewhile(lambda word: re.fullmatch(r"[a-z]+(-[a-z]+)*", word), command))
    text = ""
    while names and not text:
        # Further words may be arguments.
        with contextlib.suppress(Missing):
            text = help_of(tuple(names))
        names = names[:-1]
    options = [word.partition("=")[0] for word in command if re.match(r"--?[a-z]", word)]
    unknown = [one for one in options if one not in text]
    return f"{' '.join(command)}: {unknown}" if unknown or not text else None


class Missing(Exception):
    """There is no such command."""


@cache
def help_of(names: tuple[str, ...]) -> str:
    """Return the help of a command."""
    result = CliRunner().invoke(app, [*names, "--help"], terminal_width=200)
    if result.exit_code:
        raise Missing(names)
    return result.output


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_the_pages_exists_with_its_options(page: Path) -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    lines = [line for line in shell_lines(page) if re.match(r"(holdfast|make) ", line)]
    commands = [words_of(line) for line in lines]
    complaints = [has_option(words[1:]) for words in commands if words[0] == "holdfast"]
    assert [one for one in complaints if one] == []
    assert [words for words in commands if words[0] == "make" and words[1] not in targets] == []


README_TEST = """
from holdfast.testing.trial import trial
from refunds import app


async def test_the_agent_of_the_readme() -> None:
    for choice, answer in (("yes", "receipt for order 17"), ("no", "We cannot refund this.")):
        async with trial(app) as attempt:
            message_id = await attempt.say("order 17")
            await attempt.work()
            await app.signal(message_id, "approval", choice)
            await attempt.work()
            [response] = await attempt.responses()
            assert response.event["message"] == answer
"""


def test_the_readme_is_short_and_leads_to_every_page() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 150
    links = re.findall(r"\]\(([^)#:]+)", text)
    assert [link for link in links if not (ROOT / link).exists()] == []


CLASSICAL_NAMES = {
    "Tiger Agent": "_insert_event _claim_event _delete_event _trigger main.py __version__"
    " migrations/incremental migrations/idempotent",
    "TinyAGI": "enqueueMessage claimAllPendingMessages failMessage completeMessage"
    " recoverStaleMessages getResponsesForChannel ackResponse postToChatRoom streamResponse genId"
    " queueEvents TINYAGI_API_PORT",
    "AIMON": "drainOnce KnowledgeStoreObservationIndex semanticSearch",
}
DIFFERENCES = {
    "Tiger Agent": (
        "TimescaleDB", "at random", "back-off", "on its last attempt", "24 h", "1 h",
        "level-triggered", "One message per turn", "3 attempts", "counted at claim", "outage",
        "settles the turn", "dedup", "start_stagger",
    ),
    "TinyAGI": ("default lane", "room post", "timestamptz", "A token per role"),
    "AIMON": ("task of the harness", "versions", "wake"),
}  # fmt: skip


def section(page: str, system: str) -> str:
    """The part of a page below the heading that names one of the ancestors."""
    parts = (ROOT / "docs" / page).read_text().split("\n## ")
    [found] = [part for part in parts if part.startswith(system)]
    return found


@pytest.mark.parametrize("system", CLASSICAL_NAMES)
def test_issue_14_21_every_classical_name_stands_under_its_system(system: str) -> None:
    page = section("reference/names.md", system)
    assert [name for name in CLASSICAL_NAMES[system].split() if f"`{name}`" not in page] == []


@pytest.mark.parametrize("system", DIFFERENCES)
def test_issue_14_20_every_deliberate_difference_is_told_with_its_reason(system: str) -> None:
    rows = [
        row.split("|")[1:-1]
        for row in section("explanation/differences.md", system).splitlines()
        if row.startswith("|") and not row.startswith("|--")
    ]
    missing = [what for what in DIFFERENCES[system] if what not in "".join(map("".join, rows))]
    assert missing == []
    assert [row[0] for row in rows if len(row) != 3 or not row[2].strip()] == []


def test_issue_14_16_the_database_page_says_that_a_retry_keeps_the_record_of_claims() -> None:
    page = DATABASE_PAGE.read_text()
    above = page[: page.index("select agent.retry_event(")].rstrip().splitlines()[-1]
    assert "claimed keeps the record of earlier claims" in above


def test_issue_14_17_the_database_page_gives_the_order_of_claims_and_its_reason() -> None:
    [paragraph] = [
        part for part in DATABASE_PAGE.read_text().split("\n\n") if "Oldest first" in part
    ]
    assert "claim_event" in paragraph
    assert "random" in paragraph


def test_issue_14_22_the_database_page_has_the_rules_of_migrations() -> None:
    page = " ".join(DATABASE_PAGE.read_text().split())
    rules = (
        "two folders", "once, in order", "one transaction", "advisory lock",
        "`agent.migration` is locked", "ten times, ten seconds apart",
        "only the owner of schema `agent` migrates",
    )  # fmt: skip
    assert [rule for rule in rules if rule not in page] == []


def test_five_walks_name_at_most_14_files_each_and_one_sentence_per_step() -> None:
    _, _, *walks = (ROOT / "docs" / "walk.md").read_text().split("\n## ")
    assert len(walks) == 5
    for walk in walks:
        title, _, body = walk.partition("\n")
        assert len(set(re.findall(r"holdfast/[\w./]+\.py", body))) <= 14, title
        steps = re.split(r"^\d+\. ", body, flags=re.MULTILINE)[1:]
        assert all(len(re.findall(r"\.(?=\s|$)", step)) == 1 for step in steps), title


def test_each_guarantee_has_its_code_its_tests_and_its_limit() -> None:
    page = (ROOT / "docs" / "explanation" / "guarantees.md").read_text()
    _, *guarantees = re.split(r"^## \d+\. ", page, flags=re.MULTILINE)
    assert len(guarantees) == 10
    for guarantee in guarantees:
        title, _, body = guarantee.partition("\n")
        promise, *notes = re.split(r"^- \*\*(By|Proof|Limit)\*\*:\s", body, flags=re.MULTILINE)
        by, proof, limit = notes[1::2]
        assert notes[::2] == ["By", "Proof", "Limit"], title
        assert all(text.strip() for text in (promise, limit)), title
        assert re.search(r"\w+\.(?:py|sql)|message_key", by), title
        assert re.search(r"`tests/\S+\.py::test_\w+`", proof), title


def test_the_site_is_built_without_warnings_and_asks_no_other_host(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    done = subprocess.run(
        build,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    loads = re.compile(r"<(?:script|link|img)[^>]*(?:src|href)=\"(https?:[^\"]+)")
    pages = {page.name: page.read_text() for page in tmp_path.glob("**/*.html")}
    assert {name: loads.findall(text) for name, text in pages.items() if loads.search(text)} == {}
    reference = (tmp_path / "reference" / "python.html").read_text()
    assert 'id="holdfast.AgentHarness.put"' in reference
    assert "a support desk" in (tmp_path / "search" / "search_index.json").read_text()

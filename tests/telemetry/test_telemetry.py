"""Metrics and log lines of a process, which never contain a secret."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from holdfast import telemetry
from holdfast.telemetry import redaction
from holdfast.telemetry.instruments import MAX_LABEL_SETS, Counter, Histogram
from holdfast.telemetry.logs import Entry, JsonLines, TextLines
from holdfast.telemetry.prometheus import exposition
from holdfast.testing.databases import Databases
from holdfast.testing.servers import url_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_secrets() -> Iterator[None]:
    kept = list(redaction._secrets)
    yield
    redaction._secrets.clear()
    redaction._secrets.extend(kept)


def record(
    message: object, *arguments: object, trouble: Exception | None = None
) -> logging.LogRecord:
    about = (type(trouble), trouble, trouble.__traceback__) if trouble else None
    return logging.LogRecord(
        "holdfast.consumer", logging.WARNING, __file__, 1, message, arguments, about
    )


def test_a_histogram_counts_a_value_in_every_bucket_that_holds_it() -> None:
    times = Histogram("t", "", ("queue",), bounds=(1, 2.5)).of("inbox")
    for seconds in (0.5, 1, 2, 99):
        times.observe(seconds)
    assert list(times.cumulative()) == [("1.0", 2), ("2.5", 3), ("+Inf", 4)]
    assert times.sum == 102.5


def test_a_label_set_has_one_set_of_buckets() -> None:
    histogram = Histogram("t", "", ("queue",))
    histogram.of("inbox").observe(1)
    assert histogram.of("inbox") is histogram.of("inbox")
    assert histogram.of("outbox") is not histogram.of("inbox")


def test_label_sets_beyond_the_limit_are_counted_as_other() -> None:
    counter = Counter("c", "", ("agent", "error_class"))
    for number in range(MAX_LABEL_SETS + 7):
        counter.add("coder", f"Error{number}")
    assert len(counter.values) == MAX_LABEL_SETS + 1
    assert counter.values["other", "other"] == 7
    counter.add("coder", "Error0")
    assert counter.values["coder", "Error0"] == 2


def test_a_renamed_gauge_is_exported_under_both_names_for_one_release() -> None:
    readings = [(telemetry.SLOTS, ("inbox",), 5.0), (telemetry.SLOTS_BUSY, ("inbox",), 2.0)]
    page = exposition(readings)[0].decode()
    for name in ("slots", "places"):
        assert f'holdfast_{name}{{queue="inbox"}} 5.0' in page
        assert f'holdfast_{name}_busy{{queue="inbox"}} 2.0' in page


def test_an_entry_reads_the_same_under_any_formatter() -> None:
    entry = Entry("cannot claim", queue="inbox", event_id=7, error='the "server"\nis away')
    assert (
        record(entry).getMessage()
        == r'cannot claim queue=inbox event_id=7 error="the \"server\"\nis away"'
    )


def test_a_line_of_text_has_time_level_logger_event_and_fields() -> None:
    line = TextLines().format(record(Entry("cannot claim", queue="inbox")))
    moment, rest = line.split(" ", 1)
    assert moment.endswith("Z")
    assert rest == "warning holdfast.consumer cannot claim queue=inbox"


def test_a_line_of_json_has_the_fields_as_keys() -> None:
    line = json.loads(JsonLines().format(record(Entry("cannot claim", queue="inbox", turns=3))))
    del line["time"]
    expected = {
        "level": "warning",
        "logger": "holdfast.consumer",
        "event": "cannot claim",
        "queue": "inbox",
        "turns": 3,
    }
    assert line == expected


def test_log_lines_of_other_libraries_are_written_too() -> None:
    assert TextLines().format(record("%s of %s", 1, 2)).endswith("warning holdfast.consumer 1 of 2")
    assert json.loads(JsonLines().format(record("%s of %s", 1, 2)))["event"] == "1 of 2"


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://joe:hunter2@host/db",
        "cannot reach postgresql://:hunter2@host:5432/db?sslmode=require today",
        "postgres://joe:a/hunter2@b@host/db",
        "https://user:hunter2@example.org",
        "host=h password=hunter2 user=joe",
        "password='hunter2'",
        'invalid percent-encoded token: "hunter2%"',
        "postgresql://host/db?user=joe&password=hunter2&sslmode=require",
    ],
)
def test_texts_that_look_like_a_password_are_redacted(text: str) -> None:
    assert "hunter2" not in redaction.redact(text)
    assert redaction.HIDDEN in redaction.redact(text)


SECRETS = [
    "xoxb-1234567890-abcDEF",
    "xapp-1-A0123-4567-abcdef",
    "xoxp-99-88-77-abc",
    "sk-abcdef0123456789abcdef",
    "sk-proj-abcdefghijklmnop1234",
    "sk-ant-api03-AbCd_1234-efgh",
    "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "github_pat_0123456789abcdefghij",
    "AKIAIOSFODNN7EXAMPLE",
    "AIzaSyA0123456789abcdefghijklmnopqrstuv",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE0123\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\nMIIE0123 and no end",
    "123456789:AAE0123456789abcdefghijklmnopqrstuv",
    "hft_0123456789abcdefghijABCDEFGHIJ-_0123456789abc",
    "hfs_0123456789abcdefghijABCDEFGHIJ-_0123456789abc",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_issue_13_8_keys_and_tokens_are_redacted_by_their_shape(secret: str) -> None:
    for text in (
        secret,
        f"401 for {secret}",
        f"key_{secret}",
        f'{{"key": "{secret}"}}',
        f"a={secret}&b",
    ):
        assert secret[-8:] not in redaction.redact(text), text
        assert redaction.redact_prose(secret) == redaction.redact(secret)


@pytest.mark.parametrize(
    "text",
    [
        "SLACK_BOT_TOKEN=hunter2",
        "DB_PASSWORD: hunter2",
        "api key: hunter2",
        '{"api_key": "hunter2"}',
        "client_secret='one hunter2'",
        "Authorization: Bearer hunter2",
        "see Bearer hunter2hunter2",
        "https://api.example.org/?token=hunter2&x=1",
    ],
)
def test_issue_13_8_values_named_like_a_secret_are_redacted(text: str) -> None:
    assert "hunter2" not in redaction.redact(text)


def test_a_key_that_contains_a_registered_secret_is_redacted_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redaction, "_secrets", ["5678", "tail-sk-abcdefghijklmnop1234-end"])
    assert redaction.redact("a xoxb-1234567890-abcdef b") == "a *** b"
    assert redaction.redact("a tail-sk-abcdefghijklmnop1234-end b") == "a *** b"


def test_a_secret_at_the_edge_of_a_cut_is_redacted_whole() -> None:
    start = redaction.redact_start("x" * 90 + " xoxb-1234567890-abcdef" + " y" * 9_000, 100)
    assert "xoxb" not in start
    end = redaction.redact_end("y " * 9_000 + "xoxb-1234567890-abcdef " + "x" * 90, 100)
    assert "abcdef" not in end
    assert len(end) <= 101


WORDS = [
    "postgresql://joe@host/db",
    "3:4 @ noon",
    "expected postgresql://user:password@host",
    "use sk-learn-contrib or pk_of_the_table",
    "the token is invalid",
    "SLACK_BOT_TOKEN: Slack does not let the bot in",
    "unexpected token: end of file.",
    "task-1234567890 and 12:30",
]


@pytest.mark.parametrize("text", WORDS)
def test_texts_that_are_no_secret_stay(text: str) -> None:
    assert redaction.redact(text) == text


def test_a_registered_secret_is_redacted_anywhere_in_every_spelling() -> None:
    redaction.hide("postgresql://joe:p%40ss-word@host/db")
    redaction.hide("xoxb-1234")
    redacted = redaction.redact("tried p%40ss-word, then p@ss-word, then xoxb-1234")
    assert redacted == "tried ***, then ***, then ***"


def test_no_log_line_or_traceback_contains_a_secret() -> None:
    redaction.hide("postgresql://joe:hunter2@host/db")
    trouble = ValueError("no luck with hunter2")
    for formatter in (TextLines(), JsonLines()):
        line = formatter.format(record(Entry("a turn failed", error=trouble), trouble=trouble))
        assert "hunter2" not in line
        assert "no luck with ***" in line


def test_a_worker_imports_no_package_it_does_not_use() -> None:
    script = """
import asyncio, sys, tempfile
from holdfast import AgentHarness
from holdfast.agents.echo import echo
from holdfast.settings import Settings

async def main():
    app = AgentHarness(echo, settings=Settings(home=tempfile.mkdtemp()))
    async with asyncio.TaskGroup() as group:
        await app.run(task_group=group)
        app.stop()

asyncio.run(main())
heavy = ("logfire", "opentelemetry", "prometheus_client", "fastapi", "uvicorn", "psycopg", "rich")
print([name for name in heavy if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout == "[]\n"


def test_the_telemetry_page_lists_exactly_the_existing_names() -> None:
    page = (ROOT / "docs" / "reference" / "telemetry.md").read_text()
    rows = {
        tuple(cell.strip(" `") for cell in line.split("|")[1:3])
        for line in page.splitlines()
        if line[:1] == "|"
    }
    metrics = {
        (instrument.name, ", ".join(instrument.labels)) for instrument in telemetry.INSTRUMENTS
    }
    assert {row for row in rows if row[0].startswith("holdfast_")} == metrics
    names = {
        name: value
        for name, value in vars(telemetry).items()
        if name.isupper() and isinstance(value, str)
    }
    texts = {
        f"{value}.<call>" if name == "SPAN_STORE_CALL" else value for name, value in names.items()
    }
    assert texts <= {row[0] for row in rows}
    lines = page.partition("| line | when |")[2].splitlines()[2:]
    listed = {line.split("|")[1].strip() for line in lines if line[:1] == "|"}
    assert listed - {"migration: …"} <= texts


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://joe:hunter2@127.0.0.1:1/db",
        "postgresql://joe:hunter2%@127.0.0.1:1/db",
        "postgresql://joe:a@hunter2@127.0.0.1:1/db",
        "postgresql://joe:hunter2/a@127.0.0.1:1/db",
        "postgresql://joe:hunter2?a@127.0.0.1:1/db",
        "postgresql://joe:hunter2#a@127.0.0.1:1/db",
        "postgresql://127.0.0.1:1/db?user=joe&password=hunter2",
        "postgresql://127.0.0.1:1/db?user=joe&pasword=hunter2",
        "posgresql://joe:hunter2@127.0.0.1/db",
    ],
)
def test_the_error_of_a_bad_url_does_not_repeat_its_password(url: str) -> None:
    done = _holdfast("status", "--database", url)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "hunter2" not in done.stdout + done.stderr


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_worker_that_loses_its_database_logs_no_password(
    databases: Databases, log_format: str
) -> None:
    with databases.fresh("postgres") as url, _admin(databases) as admin:
        name = urlsplit(url).path.removeprefix("/")
        with _working(
            url.replace("postgres@", "postgres:hunter2@"), HOLDFAST_LOG_FORMAT=log_format
        ) as worker:
            admin.execute(f"alter database {name} allow_connections false")
            admin.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (name,)
            )
            assert worker.stderr is not None
            lines = []
            while "reconnecting" not in (line := worker.stderr.readline()):
                assert line, "the worker ended"
                lines.append(line)
            worker.terminate()
            lines += [line, *worker.communicate(timeout=60)]
    assert "hunter2" not in "".join(lines)


def _holdfast(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)


@contextmanager
def _working(url: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "holdfast", "work", "--database", url]
    environment = os.environ | variables
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, cwd=ROOT, env=environment
    ) as worker:
        try:
            assert worker.stdout is not None
            assert "ready" in worker.stdout.readline()
            yield worker
        finally:
            worker.kill()


def _admin(databases: Databases) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(url_of(databases.server("postgres"), "postgres"), autocommit=True)

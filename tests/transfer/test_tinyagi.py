"""`holdfast import tinyagi` takes over messages in all states, responses and histories."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import HoldfastError
from holdfast.queue.event import NewEvent
from holdfast.store import open_store
from holdfast.store.transfer import tinyagi
from holdfast.store.transfer.postgres import name_of
from tests.cli.shell import Shell, eventually
from tests.transfer.conftest import NewDatabase
from tests.transfer.originals import NOW, make_tinyagi

IMPORTED = {
    "messages completed": 1,
    "messages dead": 2,
    "messages pending": 4,
    "responses acked": 1,
    "responses pending": 1,
    "lines of agents": 4,
    "lines of rooms": 2,
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tinyagi.db"
    make_tinyagi(path)
    return path


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, new_database: NewDatabase) -> str:
    return new_database(request.param)


@pytest.fixture
def shell(tmp_path: Path, target: str) -> Shell:
    shell = Shell(tmp_path, target)
    shell.write("app.py", APP)
    return shell


APP = """
from holdfast import AgentHarness

app = AgentHarness(default="coder")

@app.agent("coder")
async def coder(turn):
    return f"coder heard {turn.text}"

@app.agent("writer")
async def writer(turn):
    return f"writer heard {turn.text}"
"""


def test_messages_keep_states_attempts_errors_and_times(shell: Shell, file: Path) -> None:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    shell.environment["HOLDFAST_APP"] = "app:app"
    report = shell.json("import", "tinyagi", "--from", str(file))
    assert report["imported"] == IMPORTED
    assert hashlib.sha256(file.read_bytes()).hexdigest() == digest
    past = {one["message_id"]: one for one in shell.json("history", "--queue", "inbox")}
    dead = past["api_dead"]
    assert (dead["outcome"], dead["attempts"], dead["last_error"]) == ("dead", 5, "boom")
    assert past["api_done"]["outcome"] == "completed"
    assert past["api_done"]["attempts"] == 2
    assert past["api_odd"]["last_error"] == "imported with the unknown status 'lost'"
    assert past["api_odd"]["event"]["message"] == "nul \ufffd here"
    assert past["api_dead"]["finished_at"].startswith("2026-09-21T14:13:20.099")
    assert {one["message_id"] for one in shell.json("dead", "list")} == {"api_dead", "api_odd"}


def test_a_second_import_finds_everything_there(shell: Shell, file: Path) -> None:
    shell.out("import", "tinyagi", "--from", str(file))
    again = shell.json("import", "tinyagi", "--from", str(file))
    assert again["imported"] == {}
    assert again["known"] == sum(IMPORTED.values())


def test_waiting_messages_are_answered_and_dead_ones_retried(shell: Shell, file: Path) -> None:
    shell.environment["HOLDFAST_APP"] = "app:app"
    shell.out("import", "tinyagi", "--from", str(file))
    with shell.running("work"):
        done = eventually(lambda: _completed(shell) >= {"telegram_a", "api_running", "api_queued"})
        assert done
        [dead] = [one for one in shell.json("dead", "list") if one["message_id"] == "api_dead"]
        shell.out("dead", "retry", str(dead["id"]))
        eventually(lambda: "api_dead" in _completed(shell))


def _completed(shell: Shell) -> set[str]:
    listed = shell.json("history", "--queue", "inbox")
    return {one["message_id"] for one in listed if one["outcome"] == "completed"}


async def test_histories_of_agents_and_rooms_keep_their_order(
    target: str, file: Path, shell: Shell
) -> None:
    shell.out("import", "tinyagi", "--from", str(file))
    async with open_store(target) as store:
        lines = await store.agent_messages("coder", limit=50)
        room = await store.chat_messages("dev", limit=50)
    texts = [line.content for line in reversed(lines)]
    assert texts[:4] == ["an old answer", "@coder first", "answer", "second"]
    assert [line.message for line in reversed(room)] == ["hello room", "hi"]
    assert room[0].created_at is not None
    assert room[0].created_at.timestamp() * 1000 == NOW + 71


async def test_responses_wait_or_are_acked(target: str, file: Path, shell: Shell) -> None:
    shell.out("import", "tinyagi", "--from", str(file))
    async with open_store(target) as store:
        [waiting] = await store.waiting("outbox", "api", limit=10)
    assert waiting.event["message"] == "sorry"
    assert waiting.event["metadata"] == {"text": "no json"}
    [acked] = shell.json("history", "--queue", "outbox")
    assert acked["event"]["files"] == ["a.png"]
    assert acked["finished_at"].startswith("2026-09-21T14:13:20.025")


def test_an_early_database_is_imported(shell: Shell, tmp_path: Path) -> None:
    early = tmp_path / "tinyclaw.db"
    make_tinyagi(early, early=True)
    report = shell.json("import", "tinyagi", "--from", str(early))
    assert "lines of agents" not in report["imported"]
    assert report["imported"]["messages pending"] == 4


def test_a_dry_run_changes_nothing(shell: Shell, file: Path) -> None:
    report = shell.json("import", "tinyagi", "--from", str(file), "--dry-run")
    # The line of a waiting message is the message itself.
    assert report["imported"] == IMPORTED | {"lines of agents": 5}
    assert "the database is new" in shell.refused("history")


def test_a_failure_changes_nothing(
    target: str, file: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise HoldfastError("refused")

    monkeypatch.setattr(tinyagi._Import, "_add_chat", fail)
    with pytest.raises(HoldfastError, match="refused"):
        tinyagi.import_tinyagi(file, target, _unrouted)
    assert "the database is new" in shell.refused("history")


def test_a_report_shows_no_password(file: Path, new_database: NewDatabase) -> None:
    url = new_database("postgres")
    secret = f"{url}{'&' if '?' in url else '?'}password=zyzzyva"
    for dry_run in (True, False):
        report = tinyagi.import_tinyagi(file, secret, _unrouted, dry_run=dry_run)
        assert report.target == name_of(url)
        assert "zyzzyva" not in repr(report)


def _unrouted(payload: dict[str, Any], agent: str | None) -> Any:
    return NewEvent(event=payload)


def test_what_is_no_tinyagi_is_refused(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to be looked at" * 40)
    (tmp_path / "empty").touch()
    for name, why in (("text", "cannot be read"), ("empty", "no table messages"), ("x", "no file")):
        line = shell.refused("import", "tinyagi", "--from", str(tmp_path / name))
        assert why in line


def test_a_database_of_holdfast_is_refused(shell: Shell, tmp_path: Path) -> None:
    source = tmp_path / "holdfast.db"
    shell.out("migrate", "--database", f"sqlite:///{source}")
    line = shell.refused("import", "tinyagi", "--from", str(source), "--dry-run")
    assert line.endswith("holdfast.db is a database of Holdfast: use `holdfast move`")

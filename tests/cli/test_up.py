"""`holdfast up`, `work` and `serve`: start, work and stop."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from holdfast.cli.up import loop_factory
from holdfast.migrations.runner import migrate
from holdfast.settings import Settings
from tests.cli.shell import Running, Shell, eventually

APP = """
import asyncio, pathlib, time
from datetime import timedelta
from holdfast import AgentHarness
from holdfast.consumers.limits import Limits

app = AgentHarness(default="polite", limits=Limits(let_go_within=timedelta(seconds=1)))

@app.agent("polite")
async def polite(turn):
    return f"dear {turn.sender}, {turn.text}"

@app.agent("slow")
async def slow(turn):
    pathlib.Path("started").touch()
    await asyncio.sleep(600)

@app.agent("broken")
async def broken(turn):
    raise RuntimeError("the printer is on fire")

@app.agent("stuck")
def stuck(turn):
    pathlib.Path("started").touch()
    time.sleep(600)
"""

APP_WITH_SETTINGS = """
from holdfast import AgentHarness
from holdfast.agents.echo import echo
from holdfast.settings import Settings

app = AgentHarness(echo, settings=Settings(database="sqlite:///made.db", api_port=0))
"""


def ask(running: Running, path: str, token: str = "") -> tuple[int, str]:
    request = urllib.request.Request(
        running.address + path, headers={"authorization": f"Bearer {token}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def cpu_of(pid: int) -> float:
    """Return the processor time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_up_answers_what_is_sent_and_its_health_is_good(shell: Shell) -> None:
    shell.cold = True
    with shell.running("up", "--port", "0") as up:
        assert "ready" in up.ready
        assert ask(up, "/healthz")[0] == 200
        assert ask(up, "/readyz") == (200, '{"status":"ready"}')
        assert shell.out("send", "hello", "--wait") == "you said hello\n"
        up.signal()
        assert up.end() == 0


LOOP_APP = """
import asyncio
from holdfast import AgentHarness

async def name_loop(turn):
    return type(asyncio.get_running_loop()).__module__

app = AgentHarness(name_loop)
"""


def test_uvloop_runs_a_process_if_set_so(shell: Shell) -> None:
    shell.write("loop_app.py", LOOP_APP)
    options = ("--port", "0", "--app", "loop_app:app")
    with shell.running("up", *options, HOLDFAST_EVENT_LOOP="uvloop") as up:
        assert ask(up, "/readyz")[0] == 200
        assert shell.out("send", "hello", "--wait") == "uvloop\n"
        up.signal()
        assert up.end() == 0


def test_without_uvloop_asyncio_runs_and_the_log_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loop_factory(Settings(event_loop="uvloop")) is None
    assert "pip install 'holdfast-agents[speed]'" in caplog.text


def test_work_answers_without_a_port(shell: Shell) -> None:
    with shell.running("work") as work:
        assert "ready" in work.ready
        assert "http" not in work.ready
        assert shell.out("send", "hello", "--wait") == "you said hello\n"
        work.signal(signal.SIGINT)
        assert work.end() == 0


def test_work_serves_metrics_on_the_given_port(alone: Shell) -> None:
    with alone.running("work", "--metrics-port", "0") as work:
        assert ask(work, "/healthz")[0] == 200
        assert ask(work, "/metrics")[0] == 401
        assert ask(work, "/metrics", alone.out("token", "--role", "read").strip())[0] == 200


def test_metrics_of_a_worker_are_open_on_loopback_if_set_so(alone: Shell) -> None:
    with alone.running("work", "--metrics-port", "0", HOLDFAST_METRICS_AUTH="none") as work:
        assert ask(work, "/metrics")[0] == 200
    with alone.running("up", "--port", "0", HOLDFAST_METRICS_AUTH="none") as up:
        assert ask(up, "/metrics")[0] == 401, "the API keeps its tokens"
    refused = alone.refused(
        "work", "--metrics-port", "0", "--host", "0.0.0.0", HOLDFAST_METRICS_AUTH="none"
    )
    assert 'metrics_auth = "none" works on loopback only, not at 0.0.0.0' in refused


def test_serve_is_healthy_and_works_nothing(shell: Shell) -> None:
    with shell.running("serve", "--port", "0") as serve:
        assert "ready" in serve.ready
        assert ask(serve, "/readyz")[0] == 200
        assert "no process works here" in shell.refused(
            "send", "hello", "--wait", "--timeout", "500ms"
        )
        assert shell.json("status")["queues"][0]["ready"] == 1
        serve.signal()
        assert serve.end() == 0


def test_messages_sent_between_two_runs_are_answered(shell: Shell) -> None:
    with shell.running("work") as work:
        work.signal()
        assert work.end() == 0
    shell.out("send", "meanwhile")
    assert shell.json("status")["processes"] == []
    with shell.running("work"):
        assert (
            eventually(lambda: shell.json("history", "--queue", "inbox"))[0]["outcome"]
            == "completed"
        )


def test_an_app_is_loaded_from_the_working_directory_and_from_the_environment(shell: Shell) -> None:
    shell.write("my_app.py", APP)
    with shell.running("work", "--app", "my_app:app", "--workers", "7") as work:
        assert "agents polite, slow, broken, stuck" in work.ready
        assert "channels" not in work.ready
        assert shell.out("send", "hi", "--wait", "--sender", "Ada") == "dear Ada, hi\n"
    with shell.running("work", HOLDFAST_APP="my_app:app") as work:
        assert "agents polite, slow, broken, stuck" in work.ready
        assert "channels" not in work.ready


def test_issue_14_33_the_ready_line_names_channels(alone: Shell) -> None:
    alone.write("my_app.py", APP)
    nowhere = "http://127.0.0.1:9"
    telegram = {"TELEGRAM_BOT_TOKEN": "1:a", "TELEGRAM_API_URL": nowhere}
    with alone.running("work", "--app", "my_app:app", **telegram) as work:
        assert "; channels telegram; " in work.ready


def test_options_override_settings_of_the_app(alone: Shell) -> None:
    alone.write("my_app.py", APP_WITH_SETTINGS)
    with alone.running("up", "--app", "my_app:app") as up:
        assert up.ready.endswith("sqlite:///made.db\n")
    with alone.running("up", "--app", "my_app:app", "--database", "sqlite:///told.db") as up:
        assert up.ready.endswith("sqlite:///told.db\n")
        assert not up.address.endswith(":3777")


@pytest.mark.parametrize("agent", ["slow", "stuck"])
def test_a_second_signal_stops_at_once_and_the_message_stays(alone: Shell, agent: str) -> None:
    alone.write("my_app.py", APP)
    with alone.running("up", "--app", "my_app:app", "--port", "0") as up:
        alone.out("send", "work", "--agent", agent)
        eventually((alone.folder / "started").exists)
        up.signal()
        eventually(lambda: "stopping" in ask(up, "/readyz")[1])
        assert "waiting for 1 turn (30 s), again to stop now" in up.log
        up.signal(signal.SIGINT)
        signalled_at = time.monotonic()
        assert up.end() == 130
        assert time.monotonic() - signalled_at < 10
        assert "stopped at once" in up.log
    [inbox, *_] = alone.json("status")["queues"]
    assert (inbox["ready"] + inbox["leased"], inbox["finished"]) == (1, 0)


def test_a_stop_gives_back_unfinished_turns_without_using_an_attempt(alone: Shell) -> None:
    alone.write("my_app.py", APP)
    with alone.running("work", "--app", "my_app:app", HOLDFAST_GRACE="100ms") as work:
        alone.out("send", "work", "--agent", "slow")
        eventually((alone.folder / "started").exists)
        work.signal()
        assert work.end() == 0
    [inbox, *_] = alone.json("status")["queues"]
    assert (inbox["ready"], inbox["leased"]) == (1, 0)


def test_a_stop_ends_in_time_though_a_plain_function_does_not_and_keeps_its_turn(
    alone: Shell,
) -> None:
    alone.write("my_app.py", APP)
    with alone.running("work", "--app", "my_app:app", HOLDFAST_GRACE="100ms") as work:
        alone.out("send", "work", "--agent", "stuck")
        eventually((alone.folder / "started").exists)
        work.signal()
        assert work.end() == 128 + signal.SIGTERM
    [inbox, *_] = alone.json("status")["queues"]
    assert (inbox["ready"], inbox["leased"]) == (0, 1)


@pytest.mark.parametrize(
    ("spec", "module", "problem"),
    [
        ("my_app", "", "not module:name"),
        ("nowhere:app", "", "no module 'nowhere'"),
        ("my_app.deeper:app", "", "no module 'my_app.deeper'"),
        ("my_app:other", APP, "did you mean my_app:app?"),
        ("my_app:app", "app = 3", "of type int, not an AgentHarness"),
        (
            "my_app:app",
            "import json\n\nimport nothing_of_this_name",
            "my_app.py:3: ModuleNotFoundError",
        ),
        ("my_app:app", "import json\napp = json.loads('x')", "my_app.py:2: JSONDecodeError"),
        ("my_app:app", "def f(:\n", "my_app.py:1: invalid syntax"),
        ("my_app:app", "import sys\nsys.exit(3)", "my_app.py:2: SystemExit: 3"),
    ],
)
def test_a_mistake_in_the_app_is_one_line_and_starts_nothing(
    alone: Shell, spec: str, module: str, problem: str
) -> None:
    alone.write("my_app.py", module)
    assert problem in alone.refused("up", "--app", spec)
    assert not (alone.folder / ".holdfast").exists()


@pytest.mark.parametrize(
    "command", ["up", "work", "serve", "migrate", "send x", "status", "agents", "dead list"]
)
def test_a_newer_database_is_refused_and_left_alone(tmp_path: Path, command: str) -> None:
    path = tmp_path / "newer.db"
    migrate(f"sqlite:///{path}", version="99.0")
    before = path.read_bytes()
    assert "99.0" in Shell(tmp_path, f"sqlite:///{path}").refused(*command.split())
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "command", ["up", "work", "serve", "send x", "status", "history", "replay 1"]
)
def test_an_unreachable_database_is_one_line_without_its_password(
    tmp_path: Path, command: str
) -> None:
    line = Shell(tmp_path, "postgresql://u:secret@127.0.0.1:1/d").refused(*command.split())
    assert "cannot be reached" in line
    assert "secret" not in line


@pytest.mark.parametrize("command", ["send x", "status", "dead list", "history", "replay 1"])
def test_commands_that_only_read_do_not_create_the_database(alone: Shell, command: str) -> None:
    assert "holdfast migrate" in alone.refused(*command.split())
    assert not (alone.folder / ".holdfast").exists()


def test_an_older_database_is_migrated_by_a_start_and_refused_by_other_commands(
    alone: Shell,
) -> None:
    migrate(f"sqlite:///{alone.folder}/.holdfast/holdfast.db", version="0.0.1")
    assert "is at version 0.0.1: run `holdfast migrate`" in alone.refused("send", "hello")
    with alone.running("work") as work:
        assert "ready" in work.ready
        assert alone.out("send", "hello", "--wait") == "you said hello\n"


def test_a_port_in_use_is_one_line(alone: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port}" in alone.refused("up", "--port", str(port))


def test_wrong_settings_name_their_line_and_start_nothing(alone: Shell) -> None:
    assert "HOLDFAST_LEASE: " in alone.refused("up", HOLDFAST_LEASE="soon")
    alone.write("holdfast.toml", "wrokers = 3\n")
    assert "holdfast.toml:1: there is no setting wrokers; did you mean workers?" in alone.refused(
        "up"
    )
    assert not (alone.folder / ".holdfast").exists()


def test_logs_go_to_stderr_and_the_ready_line_alone_to_stdout(alone: Shell) -> None:
    alone.write("my_app.py", APP)
    with alone.running("work", "--app", "my_app:app", HOLDFAST_LOG_FORMAT="json") as work:
        alone.out("send", "hello", "--agent", "broken")
        eventually(lambda: "the printer is on fire" in work.log)
        assert json.loads(work.log.splitlines()[0])["logger"].startswith("holdfast.")
        work.signal()
        assert work.end() == 0
        assert work.stdout.read() == ""


def test_the_home_folder_is_private(alone: Shell) -> None:
    with alone.running("work"):
        assert (alone.folder / ".holdfast").stat().st_mode & 0o077 == 0


def test_a_second_start_answers_within_three_seconds_of_processor_time(cold: Shell) -> None:
    with cold.running("up", "--port", "0") as first:
        first.signal()
        assert first.end() == 0
    cold.out("send", "hello")
    before = time.monotonic()
    with cold.running("up", "--port", "0") as up:
        eventually(lambda: cold.json("history", "--queue", "inbox"))
        used, took = cpu_of(up.process.pid), time.monotonic() - before
    print(f"first answer after {took:.2f} s, {used:.2f} s of processor time")
    assert used < 3


@pytest.mark.parametrize("workers", ["0", "-1"])
def test_fewer_workers_than_one_are_wrong_usage_in_one_line(alone: Shell, workers: str) -> None:
    result = alone.run("up", "--port", "0", "--workers", workers)
    assert result.returncode == 2
    assert (
        result.stderr
        == f"holdfast: --workers: input should be greater than or equal to 1 (it is {workers})\n"
    )

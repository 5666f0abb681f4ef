"""Command agents in a sandbox: what they can reach and what they cannot."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import AgentHarness, Dead, Done
from holdfast.agents import sandbox as sandboxes
from holdfast.agents.command import CommandAgent
from holdfast.agents.sandbox import Bubblewrap, NoSandbox, View, sandbox_of
from holdfast.agents.supervisor import SET_DUMPABLE
from holdfast.errors import HoldfastError
from holdfast.queue.outcome import Outcome
from holdfast.testing.trial import trial
from tests.agents.commands import TIMEOUT_SECONDS, Scripts
from tests.cli.shell import Shell, eventually

pytestmark = pytest.mark.skipif(
    not Path("/proc").exists(), reason="looks at processes as Linux shows them"
)

SCRIPT = Path(__file__).parents[2] / "tools" / "bubblewrap"
GET_DUMPABLE = 3
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run programs as another user")


@pytest.fixture(scope="session")
def bubblewrap() -> None:
    """Require bubblewrap; where it does not work tests are skipped, and in CI they fail."""
    asked = subprocess.run([SCRIPT], capture_output=True, text=True, check=False)
    sandboxes.bubblewrap_problem.cache_clear()
    problem = asked.stderr.strip() if asked.returncode else sandboxes.bubblewrap_problem()
    if problem:
        pytest.fail(problem, pytrace=False) if os.environ.get("CI") == "true" else pytest.skip(
            problem
        )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with secrets, and the workspace of another agent."""
    home = tmp_path / "home"
    (home / "workspace" / "other").mkdir(parents=True)
    for name in ("token-admin", "holdfast.db", "workspace/other/diary"):
        (home / name).write_text("precious")
    return home


async def ran(
    scripts: Scripts, home: Path, script: str, kind: str = "bubblewrap", **view: object
) -> Outcome:
    workspace = home / "workspace" / "coder"
    where = View(workspace, hidden=(home,), **view)  # type: ignore[arg-type]
    agent = CommandAgent(
        [scripts.write(script)], workspace, variables=["MARK"], sandbox=sandbox_of(kind, where)
    )
    app = AgentHarness()
    app.add("coder", agent)
    async with trial(app) as at_work, asyncio.timeout(TIMEOUT_SECONDS):
        await at_work.say("hello")
        [(_, outcome)] = await at_work.work()
        return outcome


async def ask(
    scripts: Scripts, home: Path, script: str, kind: str = "bubblewrap", **view: object
) -> str:
    outcome = await ran(scripts, home, script, kind, **view)
    assert isinstance(outcome, Done), outcome
    return str(outcome.emits[0].event["message"])


READ_SECRETS = """
cat {home}/token-admin {home}/holdfast.db {home}/workspace/other/diary 2>&1
cat ../../token-admin ../other/diary 2>&1
cat /proc/{pid}/environ 2>&1 | tr '\\0' ' '
for process in /proc/[0-9]*; do tr '\\0' ' ' < $process/environ 2>/dev/null; done
ls {home} {home}/workspace ~ 2>&1
cat /etc/shadow 2>&1
true
"""


@pytest.mark.usefixtures("bubblewrap")
async def test_issue_13_5_a_program_in_bubblewrap_reads_no_token_environment_or_workspace(
    scripts: Scripts, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "precious")
    probe = READ_SECRETS.format(home=home, pid=os.getpid())
    assert "precious" in await ask(scripts, home, probe, "none"), "without a sandbox it can"
    answer = await ask(scripts, home, probe)
    assert "precious" not in answer
    assert "99999:7" not in answer, "of /etc/shadow"
    assert answer.count("No such file or directory") >= 6
    assert f"{home}/workspace:\ncoder\n" in answer


@pytest.mark.usefixtures("bubblewrap")
async def test_a_program_in_bubblewrap_sees_no_process_but_its_own(
    scripts: Scripts, home: Path
) -> None:
    answer = await ask(scripts, home, f"ls -d /proc/[0-9]*; kill -0 {os.getpid()} 2>&1; echo $$")
    pids = [
        int(line.rpartition("/")[2]) for line in answer.splitlines() if line.startswith("/proc/")
    ]
    assert max(pids) < 10
    assert "No such process" in answer


@pytest.mark.usefixtures("bubblewrap")
async def test_the_system_is_read_only_and_the_workspace_is_not(
    scripts: Scripts, home: Path
) -> None:
    script = """
    pwd; echo kept > note; echo gone > ~/note; echo gone > /tmp/note
    for place in /usr /etc /; do touch $place/holdfast-was-here 2>&1; done; true
    """
    answer = await ask(scripts, home, script)
    workspace = home / "workspace" / "coder"
    assert answer.splitlines()[0] == str(workspace)
    assert answer.count("Read-only file system") >= 2
    assert (workspace / "note").read_text() == "kept\n"
    assert "note" not in [*os.listdir("/tmp"), *os.listdir(os.environ["HOME"])]


@pytest.mark.usefixtures("bubblewrap")
async def test_paths_can_be_opened_by_name_and_secrets_inside_stay_hidden(
    scripts: Scripts, home: Path, tmp_path: Path
) -> None:
    shared, written = tmp_path / "shared", tmp_path / "written"
    shared.mkdir()
    written.mkdir()
    (shared / "text").write_text("shared words")
    script = (
        f"cat {shared}/text {home}/token-admin 2>&1; "
        f"touch {shared}/new {tmp_path}/new 2>&1; touch {written}/new"
    )
    answer = await ask(scripts, home, script, readable=(tmp_path, shared), writable=(written,))
    assert "shared words" in answer
    assert "precious" not in answer
    assert not (shared / "new").exists()
    assert (written / "new").exists()


@pytest.mark.usefixtures("bubblewrap")
async def test_secrets_stay_hidden_behind_links_and_inside_of_arguments(
    scripts: Scripts, home: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    for folder in (link, tmp_path):
        tried = f"cat {folder}/home/token-admin {home}/token-admin 2>&1; ls {folder}"
        for answer in (
            await ask(scripts, home, tried, readable=(folder,)),
            await ask(scripts, home, tried, writable=(folder,)),
        ):
            assert "precious" not in answer
            assert "scripts" in answer


@pytest.mark.usefixtures("bubblewrap")
def test_an_argument_that_names_a_folder_above_the_home_shows_no_secret(
    home: Path, tmp_path: Path
) -> None:
    workspace = home / "workspace" / "coder"
    workspace.mkdir()
    wrapped = Bubblewrap(View(workspace, hidden=(home,))).wrap(["ls", "-R", str(tmp_path)])
    seen = subprocess.run(wrapped, capture_output=True, text=True, check=True).stdout
    assert f"{home}:\nworkspace\n" in seen
    assert "token" not in seen


@pytest.mark.usefixtures("bubblewrap")
async def test_the_network_is_a_setting(scripts: Scripts, home: Path) -> None:
    script = "ls /sys >/dev/null 2>&1; tail -n +3 /proc/net/dev | cut -d: -f1"
    assert set((await ask(scripts, home, script, network=False)).split()) == {"lo"}
    assert set((await ask(scripts, home, script)).split()) == set(os.listdir("/sys/class/net"))


@pytest.mark.usefixtures("bubblewrap")
async def test_a_program_in_a_sandbox_may_tidy_up(scripts: Scripts, home: Path) -> None:
    workspace = home / "workspace" / "coder"
    agent = CommandAgent(
        [
            scripts.write(
                "trap 'sleep 0.5; echo done > tidy; exit' TERM; "
                "echo begun > begun; while :; do sleep 0.05; done"
            )
        ],
        workspace,
        sandbox=Bubblewrap(View(workspace)),
    )
    app = AgentHarness()
    app.add("coder", agent)
    async with trial(app) as at_work, asyncio.TaskGroup() as group:
        await at_work.say("hello")
        working = group.create_task(at_work.work())
        await asyncio.to_thread(eventually, (workspace / "begun").exists)
        working.cancel()
        await asyncio.wait([working])
    assert (workspace / "tidy").exists()


@pytest.mark.usefixtures("bubblewrap")
async def test_an_interpreter_of_its_own_is_found(scripts: Scripts, home: Path) -> None:
    workspace = home / "workspace" / "coder"
    script = scripts.folder / "agent.py"
    script.write_text(f"#!{sys.executable}\nimport json\nprint(json.dumps([1]))\n")
    script.chmod(0o755)
    for command in ([str(script)], [sys.executable, str(script)]):
        app = AgentHarness()
        app.add("coder", CommandAgent(command, workspace, sandbox=Bubblewrap(View(workspace))))
        async with trial(app) as at_work:
            await at_work.say("hello")
            [(_, outcome)] = await at_work.work()
            assert isinstance(outcome, Done), outcome
            assert outcome.emits[0].event["message"] == "[1]"


@pytest.mark.usefixtures("bubblewrap")
async def test_the_error_for_a_file_missing_in_the_sandbox_names_the_setting(
    scripts: Scripts, home: Path
) -> None:
    helper = scripts.write("echo helped", "helper.sh")
    outcome = await ran(scripts, home, f"exec {helper}")
    assert isinstance(outcome, Dead)
    assert "`readable`" in outcome.reason
    assert await ask(scripts, home, f"exec {helper}", readable=(scripts.folder,)) == "helped"


@AS_ROOT
async def test_a_program_of_another_user_reads_no_token_and_no_environment(
    scripts: Scripts, home: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "precious")
    # A test before this one may have run a command in this process, which sets the umask.
    before = os.umask(0o022)
    request.addfinalizer(lambda: os.umask(before))
    for path in (home / "token-admin", home / "holdfast.db"):
        path.chmod(0o600)
    (home / "workspace" / "other").chmod(0o700)
    for folder in (scripts.folder, *scripts.folder.parents):
        if folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o011)
    script = "id -un; echo kept > note; " + READ_SECRETS.format(home=home, pid=os.getpid())
    answer = await ask(scripts, home, script, "user:nobody")
    assert answer.startswith("nobody\n")
    assert "precious" not in answer
    assert (home / "workspace" / "coder" / "note").owner() == "nobody"


def test_a_sandbox_that_does_not_work_is_refused_or_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sandboxes, "bubblewrap_problem", lambda: "bwrap is not installed")
    with pytest.raises(
        HoldfastError, match="bubblewrap does not work here: bwrap is not installed"
    ):
        sandbox_of("bubblewrap", View(tmp_path))
    assert sandbox_of("auto", View(tmp_path)) == NoSandbox("bwrap is not installed")
    with pytest.raises(HoldfastError, match="no user 'nobody-of-this-name'"):
        sandbox_of("user:nobody-of-this-name", View(tmp_path))
    with pytest.raises(HoldfastError, match="root keeps nothing apart"):
        sandbox_of("user:root", View(tmp_path))


def test_a_program_cannot_read_the_environment_of_a_process_that_is_not_dumpable(
    tmp_path: Path,
) -> None:
    """As a user without privileges: root may look into any process."""
    parent = (
        "import ctypes, subprocess, sys;"
        f"ctypes.CDLL(None).prctl({SET_DUMPABLE}, int(sys.argv[1]), 0, 0, 0);"
        "subprocess.run(['sh', '-c', 'cat /proc/$PPID/environ'])"
    )
    as_nobody = ["setpriv", "--reuid", "65534", "--clear-groups"] if os.geteuid() == 0 else []
    python = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
    found = [
        subprocess.run(
            [*as_nobody, python, "-I", "-S", "-c", parent, dumpable],
            env={"PATH": "/usr/bin:/bin", "SECRET": "precious"},
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
        )
        for dumpable in ("1", "0")
    ]
    assert "precious" in found[0].stdout
    assert found[1].stdout == ""
    assert "Permission denied" in found[1].stderr


AGENT = """
[agents.coder]
kind = "command"
command = ["./agent.sh"]
variables = ["MARK"]
"""


@pytest.fixture
def shell(scripts: Scripts) -> Shell:
    return Shell(scripts.folder)


@pytest.mark.usefixtures("bubblewrap")
def test_the_sandbox_is_shown_at_the_start_by_agents_and_by_doctor(
    scripts: Scripts, shell: Shell
) -> None:
    scripts.write("cat ~/.holdfast/token-admin ../../token-admin 2>&1; env")
    shell.write("holdfast.toml", AGENT)
    shell.write(".env", "SLACK_SIGNING_SECRET=precious\n")
    with shell.running("up", "--port", "0") as running:
        assert "agents coder; sandbox bubblewrap; " in running.ready
        token = (shell.folder / ".holdfast" / "token-admin").read_text().strip()
        answer = shell.out("send", "hello", "--wait")
        assert answer.count("No such file") == 2
        assert token not in answer
        assert "precious" not in answer
        assert "other users can" not in running.log
    assert shell.json("agents")[0]["sandbox"] == "bubblewrap"
    assert "ok    sandbox: coder in bubblewrap" in shell.run("doctor").stdout


def test_programs_without_a_sandbox_are_warned_of(scripts: Scripts, shell: Shell) -> None:
    scripts.write("cat")
    shell.write("holdfast.toml", 'sandbox = "none"\n' + AGENT)
    with shell.running("work") as running:
        assert "sandbox none" in running.ready
        assert "other users can read secrets" in running.log
        assert (
            "command agents without a sandbox can read the tokens and the database" in running.log
        )
    assert shell.json("agents")[0]["sandbox"] == "none"
    assert "warn  sandbox: command agents without a sandbox" in shell.run("doctor").stdout


WORKSPACES = 'sandbox = "none"\nworkspaces = "../workspaces"\n'


def test_workspaces_can_lie_outside_of_the_home_and_doctor_says_when_they_do_not(
    scripts: Scripts, shell: Shell
) -> None:
    advice = "workspaces lie inside of it: set workspaces to a folder elsewhere"
    scripts.write("pwd")
    shell.write("holdfast.toml", 'sandbox = "none"\n' + AGENT)
    assert advice in shell.run("doctor").stdout
    shell.write("holdfast.toml", WORKSPACES + AGENT)
    doctor = shell.run("doctor").stdout
    assert "warn  sandbox: command agents without a sandbox" in doctor
    assert advice not in doctor
    with shell.running("up", "--port", "0"):
        answer = shell.out("send", "hello", "--wait").strip()
    assert answer == str(shell.folder.parent / "workspaces" / "coder")
    assert not (shell.folder / ".holdfast" / "workspace").exists()


def test_a_workspace_that_would_hold_the_home_is_refused(scripts: Scripts, shell: Shell) -> None:
    scripts.write("cat")
    shell.write("holdfast.toml", f'home = "../coder/home"\nworkspaces = "../"\n{AGENT}')
    refused = shell.refused("work", HOLDFAST_HOME="")
    assert "holdfast.toml:2: workspaces:" in refused
    assert "holds files of Holdfast itself" in refused


@pytest.mark.usefixtures("bubblewrap")
def test_workspaces_of_others_stay_hidden_wherever_they_lie(scripts: Scripts, shell: Shell) -> None:
    other = shell.folder / "shared" / "workspaces" / "other"
    other.mkdir(parents=True)
    (other / "diary").write_text("precious")
    scripts.write("cat ../other/diary 2>&1; pwd")
    shared = 'workspaces = "shared/workspaces"\n' + AGENT + 'readable = ["./shared"]\n'
    shell.write("holdfast.toml", shared)
    with shell.running("up", "--port", "0"):
        answer = shell.out("send", "hello", "--wait")
    assert "No such file" in answer
    assert answer.strip().endswith(str(other.with_name("coder")))


def test_a_file_without_its_x_bit_is_reported(scripts: Scripts, shell: Shell) -> None:
    Path(scripts.write("cat")).chmod(0o644)
    shell.write("holdfast.toml", AGENT)
    line = shell.refused("work")
    path = shell.folder / "agent.sh"
    assert line.endswith(
        f"agents.coder.command: the file {path} is not executable; run: chmod +x {path}"
    )


def test_paths_that_are_missing_or_would_let_it_write_settings_are_refused(
    scripts: Scripts, shell: Shell
) -> None:
    scripts.write("cat")
    shell.write("holdfast.toml", f'{AGENT}readable = ["./missing"]\n')
    assert f"agents.coder.readable: {shell.folder / 'missing'} does not exist" in shell.refused(
        "work"
    )
    shell.write("holdfast.toml", f'{AGENT}writable = ["./"]\n')
    assert "holds files of Holdfast itself" in shell.refused("work")


def test_a_wrong_sandbox_is_refused_with_its_line(scripts: Scripts, shell: Shell) -> None:
    scripts.write("cat")
    shell.write("holdfast.toml", f'{AGENT}sandbox = "jail"\n')
    assert 'holdfast.toml:6: agents.coder.sandbox: a sandbox is "auto", "none"' in shell.refused(
        "work"
    )
    shell.write("holdfast.toml", f'{AGENT}sandbox = "bubblewrap"\n')
    refused = shell.refused("work", PATH="/nowhere")
    assert "bubblewrap does not work here: bwrap is not installed" in refused


@pytest.mark.parametrize(("setting", "dumpable"), [("", "0"), ("debuggable = true", "1")])
def test_the_worker_is_not_dumpable_unless_it_is_set(
    shell: Shell, setting: str, dumpable: str
) -> None:
    shell.write(
        "asked.py",
        f"import ctypes\ndef answer(turn): return str(ctypes.CDLL(None).prctl({GET_DUMPABLE}))\n",
    )
    shell.write(
        "holdfast.toml",
        f"{setting}\n[agents.asked]\nkind = 'function'\nfunction = 'asked:answer'\n",
    )
    with shell.running("work"):
        assert shell.out("send", "are you?", "--wait") == f"{dumpable}\n"


MCP = """
[agents.writer]
kind = "llm"
model = "script:my_model:play"
mcp = ["loud"]

[mcp.loud]
command = [
  "sh", "-c", "cat {home}/token-admin ../../token-admin > tried 2>&1; exec {python} {server}",
]
readable = ["{prefix}", "{base}", "{server}"]
sandbox = "bubblewrap"
"""
MODEL = """
from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturnPart

def play(messages, info):
    returned = [part.content for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if returned:
        return str(returned)
    return ModelResponse(parts=[ToolCallPart("loud_shout", {"text": "hello"})])
"""


@pytest.mark.usefixtures("bubblewrap")
def test_an_mcp_server_can_have_a_sandbox(scripts: Scripts, shell: Shell) -> None:
    home, server = shell.folder / ".holdfast", Path(__file__).parent / "mcp_server.py"
    names = {"python": sys.executable, "prefix": sys.prefix, "base": sys.base_prefix}
    shell.write("holdfast.toml", MCP.format(home=home, server=server, **names))
    shell.write("my_model.py", MODEL)
    shell.out("token")
    with shell.running("work") as work:
        assert shell.out("send", "hello", "--wait") == "['HELLO []']\n", work.log
    assert (home / "mcp" / "loud" / "tried").read_text().count("No such file or directory") == 2


@pytest.mark.usefixtures("bubblewrap")
def test_a_killed_worker_leaves_nothing_in_a_sandbox(scripts: Scripts, shell: Shell) -> None:
    scripts.write(
        "setsid sh -c 'trap \"\" TERM; sleep 1000 & sleep 1001' & (sleep 1002 &) ; sleep 1003"
    )
    shell.write("holdfast.toml", f'{AGENT}sandbox = "bubblewrap"\n')
    with shell.running("work") as running:
        shell.out("send", "hello")
        assert scripts.until(
            lambda left: {f"sleep {number} " for number in range(1000, 1004)} <= set(left.values())
        )
        running.signal(signal.SIGKILL)
        assert scripts.until(lambda left: not left), scripts.left()

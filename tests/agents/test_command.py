"""Command agents as real processes: every turn ends, and no process is left."""

from __future__ import annotations

import asyncio
import subprocess
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import AgentHarness, Dead, Done, Reply, Retry
from holdfast.agents.command import END_WITHIN, CommandAgent
from holdfast.agents.supervisor import supervised_command
from holdfast.agents.turn import Turn
from holdfast.queue.event import INBOX
from holdfast.queue.outcome import Outcome
from holdfast.routing.router import Address, put_message
from holdfast.telemetry import TOKENS
from holdfast.testing.trial import Trial, trial
from tests.agents.commands import TIMEOUT_SECONDS, Scripts

pytestmark = pytest.mark.skipif(
    not Path("/proc").exists(), reason="looks at processes as Linux shows them"
)

SHORT = timedelta(milliseconds=300)
HANG = "while :; do sleep 0.05; done"


def app_of(
    scripts: Scripts,
    script: str,
    *arguments: str,
    policy: dict[str, Any] | None = None,
    **more: Any,
) -> AgentHarness:
    app = AgentHarness()
    command = [scripts.write(script), *arguments]
    agent = CommandAgent(command, scripts.folder.parent / "workspace", variables=["MARK"], **more)
    app.add("coder", agent, **(policy or {}))
    return app


async def outcome_of(app: AgentHarness, text: str = "hello") -> tuple[Outcome, Trial]:
    # A process that is left behind keeps the output open, which must not block the turn.
    async with trial(app) as at_work, asyncio.timeout(TIMEOUT_SECONDS):
        await at_work.say(text)
        [(_, outcome)] = await at_work.work()
        return outcome, at_work


async def answer(app: AgentHarness, text: str = "hello") -> str:
    outcome, _ = await outcome_of(app, text)
    assert isinstance(outcome, Done), outcome
    return str(outcome.emits[0].event["message"])


async def failure(app: AgentHarness) -> Retry:
    outcome, _ = await outcome_of(app)
    assert isinstance(outcome, Retry), outcome
    return outcome


async def test_the_message_is_on_standard_input_and_nowhere_else(scripts: Scripts) -> None:
    app = app_of(scripts, 'echo "$# arguments"; tr "\\0" " " < /proc/$$/cmdline; echo; cat')
    message = "--version; $(id) `id` 'quoted' " + "x" * 300_000 + " end"
    arguments, line, *rest = (await answer(app, message)).splitlines()
    assert arguments == "0 arguments"
    assert "version" not in line
    assert "\n".join(rest) == message


async def test_it_works_in_its_own_folder_with_an_environment_of_its_own(
    scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOLDFAST_DATABASE", "SLACK_BOT_TOKEN", "OPENAI_API_KEY", "PGPASSWORD"):
        monkeypatch.setenv(name, "secret")
    output = await answer(app_of(scripts, "pwd; env"))
    assert output.splitlines()[0] == str(scripts.folder.parent / "workspace")
    assert "secret" not in output
    assert f"MARK={scripts.mark}" in output
    assert "HOLDFAST_AGENT=coder" in output
    assert "HOLDFAST_CHANNEL=api" in output


async def test_one_run_takes_all_that_waits_for_the_agent(scripts: Scripts) -> None:
    policy = app_of(scripts, "cat").policies["coder"]
    assert (policy.lane, policy.turns) == ("agent", "collect")
    assert app_of(scripts, "cat", policy={"turns": "each"}).policies["coder"].turns == "each"


async def test_one_that_hangs_is_ended_at_its_time_limit(scripts: Scripts) -> None:
    failed = await failure(app_of(scripts, HANG, policy={"timeout": SHORT}))
    assert failed.error_class == "timeout"
    assert scripts.left() == {}


async def test_one_that_shows_no_sign_of_work_is_ended(scripts: Scripts) -> None:
    failed = await failure(app_of(scripts, HANG, policy={"idle": SHORT}))
    assert failed.error_class == "idle"


async def test_output_and_complaints_are_signs_of_work(scripts: Scripts) -> None:
    busy = "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.3; echo $i >&2; sleep 0.3; done"
    assert (await answer(app_of(scripts, busy, policy={"idle": timedelta(seconds=2)}))).endswith(
        "8"
    )


@pytest.mark.parametrize("script", ["yes", "trap '' TERM; yes", "yes noise >&2 & yes"])
async def test_one_that_floods_its_output_is_stopped(scripts: Scripts, script: str) -> None:
    since = time.monotonic()
    failed = await failure(app_of(scripts, script, max_output=100_000))
    assert failed.error_class == "flood"
    assert "more than 100000 bytes" in str(failed.error)
    assert scripts.left() == {}
    assert time.monotonic() - since < END_WITHIN, "it is not waited for in vain"


async def test_a_flood_of_complaints_keeps_only_its_end(scripts: Scripts) -> None:
    failed = await failure(
        app_of(scripts, "yes noise | head -c 5000000 >&2; echo the end >&2; exit 3")
    )
    assert str(failed.error).endswith("the end")
    assert len(str(failed.error)) < 5000


async def test_a_program_that_dies_is_retried_with_the_end_of_its_stderr(scripts: Scripts) -> None:
    failed = await failure(app_of(scripts, "echo half an answer; echo disk full >&2; exit 3"))
    assert failed.error_class == "exit"
    assert "ended with exit code 3: disk full" in str(failed.error)
    assert "was ended by SIGKILL" in str((await failure(app_of(scripts, "kill -9 $$"))).error)


async def test_one_that_ignores_sigterm_is_killed(scripts: Scripts) -> None:
    since = time.monotonic()
    failed = await failure(
        app_of(scripts, f"trap '' TERM INT HUP; {HANG}", policy={"timeout": SHORT})
    )
    assert failed.error_class == "timeout"
    assert scripts.left() == {}
    assert time.monotonic() - since < 10


async def test_one_that_obeys_sigterm_may_tidy_up(scripts: Scripts) -> None:
    tidy = scripts.folder / "tidy"
    await failure(
        app_of(scripts, f"trap 'echo done > {tidy}; exit' TERM; {HANG}", policy={"timeout": SHORT})
    )
    assert tidy.exists()


async def test_children_do_not_outlive_it(scripts: Scripts) -> None:
    children = (
        "sleep 1000 & (sleep 1001 &) ; setsid sleep 1002 & "
        "setsid sh -c 'trap \"\" TERM; sleep 1003 & sleep 1004' &"
    )
    assert await answer(app_of(scripts, f"{children} sleep 0.3; echo done")) == "done"
    assert scripts.left() == {}


async def test_children_do_not_outlive_a_time_limit(scripts: Scripts) -> None:
    children = "(setsid sh -c 'trap \"\" TERM; sleep 1000 & sleep 1001' &) ; sleep 1002 &"
    await failure(app_of(scripts, f"{children} {HANG}", policy={"timeout": timedelta(seconds=1)}))
    assert scripts.left() == {}


async def test_one_that_does_not_read_may_answer(scripts: Scripts) -> None:
    assert await answer(app_of(scripts, "exec <&-; echo fine"), "x" * 1_000_000) == "fine"


async def test_a_run_without_output_answers_so(scripts: Scripts) -> None:
    assert await answer(app_of(scripts, "echo; echo '  '")) == "(no answer)"


async def test_output_that_is_no_text_is_decoded(scripts: Scripts) -> None:
    assert await answer(app_of(scripts, r"printf 'a\377b\000c'")) == "a\ufffdb\x00c"


async def test_a_program_that_is_not_there_is_a_dead_letter_that_says_so(tmp_path: Path) -> None:
    app = AgentHarness()
    app.add("coder", CommandAgent(["/no/such/program"], tmp_path))
    outcome, _ = await outcome_of(app)
    assert isinstance(outcome, Dead)
    assert "/no/such/program cannot be started: No such file" in outcome.reason


async def test_a_cancelled_turn_leaves_nothing(scripts: Scripts) -> None:
    app = app_of(scripts, f"trap '' TERM; sleep 1000 & {HANG}")
    async with trial(app) as at_work, asyncio.TaskGroup() as group:
        await at_work.say("hello")
        working = group.create_task(at_work.work())
        assert await asyncio.to_thread(scripts.until, lambda left: len(left) >= 3)
        working.cancel()
        await asyncio.wait([working])
        assert scripts.left() == {}


def test_a_program_can_be_ended_with_its_own_standard_input(scripts: Scripts) -> None:
    command = supervised_command(
        0, [scripts.write(f"echo begun; trap '' TERM; setsid sleep 1000 & {HANG}")]
    )
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"not for the supervisor")
        process.stdin.flush()
        assert process.stdout.readline() == b"begun\n"
        process.stdin.close()
        process.wait(20)
    assert scripts.left() == {}


async def test_messages_that_waited_are_one_run(scripts: Scripts) -> None:
    app = app_of(scripts, "cat")
    async with trial(app) as at_work:
        store = at_work.store
        for text in ("first", "second"):
            await put_message(store, app.routing, text, Address(sender="ann"), max_attempts=3)
        [leased] = await store.claim(
            INBOX,
            ["coder", ""],
            limit=5,
            lease=timedelta(minutes=1),
            collect_limit=10,
            max_attempts=3,
        )
        reply = await app.agents["coder"].answer(Turn(leased, "coder"))
    assert isinstance(reply, Reply)
    assert reply.text == "ann: first\n\nann: second"


async def test_tokens_that_a_program_tells_of_are_counted(scripts: Scripts) -> None:
    result = (
        '{"type": "result", "result": "done", "usage": {"input_tokens": 5, "output_tokens": 2}}'
    )
    app = app_of(scripts, f"echo '{result}'")
    outcome, _ = await outcome_of(app)
    assert isinstance(outcome, Done)
    assert outcome.emits[0].event["metadata"]["usage"] == {"input_tokens": 5, "output_tokens": 2}
    assert TOKENS.values["coder", "agent.sh", "output"] == 2

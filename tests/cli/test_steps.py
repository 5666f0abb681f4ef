"""Commands that show or decide on the steps of a message: history, dead and status."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from holdfast.queue.event import INBOX, NewEvent
from holdfast.queue.journal import JournalEntry, Step, Write
from holdfast.queue.outcome import Dead, Done, Outcome
from holdfast.store import open_store
from tests.cli.shell import Shell

CHARGE = Step(
    key="charge card", kind="once", state="started", attempt=1, arguments='{"args": [12]}'
)
UNKNOWN = Dead("charge card may have happened", "EffectUnknown")


def worked(url: str, steps: Sequence[Step] = (), end: Outcome | None = None) -> int:
    """A message whose turn recorded these steps and some text, and ended so; its event id."""

    async def work() -> int:
        async with open_store(url) as store:
            message = {"kind": "message", "channel": "api", "sender": "Ada", "message": "hi"}
            [id_] = await store.put([NewEvent(event=message, target="coder", message_id="api_1")])
            [turn] = await store.claim(INBOX, ["coder"], limit=1, lease=timedelta(minutes=9))
            text = Write(1, 0, "Dear Ada,\nhel")
            await store.record(
                JournalEntry(turn=turn, steps=steps, write=text, progress="reading 3 of 7 files")
            )
            if end is not None:
                await store.settle([(turn, end)])
            assert id_ is not None
            return id_

    return asyncio.run(work())


def test_history_shows_the_steps_and_the_text_of_one_event(shell: Shell, url: str) -> None:
    look = Step(key="look", state="done", attempt=1, result='{"found": 7}')
    failed = Step(key="ask", state="failed", attempt=1, error="RuntimeError: no")
    id_ = worked(url, [look, failed], Done())
    shown = shell.out("history", str(id_))
    for text in ("look", '{"found": 7}', "RuntimeError: no", "completed", "Dear Ada,\nhel"):
        assert text in shown
    assert "Dear Ada,\nhel" in shell.out("history", "api_1"), "by the id of the message"
    found = shell.json("history", str(id_))
    states = [(step["key"], step["state"], step["attempt"]) for step in found["steps"]]
    assert states == [("look", "done", 1), ("ask", "failed", 1)]
    assert (found["event"]["id"], found["text"]) == (id_, "Dear Ada,\nhel")
    assert "there is no event 4711" in shell.refused("history", "4711")


def test_status_shows_the_progress_of_running_turns(shell: Shell, url: str) -> None:
    id_ = worked(url)
    [running] = shell.json("status")["running"]
    assert (running["id"], running["agent"]) == (id_, "coder")
    assert running["progress"] == "reading 3 of 7 files"
    assert "reading 3 of 7 files" in shell.out("status")


def test_a_call_that_may_have_happened_is_shown_and_retried_only_with_an_assumption(
    shell: Shell, url: str
) -> None:
    id_ = str(worked(url, [CHARGE], UNKNOWN))
    shown = shell.out("dead", "show", id_)
    assert 'charge card with {"args": [12]}' in shown
    assert f"`holdfast dead retry {id_} --assume done` or `--assume not-done`" in shown
    [call] = shell.json("dead", "show", id_)["unknownCalls"]
    assert call["key"] == "charge card"
    assert f"a call may have happened: {id_}" in shell.refused("dead", "retry", id_)
    bulk = shell.run("dead", "retry", "--all")
    assert (bulk.returncode, bulk.stdout) == (0, "retried 0\n")
    assert f"a call may have happened: {id_}" in bulk.stderr
    shell.refused("dead", "retry", id_, "--assume", "perhaps", code=2)
    assert shell.out("dead", "retry", id_, "--assume", "done") == f"retried 1: {id_}\n"
    [step] = shell.json("history", id_)["steps"]
    assert step["state"] == "done"


def test_a_call_assumed_not_done_runs_again(shell: Shell, url: str) -> None:
    id_ = str(worked(url, [CHARGE], UNKNOWN))
    assert shell.out("dead", "retry", id_, "--assume", "not-done") == f"retried 1: {id_}\n"
    [step] = shell.json("history", id_)["steps"]
    assert (step["key"], step["state"]) == ("charge card", "failed")

"""An on-call helper: follows the runbook of an alert, and asks people before it changes anything.

Steps that are recorded never run again, whatever is killed in between."""

from __future__ import annotations

import asyncio
import os
import tomllib
from pathlib import Path

from pydantic import BaseModel, TypeAdapter

from holdfast import AgentHarness, NotDone, Turn

app = AgentHarness(default="oncall")

LONGEST_WAIT = "30 min"
GO, STOP = "Do it", "Stop here"
RUNBOOKS = Path("runbooks.toml")


class Change(BaseModel):
    """The dangerous side of a step: what people are asked, and how to see that it happened."""

    ask: str
    done: str
    """A command that succeeds if the step of this incident was carried out."""


class Step(BaseModel):
    """One step of a runbook. Without a change it only looks, and may run twice."""

    name: str
    run: str
    change: Change | None = None


class Runbook(BaseModel):
    """The steps to take at alerts that contain one of the words."""

    title: str
    words: list[str]
    steps: list[Step]


def find_runbook(alert: str) -> Runbook | None:
    """Return the runbook of an alert. It is read anew, so that people can edit it at any time."""
    known = TypeAdapter(dict[str, Runbook]).validate_python(tomllib.loads(RUNBOOKS.read_text()))
    words = set(alert.lower().split())
    return next((book for book in known.values() if words & set(book.words)), None)


@app.agent("oncall", name="On-call", while_waiting="release")
async def oncall(turn: Turn) -> str:
    """Work through the runbook of an alert."""
    book = await turn.step("find runbook", find_runbook, turn.text)
    if book is None:
        return f"There is no runbook for this. Add one to `{RUNBOOKS}` and ask again."
    report = [f"**{book.title}**"]
    for number, step in enumerate(book.steps, start=1):
        turn.progress(f"step {number} of {len(book.steps)}: {step.name}")
        if step.change and (refusal := await ask(turn, number, step.change, report)):
            return "\n".join([*report, f"{number}. {step.name}: not done, {refusal}"])
        report.append(f"{number}. {step.name}: {await carry_out(turn, step)}")
    return "\n".join([*report, "All steps are done."])


async def ask(turn: Turn, number: int, change: Change, report: list[str]) -> str | None:
    """Ask for approval, with the report so far. Returns the reason for not going on."""
    try:
        choice = await turn.signal(
            f"step {number}",
            timeout=LONGEST_WAIT,
            prompt="\n".join([*report, "", f"**{change.ask}**"]),
            options=[GO, STOP],
        )
    except TimeoutError:
        return f"nobody answered within {LONGEST_WAIT}"
    return None if choice == GO else "somebody chose to stop"


async def carry_out(turn: Turn, step: Step) -> str:
    """Run the command of a step, once for this alert."""
    incident = turn.message_id or ""
    if step.change is None:
        return await turn.step(step.name, run, step.run, incident)
    return await turn.step(
        step.name, change, step.run, incident, step.change.done, effect="once", probe=was_changed
    )


async def change(command: str, incident: str, done: str) -> str:
    return await run(command, incident)


async def was_changed(command: str, incident: str, done: str) -> str:
    """Look whether a change happened whose worker died before it could record the result."""
    try:
        await run(done, incident)
    except RuntimeError as error:
        raise NotDone(str(error)) from None
    return "done before the worker was interrupted"


async def run(command: str, incident: str) -> str:
    """Run a command. Its environment has the id of the alert, and none of our tokens."""
    process = await asyncio.create_subprocess_shell(
        command,
        env={"PATH": os.environ.get("PATH", os.defpath), "INCIDENT": incident},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    text = output.decode(errors="replace").strip()
    if process.returncode:
        raise RuntimeError(f"`{command}` ended with {process.returncode}: {text}")
    return f"`{text}`" if text else "ok"

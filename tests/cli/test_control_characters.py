"""Other people's texts cannot move the cursor of a terminal, recolour it or reverse words."""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.queue.event import INBOX, NewEvent
from holdfast.queue.outcome import Dead, Done
from holdfast.store import open_store
from holdfast.telemetry.printable import printable, printable_json
from holdfast.testing.databases import Databases
from tests.cli.shell import ROOT, Shell

EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202eevil\u2066\r\x7f"
FORBIDDEN = set(EVIL) - set("evil[2J]0;owned31m")


@pytest.fixture
def url(databases: Databases) -> Iterator[str]:
    """SQLite alone: tests of the stores cover all engines."""
    with databases.fresh("sqlite") as url:
        yield url


@pytest.fixture
def dead_id(url: str) -> int:
    """A dead letter and a finished message whose every text is hostile."""

    async def ending() -> int:
        async with open_store(url) as store:
            payload = {
                "kind": "message",
                "channel": "api",
                "sender": EVIL,
                "message": EVIL,
                "agent": EVIL,
            }
            ids = await store.put(
                [NewEvent(event=payload, message_id=f"{EVIL}{number}") for number in range(2)]
            )
            turns = await store.claim(INBOX, [""], limit=2, lease=timedelta(minutes=1))
            await store.settle(
                [(turns[0], Dead(EVIL, EVIL, f"Traceback\n{EVIL}")), (turns[1], Done())]
            )
            assert ids[0] is not None
            return ids[0]

    return asyncio.run(ending())


@pytest.mark.parametrize(
    "command",
    ["dead list", "dead show {}", "history", "status", "dead list --json", "history --json"],
)
def test_issue_13_18_control_characters_are_replaced(
    shell: Shell, dead_id: int, command: str
) -> None:
    printed = shell.out(*command.format(dead_id).split())
    assert FORBIDDEN.isdisjoint(printed), command


def test_issue_13_18_send_wait_replaces_control_characters(shell: Shell) -> None:
    shell.write(
        "hostile.py",
        f"from holdfast import AgentHarness\napp = AgentHarness(lambda turn: {EVIL!r})\n",
    )
    with shell.running("work", "--app", "hostile:app"):
        printed = shell.out("send", "hi", "--wait")
    assert "evil" in printed
    assert FORBIDDEN.isdisjoint(printed)


def test_json_gives_a_program_the_text_as_it_is(shell: Shell, dead_id: int) -> None:
    [letter] = json.loads(shell.out("dead", "list", "--json"))
    assert letter["event"]["message"] == EVIL


def test_issue_14_24_dead_show_has_the_traceback(shell: Shell, dead_id: int) -> None:
    assert "Traceback" in shell.out("dead", "show", str(dead_id))


def test_commands_print_through_one_module_only() -> None:
    """That module replaces control characters."""
    faults = [
        f"{path.name}:{node.lineno}"
        for path in sorted((ROOT / "holdfast" / "cli").glob("*.py"))
        if path.name != "printing.py"
        for node in ast.walk(ast.parse(Path(path).read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("typer.echo", "typer.secho", "print", "click.echo")
    ]
    assert faults == []


@given(st.text())
def test_printable_texts_stay_the_same(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text)
    assert all(new in (old, "\ufffd") for old, new in zip(text, shown, strict=True))
    assert printable(shown) == shown
    assert shown.encode().decode() == shown


@given(st.dictionaries(st.text(), st.text()))
def test_json_stays_the_same_json(data: dict[str, str]) -> None:
    assert json.loads(printable_json(json.dumps(data, ensure_ascii=False))) == data

"""`holdfast dead`, `history` and `replay`."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

import pytest

from holdfast.queue.event import INBOX, OUTBOX, NewEvent
from holdfast.queue.outcome import Dead, Done, Outcome
from holdfast.store import open_store
from holdfast.testing.databases import Databases
from tests.cli.shell import Shell


def end(url: str, *ends: tuple[str, str, Outcome]) -> list[int]:
    """Create events that ended with these outcomes. Returns their ids."""

    async def ending() -> list[int]:
        ids = []
        async with open_store(url) as store:
            await store.set_setting(
                "routing", {"default": "coder", "lanes": {"coder": "conversation"}}
            )
            for queue, target, outcome in ends:
                payload = {
                    "kind": "message",
                    "channel": "api",
                    "message": f"for {target or 'anybody'}",
                }
                await store.put([NewEvent(event=payload, queue=queue, target=target)])
                [turn] = await store.claim(queue, [target], limit=1, lease=timedelta(minutes=1))
                await store.settle([(turn, outcome)])
                ids += turn.ids
        return ids

    return asyncio.run(ending())


@pytest.fixture
def url(databases: Databases) -> Iterator[str]:
    """SQLite alone: tests of the stores cover all engines."""
    with databases.fresh("sqlite") as url:
        yield url


@pytest.fixture
def dead_ids(url: str) -> list[int]:
    return some_dead(url)


def some_dead(url: str) -> list[int]:
    return end(
        url,
        (INBOX, "", Dead("boom: the oven")),
        (INBOX, "coder", Dead("boom: the stove")),
        (INBOX, "writer", Dead("out of ink")),
        (OUTBOX, "slack", Dead("channel_not_found")),
        (INBOX, "coder", Done()),
    )


def listed(shell: Shell, *arguments: str) -> list[int]:
    return [letter["id"] for letter in shell.json("dead", "list", *arguments)]


def test_dead_letters_are_listed_newest_first_by_queue_agent_and_error(
    shell: Shell, dead_ids: list[int]
) -> None:
    anybody, coder, writer, slack, _ = dead_ids
    assert listed(shell) == [slack, writer, coder, anybody]
    assert listed(shell, "--queue", "outbox") == [slack]
    assert listed(shell, "--agent", "writer") == [writer]
    assert listed(shell, "--error", "BOOM") == [coder, anybody]
    assert listed(shell, "--limit", "2", "--before", str(slack)) == [writer, coder]


def test_the_default_agent_has_the_messages_that_name_nobody(
    shell: Shell, dead_ids: list[int]
) -> None:
    anybody, coder, *_ = dead_ids
    assert listed(shell, "--agent", "coder") == [coder, anybody]


def test_the_table_shows_target_and_error(shell: Shell, dead_ids: list[int]) -> None:
    text = shell.out("dead", "list")
    assert "out of ink" in text
    assert "for writer" in text
    assert str(dead_ids[2]) in text


def test_show_prints_one_dead_letter_in_full(shell: Shell, dead_ids: list[int]) -> None:
    assert "channel_not_found" in shell.out("dead", "show", str(dead_ids[3]))
    letter = shell.json("dead", "show", str(dead_ids[3]))
    assert (letter["outcome"], letter["last_error"], letter["target"]) == (
        "dead",
        "channel_not_found",
        "slack",
    )
    assert "no dead letter 999" in shell.refused("dead", "show", "999")


def test_a_retried_dead_letter_is_live_again(shell: Shell, dead_ids: list[int]) -> None:
    assert shell.out("dead", "retry", str(dead_ids[2])) == f"retried 1: {dead_ids[2]}\n"
    assert dead_ids[2] not in listed(shell)
    assert shell.json("status")["queues"][0]["ready"] == 1


def test_a_discarded_dead_letter_leaves_only_its_id(shell: Shell, dead_ids: list[int]) -> None:
    assert shell.json("dead", "discard", str(dead_ids[2])) == [dead_ids[2]]
    assert dead_ids[2] not in listed(shell)
    [gone] = shell.json("history", "--outcome", "discarded")
    assert (gone["id"], gone["event"], gone["last_error"]) == (dead_ids[2], {}, None)


def test_options_select_many_dead_letters(shell: Shell, dead_ids: list[int]) -> None:
    anybody, coder, writer, slack, _ = dead_ids
    assert shell.json("dead", "retry", "--agent", "coder") == [anybody, coder]
    assert shell.json("dead", "discard", "--error", "ink") == [writer]
    assert shell.json("dead", "retry", "--all") == [slack]
    assert shell.out("dead", "retry", "--all") == "retried 0\n"


def test_no_argument_does_not_mean_all(shell: Shell, dead_ids: list[int]) -> None:
    for verb in ("retry", "discard"):
        assert "--all" in shell.refused("dead", verb, code=2)
        assert "either" in shell.refused("dead", verb, "1", "--all", code=2)
    assert len(listed(shell)) == 4


def test_unknown_ids_are_named_and_the_others_are_retried(
    shell: Shell, dead_ids: list[int]
) -> None:
    assert "no dead letter 999" in shell.refused("dead", "retry", "999")
    done = shell.run("dead", "retry", str(dead_ids[0]), "999", str(dead_ids[4]))
    assert (done.returncode, done.stdout) == (1, f"retried 1: {dead_ids[0]}\n")
    assert f"no dead letter 999, {dead_ids[4]}" in done.stderr


def test_ids_that_need_a_decision_are_named_however_many_they_are(shell: Shell, url: str) -> None:
    unknown = Dead("charge card may have happened", "EffectUnknown")
    ids = end(url, *[(INBOX, "coder", unknown)] * 101)
    refusal = shell.refused("dead", "retry", *map(str, ids))
    assert f"a call may have happened: {ids[0]}, " in refusal
    assert "no dead letter" not in refusal


def test_history_lists_all_finished_events(shell: Shell, dead_ids: list[int]) -> None:
    assert [event["id"] for event in shell.json("history")] == dead_ids[::-1]
    assert [event["id"] for event in shell.json("history", "--outcome", "completed")] == [
        dead_ids[4]
    ]
    assert [
        event["id"] for event in shell.json("history", "--agent", "writer", "--limit", "1")
    ] == [dead_ids[2]]
    assert "completed" in shell.out("history")


def test_a_replayed_event_is_a_new_event(shell: Shell, dead_ids: list[int]) -> None:
    [made] = shell.json("replay", str(dead_ids[4]))
    assert made["id"] == dead_ids[4]
    assert made["newId"] > dead_ids[4]
    assert shell.json("status")["queues"][0]["ready"] == 1
    done = shell.run("replay", str(dead_ids[4]), "999")
    assert (done.returncode, done.stdout.startswith(f"event {dead_ids[4]} again as event ")) == (
        1,
        True,
    )
    assert "999" in done.stderr


def test_all_of_it_works_on_postgresql(alone: Shell, postgres: str) -> None:
    anybody, coder, writer, slack, done = some_dead(postgres)
    alone.environment["HOLDFAST_DATABASE"] = postgres
    assert listed(alone) == [slack, writer, coder, anybody]
    assert "channel_not_found" in alone.out("dead", "show", str(slack))
    assert alone.json("dead", "retry", "--agent", "coder") == [anybody, coder]
    assert alone.json("dead", "discard", str(writer)) == [writer]
    assert [made["id"] for made in alone.json("replay", str(done))] == [done]
    assert [event["id"] for event in alone.json("history")] == [done, slack, writer]


def test_an_empty_list_is_a_sentence_or_an_empty_array(shell: Shell) -> None:
    assert shell.out("dead", "list") == "there are no dead letters\n"
    assert shell.out("history") == "nothing has finished yet\n"
    assert shell.json("dead", "list") == []


def test_wrong_usage_is_exit_2(alone: Shell) -> None:
    for arguments in (
        "dead",
        "dead list --limit 0",
        "dead show",
        "dead show x",
        "replay",
        "dead nope",
    ):
        assert "--help" in alone.refused(*arguments.split(), code=2)


def test_a_dead_letter_is_a_page_with_its_payload_and_the_command_that_retries_it(
    shell: Shell, dead_ids: list[int]
) -> None:
    page = shell.out("dead", "show", str(dead_ids[1]))
    assert page.startswith(f"dead letter {dead_ids[1]}\n  for       coder (inbox)\n")
    assert "  error     boom: the stove\n" in page
    assert "  ended     dead " in page
    assert '\n{\n  "kind": "message",\n' in page
    assert page.endswith(f"retry with `holdfast dead retry {dead_ids[1]}`\n")


def test_an_error_names_its_class_once(shell: Shell, url: str) -> None:
    [id_] = end(url, (INBOX, "coder", Dead("ValueError: no", "ValueError")))
    page = shell.out("dead", "show", str(id_))
    assert "  error     ValueError: no\n" in page
    assert ", after 1 attempt\n" in page


def test_unknown_filter_values_are_errors_that_list_the_known(
    shell: Shell, dead_ids: list[int]
) -> None:
    for command in (("dead", "list"), ("history",), ("dead", "retry"), ("dead", "discard")):
        refusal = shell.refused(*command, "--queue", "inbxo")
        assert refusal == "holdfast: there is no queue 'inbxo'; known are: inbox, outbox, memory"
        assert "there is no agent 'codre'; known are: coder" in shell.refused(
            *command, "--agent", "codre"
        )
    unknown = shell.refused("history", "--outcome", "daed", code=2)
    assert "there is no outcome 'daed'; known are: completed, dead" in unknown
    # Its events in the history make an agent known, though no process serves it.
    assert listed(shell, "--agent", "writer") == [dead_ids[2]]


@pytest.mark.parametrize(("answer", "left"), [("n", 4), ("y", 0)])
def test_discarding_all_asks_at_a_terminal(
    shell: Shell, dead_ids: list[int], answer: str, left: int
) -> None:
    code, text = at_terminal(shell, answer, "dead", "discard", "--all")
    assert "cannot be restored. [y/N]" in text
    assert (code, len(listed(shell))) == (0 if answer == "y" else 1, left)


def test_discarding_all_does_not_ask_with_yes(shell: Shell, dead_ids: list[int]) -> None:
    code, text = at_terminal(shell, "", "dead", "discard", "--all", "--yes")
    assert "[y/N]" not in text
    assert (code, listed(shell)) == (0, [])


def test_lists_fit_into_eighty_columns_and_have_colours_unless_told_otherwise(
    shell: Shell, dead_ids: list[int]
) -> None:
    for command in (("dead", "list"), ("history",), ("status",), ("agents",)):
        _, text = at_terminal(shell, "", *command, COLUMNS="80", NO_COLOR="1")
        assert "\x1b[3" not in text
        plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
        assert max(len(line.rstrip()) for line in plain.splitlines()) <= 80
    _, text = at_terminal(shell, "", "dead", "list", COLUMNS="80")
    assert " s ago" in text
    assert "out of ink" in text
    assert "\x1b[31m" in text


def at_terminal(shell: Shell, answer: str, *arguments: str, **variables: str) -> tuple[int, str]:
    """Run a command at a terminal and type an answer. Returns its exit code and its output."""
    leader, follower = pty.openpty()
    environment = shell.environment | {"TERM": "xterm"} | variables
    command = [sys.executable, "-m", "holdfast", *arguments]
    process = subprocess.Popen(
        command, cwd=shell.folder, env=environment, stdin=follower, stdout=follower, stderr=follower
    )
    os.close(follower)
    if answer:
        os.write(leader, f"{answer}\n".encode())
    shown = b""
    # Reading a terminal whose last user has gone is an error.
    with suppress(OSError):
        while chunk := os.read(leader, 65_536):
            shown += chunk
    os.close(leader)
    return process.wait(60), shown.decode()

"""`dead`, `history` and `replay`: what has ended, found, shown and brought back."""

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
    """Events of a queue and target that ended so; their ids."""

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
    """SQLite: what the stores do is tried elsewhere, on all of them."""
    with databases.fresh("sqlite") as url:
        yield url


@pytest.fixture
def letters(url: str) -> list[int]:
    return some_letters(url)


def some_letters(url: str) -> list[int]:
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
    shell: Shell, letters: list[int]
) -> None:
    anybody, coder, writer, slack, _ = letters
    assert listed(shell) == [slack, writer, coder, anybody]
    assert listed(shell, "--queue", "outbox") == [slack]
    assert listed(shell, "--agent", "writer") == [writer]
    assert listed(shell, "--error", "BOOM") == [coder, anybody]
    assert listed(shell, "--limit", "2", "--before", str(slack)) == [writer, coder]


def test_the_default_agent_has_the_messages_that_name_nobody(
    shell: Shell, letters: list[int]
) -> None:
    anybody, coder, *_ = letters
    assert listed(shell, "--agent", "coder") == [coder, anybody]


def test_the_table_shows_who_and_why(shell: Shell, letters: list[int]) -> None:
    text = shell.out("dead", "list")
    assert "out of ink" in text
    assert "for writer" in text
    assert str(letters[2]) in text


def test_one_is_shown_in_full(shell: Shell, letters: list[int]) -> None:
    assert "channel_not_found" in shell.out("dead", "show", str(letters[3]))
    letter = shell.json("dead", "show", str(letters[3]))
    assert (letter["outcome"], letter["last_error"], letter["target"]) == (
        "dead",
        "channel_not_found",
        "slack",
    )
    assert "no dead letter 999" in shell.refused("dead", "show", "999")


def test_a_retried_one_is_live_again(shell: Shell, letters: list[int]) -> None:
    assert shell.out("dead", "retry", str(letters[2])) == f"retried 1: {letters[2]}\n"
    assert letters[2] not in listed(shell)
    assert shell.json("status")["queues"][0]["ready"] == 1


def test_a_discarded_one_leaves_nothing_but_its_id(shell: Shell, letters: list[int]) -> None:
    assert shell.json("dead", "discard", str(letters[2])) == [letters[2]]
    assert letters[2] not in listed(shell)
    [gone] = shell.json("history", "--outcome", "discarded")
    assert (gone["id"], gone["event"], gone["last_error"]) == (letters[2], {}, None)


def test_options_choose_many(shell: Shell, letters: list[int]) -> None:
    anybody, coder, writer, slack, _ = letters
    assert shell.json("dead", "retry", "--agent", "coder") == [anybody, coder]
    assert shell.json("dead", "discard", "--error", "ink") == [writer]
    assert shell.json("dead", "retry", "--all") == [slack]
    assert shell.out("dead", "retry", "--all") == "retried 0\n"


def test_naming_nothing_does_not_mean_everything(shell: Shell, letters: list[int]) -> None:
    for verb in ("retry", "discard"):
        assert "--all" in shell.refused("dead", verb, code=2)
        assert "either" in shell.refused("dead", verb, "1", "--all", code=2)
    assert len(listed(shell)) == 4


def test_what_is_no_dead_letter_is_named_and_the_others_are_done(
    shell: Shell, letters: list[int]
) -> None:
    assert "no dead letter 999" in shell.refused("dead", "retry", "999")
    done = shell.run("dead", "retry", str(letters[0]), "999", str(letters[4]))
    assert (done.returncode, done.stdout) == (1, f"retried 1: {letters[0]}\n")
    assert f"no dead letter 999, {letters[4]}" in done.stderr


def test_history_holds_everything_that_ended(shell: Shell, letters: list[int]) -> None:
    assert [event["id"] for event in shell.json("history")] == letters[::-1]
    assert [event["id"] for event in shell.json("history", "--outcome", "completed")] == [
        letters[4]
    ]
    assert [
        event["id"] for event in shell.json("history", "--agent", "writer", "--limit", "1")
    ] == [letters[2]]
    assert "completed" in shell.out("history")


def test_a_replayed_one_is_a_new_event(shell: Shell, letters: list[int]) -> None:
    [made] = shell.json("replay", str(letters[4]))
    assert made["id"] == letters[4]
    assert made["newId"] > letters[4]
    assert shell.json("status")["queues"][0]["ready"] == 1
    done = shell.run("replay", str(letters[4]), "999")
    assert (done.returncode, done.stdout.startswith(f"event {letters[4]} again as event ")) == (
        1,
        True,
    )
    assert "999" in done.stderr


def test_all_of_it_works_on_postgresql(alone: Shell, postgres: str) -> None:
    anybody, coder, writer, slack, done = some_letters(postgres)
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


def test_a_dead_letter_is_shown_as_a_page_with_its_payload_and_the_way_back(
    shell: Shell, letters: list[int]
) -> None:
    page = shell.out("dead", "show", str(letters[1]))
    assert page.startswith(f"dead letter {letters[1]}\n  for       coder (inbox)\n")
    assert "  error     boom: the stove\n" in page
    assert "  ended     dead " in page
    assert '\n{\n  "kind": "message",\n' in page
    assert page.endswith(f"retry with `holdfast dead retry {letters[1]}`\n")


def test_unknown_filter_values_are_errors_that_list_the_known(
    shell: Shell, letters: list[int]
) -> None:
    for command in (("dead", "list"), ("history",), ("dead", "retry"), ("dead", "discard")):
        refusal = shell.refused(*command, "--queue", "inbxo")
        assert refusal == "holdfast: there is no queue 'inbxo'; known are: inbox, outbox, memory"
        assert "there is no agent 'codre'; known are: coder" in shell.refused(
            *command, "--agent", "codre"
        )
    unknown = shell.refused("history", "--outcome", "daed", code=2)
    assert "there is no outcome 'daed'; known are: completed, dead" in unknown
    # Known by what has ended, though no process serves it.
    assert listed(shell, "--agent", "writer") == [letters[2]]


@pytest.mark.parametrize(("answer", "left"), [("n", 4), ("y", 0)])
def test_discarding_all_asks_at_a_terminal(
    shell: Shell, letters: list[int], answer: str, left: int
) -> None:
    code, text = at_terminal(shell, answer, "dead", "discard", "--all")
    assert "cannot be brought back. [y/N]" in text
    assert (code, len(listed(shell))) == (0 if answer == "y" else 1, left)


def test_discarding_all_does_not_ask_where_yes_was_said(shell: Shell, letters: list[int]) -> None:
    code, text = at_terminal(shell, "", "dead", "discard", "--all", "--yes")
    assert "[y/N]" not in text
    assert (code, listed(shell)) == (0, [])


def test_lists_fit_into_eighty_columns_and_have_colours_unless_told_otherwise(
    shell: Shell, letters: list[int]
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
    """Run a command at a terminal of its own, and type an answer. Returns its exit code and what was shown."""
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
    # A terminal whose last user is gone reads as an error.
    with suppress(OSError):
        while chunk := os.read(leader, 65_536):
            shown += chunk
    os.close(leader)
    return process.wait(60), shown.decode()

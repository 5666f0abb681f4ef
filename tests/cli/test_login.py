"""`login` and `token rotate`; `up` and `serve` print a link to a terminal, else a command."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cli.shell import TIMEOUT, Shell


@contextmanager
def on_a_terminal(shell: Shell, *arguments: str) -> Iterator[str]:
    """Return what a running command prints to a terminal, up to its login link."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "holdfast", *arguments]
    process = subprocess.Popen(
        command, cwd=shell.folder, env=shell.environment, stdout=slave, stderr=subprocess.DEVNULL
    )
    os.close(slave)
    try:
        printed = ""
        while not re.search(r"open \S+\s", printed):
            printed += os.read(master, 4096).decode()
        yield printed
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(TIMEOUT)
        os.close(master)


def follow_link(link: str) -> urllib.request.OpenerDirector:
    """Return a browser that has followed a login link."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(link) as answer:
        assert (answer.status, "code" in answer.url) == (200, False)
    return browser


def status(address: str, browser: urllib.request.OpenerDirector, token: str = "") -> int:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    try:
        with browser.open(
            urllib.request.Request(f"{address}/api/queue/status", headers=headers)
        ) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize("command", ["up", "serve"])
def test_a_terminal_gets_exactly_one_link_and_it_logs_a_browser_in(
    alone: Shell, command: str
) -> None:
    with on_a_terminal(alone, command, "--port", "0") as printed:
        [link] = re.findall(r"https?://\S+", printed)
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/login\?code=hfc_[\w-]{43}", link)
        assert "ready" in printed
        assert alone.out("token").strip() not in printed
        assert status(link.partition("/login")[0], follow_link(link)) == 200


@pytest.mark.parametrize("command", ["up", "serve"])
def test_a_pipe_gets_no_link_but_the_command_that_prints_one(alone: Shell, command: str) -> None:
    with alone.running(command, "--port", "0", "--home", "my home") as running:
        printed = running.ready + running.stdout.readline()
        assert printed.endswith("\nto open the page, run: holdfast login --home 'my home'\n")
        assert not re.search(r"code=|token=", printed)
        link = alone.out("login", "--home", "my home").strip()
        assert link.startswith(f"{running.address}/login?code=")
        assert status(running.address, follow_link(link)) == 200


def test_a_link_from_another_process_works_once(shell: Shell) -> None:
    with shell.running("serve", "--port", "0") as running:
        link = shell.out("login", "--role", "read").strip()
        browser = follow_link(link)
        assert status(running.address, browser) == 200
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.build_opener().open(link)
        assert link.partition("=")[2] not in running.log


def test_rotating_a_token_takes_effect_at_once_in_running_processes(shell: Shell) -> None:
    with shell.running("serve", "--port", "0") as one, shell.running("serve", "--port", "0") as two:
        plain = urllib.request.build_opener()
        old, reading = shell.out("token").strip(), shell.out("token", "--role", "read").strip()
        assert [status(server.address, plain, old) for server in (one, two)] == [200, 200]
        rotated = shell.run("token", "rotate")
        new = rotated.stdout.strip()
        assert (rotated.returncode, new == old, new == shell.out("token").strip()) == (
            0,
            False,
            True,
        )
        for server in (one, two):
            found = [status(server.address, plain, token) for token in (old, new, reading)]
            assert found == [401, 200, 200]
        [entry] = shell.json("audit", "--action", "rotated")
        assert (entry["subject"], entry["details"]) == ("api:admin", {"sessions": 0})


def test_the_address_of_a_link_is_the_configured_one(shell: Shell) -> None:
    link = shell.out("login", "--port", "1234", "--host", "0.0.0.0")
    assert link.startswith("http://127.0.0.1:1234/login?code=")
    assert shell.out("login", HOLDFAST_API_URL="https://agents.example").startswith(
        "https://agents.example/login?code="
    )
    assert "it must be a URL without a path" in shell.refused(
        "login", HOLDFAST_API_URL="https://a.example/x"
    )


def test_no_login_where_none_is_needed(alone: Shell) -> None:
    assert "the API needs no login" in alone.refused("login", HOLDFAST_API_AUTH="none")

"""`holdfast token`, and access with `up` and `serve`."""

from __future__ import annotations

import json
import stat
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.api.security.bootstrap_tokens import ROLES, bootstrap_tokens
from tests.cli.shell import Running, Shell, eventually


def second_line(running: Running) -> str:
    return running.stdout.readline().strip()


def test_a_token_is_printed_alone_and_each_role_has_its_own(alone: Shell) -> None:
    printed = [alone.out("token", "--role", role) for role in ROLES]
    assert len({line.strip() for line in printed}) == 3
    assert all(line.count("\n") == 1 and len(line.strip()) >= 32 for line in printed)
    assert alone.out("token") == printed[-1], "admin by default, and the same every time"


def test_a_role_that_does_not_exist_is_wrong_usage(alone: Shell) -> None:
    assert "--role" in alone.refused("token", "--role", "root", code=2)


def test_token_files_are_private(alone: Shell) -> None:
    alone.out("token")
    [file] = (alone.folder / ".holdfast").glob("*token*")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_processes_that_start_at_once_agree_on_the_tokens(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(lambda _: bootstrap_tokens(tmp_path), range(64)))
    assert all(tokens == found[0] for tokens in found)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "token-admin",
        "token-read",
        "token-send",
    ]


def test_an_empty_token_file_lets_nobody_in_and_is_named(alone: Shell) -> None:
    alone.out("token")
    path = alone.write(".holdfast/token-admin", "\n")
    assert f"{path} holds no token" in alone.refused("token")
    assert "holds no token" in alone.refused("up", "--port", "0")
    assert alone.out("token", "rotate") == alone.out("token"), "rotating replaces it"


def test_without_auth_everybody_on_this_machine_is_let_in(alone: Shell) -> None:
    with alone.running("up", "--port", "0", "--no-auth") as up:
        assert second_line(up) == f"open {up.address}/"
        with urllib.request.urlopen(f"{up.address}/api/queue/status") as answer:
            assert answer.status == 200


@pytest.mark.parametrize("command", ["up", "serve"])
def test_every_address_without_auth_is_refused_and_starts_nothing(
    alone: Shell, command: str
) -> None:
    line = alone.refused(command, "--port", "0", "--host", "0.0.0.0", "--no-auth")
    assert "--no-auth works on loopback only" in line
    assert not (alone.folder / ".holdfast").exists()


def test_a_token_for_a_program_is_created_listed_and_revoked(shell: Shell) -> None:
    limits = ["--agent", "echo", "--sender", "CI", "--expires", "30d"]
    limits += ["--channel", "api", "--channel", "web"]
    secret = shell.out("token", "create", "--name", "ci", "--role", "send", *limits).strip()
    assert secret.startswith("hft_")
    [token] = shell.json("token", "list")
    assert (token["name"], token["role"], token["sender"]) == ("ci", "send", "CI")
    assert (token["channels"], token["agents"]) == (["api", "web"], ["echo"])
    listed = shell.out("token", "list")
    assert "channels: api, web; agents: echo; sender: CI" in listed
    assert secret not in listed
    assert "already a token named 'ci'" in shell.refused(
        "token", "create", "--name", "ci", "--role", "read"
    )
    with shell.running("serve", "--port", "0") as server:
        assert _status(server.address, secret) == 200
        link = shell.out("login", "--token", "ci").strip()
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        browser.open(link).close()
        with browser.open(f"{server.address}/api/session") as answer:
            session = json.load(answer)
        assert (session["name"], session["role"], session["sender"]) == ("ci", "send", "CI")
        assert shell.out("token", "revoke", "ci") == "revoked the token 'ci'\n"
        eventually(lambda: _status(server.address, secret) == 401)
        eventually(lambda: _status(server.address, "", browser) == 401)
    assert "no token named 'ci'" in shell.refused("token", "revoke", "ci")
    assert "no token named 'ci'" in shell.refused("login", "--token", "ci")
    assert [one["action"] for one in shell.json("audit")][:3] == [
        "token_revoked",
        "logged_in",
        "token_created",
    ]


def test_a_token_that_contradicts_itself_is_refused(shell: Shell) -> None:
    assert "cannot be bound" in shell.refused(
        "token", "create", "--name", "a", "--role", "admin", "--agent", "echo"
    )
    assert "role send" in shell.refused(
        "token", "create", "--name", "a", "--role", "read", "--sender", "Ada"
    )
    assert "--expires" in shell.refused(
        "token", "create", "--name", "a", "--role", "read", "--expires", "soon", code=2
    )


def _status(address: str, token: str, browser: urllib.request.OpenerDirector | None = None) -> int:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"{address}/api/session", headers=headers)
    try:
        with (browser or urllib.request.build_opener()).open(request) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code

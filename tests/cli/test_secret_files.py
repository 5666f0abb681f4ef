"""Secrets from files and from systemd credentials instead of variables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.settings import Settings, secret_files
from holdfast.settings.channels import Channels
from holdfast.settings.channels.discord import Discord
from holdfast.settings.environment import variable
from holdfast.telemetry import redaction
from tests.cli.shell import Shell

CHANNEL_SECRETS = (
    *("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "SLACK_SIGNING_SECRET"),
    *("MATRIX_ACCESS_TOKEN", "DISCORD_BOT_TOKEN"),
    *("TELEGRAM_BOT_TOKEN", "TELEGRAM_WEBHOOK_SECRET"),
    *("WHATSAPP_TOKEN", "WHATSAPP_APP_SECRET", "WHATSAPP_VERIFY_TOKEN"),
    *("EMAIL_IMAP_URL", "EMAIL_SMTP_URL"),
)

ASKED = """
import os

def answer(turn):
    return " ".join(os.environ.get(name, "-") for name in turn.text.split())

def fail(turn):
    raise ValueError("refused with " + answer(turn))
"""
AGENTS = """
[agents.asked]
kind = "function"
function = "asked:answer"

[agents.failing]
kind = "function"
function = "asked:fail"
max_attempts = 1

[agents.coder]
kind = "command"
command = ["sh", "-c", "echo $GITHUB_TOKEN ${GITHUB_TOKEN_FILE:-and no file}"]
variables = ["GITHUB_TOKEN"]

[mcp.files]
url = "http://127.0.0.1:1/mcp"
token_variable = "FILES_TOKEN"
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.write("asked.py", ASKED)
    shell.write("holdfast.toml", AGENTS)
    return shell


@pytest.mark.parametrize(
    "name",
    [
        *("SLACK_SIGNING_SECRET", "ANTHROPIC_API_KEY", "GITHUB_TOKEN", "FILES_TOKEN", "PGPASSWORD"),
        "HOLDFAST_OIDC_CLIENT_SECRET",
    ],
)
def test_every_secret_can_be_in_a_file(shell: Shell, name: str) -> None:
    secret = shell.write("secret", "precious\n")
    with shell.running("work", **{f"{name}_FILE": str(secret)}):
        assert shell.out("send", f"@asked {name}", "--wait") == "precious\n"


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    "name",
    [
        *("GITHUB_TOKEN_FILE", "FILES_TOKEN_FILE", "SLACK_SIGNING_SECRET_FILE"),
        *("MISTRAL_API_KEY", "PGPASSWORD", "HOLDFAST_OIDC_CLIENT_SECRET"),
    ],
)
def test_no_log_line_or_dead_letter_contains_a_secret_by_its_source(
    shell: Shell, name: str
) -> None:
    secret = str(shell.write("secret", "precious\n")) if name.endswith("_FILE") else "precious"
    with shell.running("work", **{name: secret}) as work:
        done = shell.run("send", f"@failing {name.removesuffix('_FILE')}", "--wait")
        assert done.returncode == 1
        assert "refused with ***" in work.log
        assert "precious" not in work.log
    letter = json.dumps(shell.json("dead", "list"))
    assert "refused with ***" in letter
    assert "precious" not in letter


def test_every_secret_of_a_channel_can_be_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redaction, "_secrets", [])
    monkeypatch.setattr(secret_files, "_from_files", {})
    secret = tmp_path / "secret"
    secret.write_text("precious\n")
    for name in (*CHANNEL_SECRETS, "SECOND_TOKEN"):
        monkeypatch.setenv(name, "")
        monkeypatch.setenv(f"{name}_FILE", str(secret))
    secret_files.read_secret_files()
    assert [variable(name) for name in CHANNEL_SECRETS] == ["precious"] * len(CHANNEL_SECRETS)
    second = Discord(token_variable="SECOND_TOKEN")
    secret_files.read_named_secrets(Settings(channels=Channels(discord=(Discord(), second))))
    assert variable("SECOND_TOKEN") == "precious"


def test_the_database_url_can_be_in_a_file(shell: Shell) -> None:
    url = shell.write("url", f"sqlite:///{shell.folder / 'other.db'}\n")
    shell.out("migrate", HOLDFAST_DATABASE_FILE=str(url))
    assert (shell.folder / "other.db").exists()


def test_a_systemd_credential_is_used_by_its_name(shell: Shell) -> None:
    credentials = shell.folder / "credentials"
    credentials.mkdir()
    (credentials / "ANTHROPIC_API_KEY").write_text("precious")
    (credentials / "SLACK_SIGNING_SECRET").write_text("unused")
    (credentials / "other.pem").write_text("not for us")
    with shell.running("work", CREDENTIALS_DIRECTORY=str(credentials), SLACK_SIGNING_SECRET="mine"):
        assert (
            shell.out("send", "@asked ANTHROPIC_API_KEY SLACK_SIGNING_SECRET", "--wait")
            == "precious mine\n"
        )


def test_a_program_gets_the_secret_and_not_its_file(shell: Shell) -> None:
    secret = shell.write("secret", "precious\n")
    with shell.running("work", GITHUB_TOKEN_FILE=str(secret)):
        assert shell.out("send", "@coder go", "--wait") == "precious and no file\n"


def test_an_unusable_secret_file_is_refused_in_one_line(shell: Shell) -> None:
    missing = str(shell.folder / "missing")
    line = shell.refused("migrate", SLACK_BOT_TOKEN_FILE=missing)
    assert (
        line == f"holdfast: SLACK_BOT_TOKEN_FILE: cannot read {missing}: No such file or directory"
    )
    empty = str(shell.write("empty", "\n"))
    assert "is empty, too long" in shell.refused("migrate", FILES_TOKEN_FILE=empty)
    both = shell.refused("migrate", SLACK_BOT_TOKEN_FILE=empty, SLACK_BOT_TOKEN="xoxb-1")
    assert (
        both == "holdfast: SLACK_BOT_TOKEN and SLACK_BOT_TOKEN_FILE are both set: keep one of them"
    )

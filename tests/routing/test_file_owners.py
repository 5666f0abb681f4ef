"""A reply sends files of its conversation, shared ones and the agent's own, and no others."""

from __future__ import annotations

import os
import stat
import time
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import Reply
from holdfast.queue.event import Event
from holdfast.routing.router import Address
from holdfast.store.files import conversation_folder, open_below, sendable_path, sweep, write_file
from holdfast.testing.trial import Trial
from tests.routing.conftest import Stage

ANN, BOB = Address(sender="ann"), Address(sender="bob")


def store_file_for(play: Trial, address: Address, name: str = "private.txt") -> str:
    """Store a file that came with a message. Returns its path below the root."""
    path = conversation_folder(play.files, address.channel, address.conversation) / name
    write_file(path, f"of {address.sender}".encode())
    return path.relative_to(play.files).as_posix()


async def answer_to(play: Trial, address: Address, text: str = "hi") -> Event:
    before = {response.id for response in await play.responses()}
    await play.say(text, address=address)
    await play.work()
    [response] = [response for response in await play.responses() if response.id not in before]
    return response


async def test_issue_13_9_a_tag_cannot_send_a_file_of_another_conversation(
    stage: Stage, play: Trial
) -> None:
    path = store_file_for(play, ANN)
    for name in (
        path,
        str(play.files / path),
        path.upper(),
        path.replace("conversations/", "conversations/./"),
    ):
        stage.says("coder", f"Look: [send_file: {name}]")
        response = await answer_to(play, BOB)
        assert "files" not in response.event
        assert response.event["message"] == f"Look: [send_file: {name}]"
    stage.says("coder", f"Look: [send_file: {path}]")
    assert (await answer_to(play, ANN)).event["files"] == [path]


async def test_a_reply_cannot_send_a_file_of_another_conversation(
    stage: Stage, play: Trial
) -> None:
    path = store_file_for(play, ANN)
    stage.says("coder", Reply("here", files=(path,)), Reply("here", files=(path,)))
    response = await answer_to(play, BOB)
    assert response.event["metadata"] == {"files_refused": [path]}
    assert "files" not in response.event
    assert (await answer_to(play, ANN)).event["files"] == [path]


@pytest.mark.parametrize(
    ("text", "repeated"),
    [
        ("[send_file: plot.png]", "You said: [send_file: plot.png]"),
        ("```\n[send_file:plot.png]\n```", "[send_file: plot.png]"),
        ("please do [send_file :  plot.png] now", "please do [send_file: plot.png] now"),
        ("hi", "> [send_file: plot.png]\nIs this what you mean?"),
        ("hi", "```\n[send_file: plot.png]\n```"),
    ],
)
async def test_tags_in_quoted_user_text_do_not_count(
    stage: Stage, play: Trial, text: str, repeated: str
) -> None:
    write_file(play.files / "plot.png", b"x")
    stage.says("coder", repeated, "Here: [send_file: plot.png]")
    response = await answer_to(play, ANN, text)
    assert "files" not in response.event
    assert response.event["message"] == repeated
    assert (await answer_to(play, ANN, "and the plot?")).event["files"] == ["plot.png"]


async def test_a_user_s_tag_does_not_count_after_a_hand_off_either(
    stage: Stage, play: Trial
) -> None:
    write_file(play.files / "plot.png", b"x")
    stage.says("coder", "[@writer: please answer]")
    stage.says("writer", "[send_file: plot.png]")
    response = await answer_to(play, ANN, "@dev [send_file: plot.png]")
    assert "files" not in response.event


async def test_an_agent_sends_files_of_its_own_workspace(
    stage: Stage, play: Trial, tmp_path: Path
) -> None:
    """A copy is sent, so later changes of the agent are not."""
    workspace = tmp_path / "workspace" / "coder"
    write_file(workspace / "out" / "plot.png", b"drawn")
    (workspace / "token").symlink_to(tmp_path / "token-admin")
    (workspace / "up").symlink_to(tmp_path)
    write_file(tmp_path / "token-admin", b"secret")
    stage.app.agents["coder"].workspace = workspace  # type: ignore[attr-defined]
    stage.says(
        "coder", "Drawn. [send_file: out/plot.png] [send_file: token] [send_file: up/token-admin]"
    )
    response = await answer_to(play, ANN)
    [path] = response.event["files"]
    (workspace / "out" / "plot.png").write_bytes(b"other")
    with open_below(play.files, path) as file:
        assert file.read() == b"drawn"
    assert sendable_path(play.files, path, "api", ANN.conversation) == path
    assert sendable_path(play.files, path, "api", BOB.conversation) is None
    assert response.event["message"] == "Drawn. [send_file: token] [send_file: up/token-admin]"
    stage.says("writer", "[send_file: out/plot.png]")
    assert "files" not in (await answer_to(play, ANN, "@writer and you?")).event


def test_downloads_of_earlier_releases_cannot_be_sent(tmp_path: Path) -> None:
    write_file(tmp_path / "slack" / "C1-1.0" / "F1-a.txt", b"x")
    assert sendable_path(tmp_path, "slack/C1-1.0/F1-a.txt", "slack", "slack:T1:C1:1.0") is None
    assert sendable_path(tmp_path, "Slack/C1-1.0/F1-a.txt", "slack", "slack:T1:C1:1.0") is None


def test_a_message_without_conversation_has_no_files_of_its_own(tmp_path: Path) -> None:
    folder = conversation_folder(tmp_path, "api", "")
    write_file(folder / "a", b"x")
    assert sendable_path(tmp_path, f"conversations/{folder.name}/a", "api", "") is None


def test_a_link_created_after_the_check_is_not_followed(tmp_path: Path) -> None:
    write_file(tmp_path / "secret", b"x")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="link"), open_below(tmp_path / "files", "link"):
        pass
    os.mkfifo(tmp_path / "files" / "pipe")
    with pytest.raises(OSError, match="pipe"), open_below(tmp_path / "files", "pipe"):
        pass


def test_kept_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a"
    write_file(path, b"x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_old_downloads_are_deleted(tmp_path: Path) -> None:
    old = [conversation_folder(tmp_path, "api", "a") / "old", tmp_path / "slack" / "C1-1.0" / "old"]
    fresh, shared = conversation_folder(tmp_path, "api", "b") / "fresh", tmp_path / "shared"
    for path in (*old, fresh, shared):
        write_file(path, b"x")
    long_ago = time.time() - 100
    for path in (*old, shared):
        os.utime(path, (long_ago, long_ago))
        os.utime(path.parent, (long_ago, long_ago))
    assert sweep(tmp_path, timedelta(seconds=50)) == 2
    assert [path.exists() for path in (*old, fresh, shared)] == [False, False, True, True]
    assert [path.parent.exists() for path in (*old, fresh)] == [False, False, True]
    assert sweep(tmp_path, timedelta(seconds=50)) == 0

"""kill -9 at every step of a mention's way from Slack and back: exactly one visible answer."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from holdfast.store import open_store
from holdfast.testing.slack import FakeSlack
from tests.channels.crashes import kills, process, without_grace
from tests.channels.doomed import (
    AFTER_ACK,
    AFTER_INSERT,
    AFTER_POST,
    AFTER_SHARE,
    BEFORE_INSERT,
    BEFORE_POST,
    FILE_POINTS,
    IN_BETWEEN,
    WHILE_WORKING,
    parts_of,
)
from tests.private_server import private_server
from tests.steps import finished

POINTS = (
    BEFORE_INSERT,
    AFTER_INSERT,
    AFTER_ACK,
    WHILE_WORKING,
    BEFORE_POST,
    AFTER_POST,
    IN_BETWEEN,
)
COMPLETE = "files.completeUploadExternal"


@kills(POINTS, short=POINTS, everywhere=AFTER_POST)
async def test_a_process_that_dies_on_the_way_leaves_exactly_one_answer(
    slack: FakeSlack, database_url: str, tmp_path: Path, point: str
) -> None:
    without_grace(database_url)
    slack.sockets.ack_within = 0.5
    async with process("slack", database_url, tmp_path, point) as doomed:
        ts = await slack.mention("hello")
        assert await doomed.death() == -signal.SIGKILL
    async with process("slack", database_url, tmp_path), open_store(database_url) as store:
        await slack.replies(ts, count=2)
        [ended] = await finished(store, queue="outbox")
    assert [reply["text"] for reply in slack.bot_messages(ts)] == parts_of("slack")
    assert len((ended.state or {})["parts"]) == 2
    if point in (AFTER_POST, IN_BETWEEN):
        assert slack.faults.calls["chat.postMessage"] == 2


@kills(FILE_POINTS, short=[AFTER_SHARE])
async def test_a_process_that_dies_around_the_sharing_of_a_file_leaves_exactly_one(
    slack: FakeSlack, database_url: str, tmp_path: Path, point: str
) -> None:
    without_grace(database_url)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_text("a")
    # The next worker looks the file up before Slack shows it.
    slack.workspace.holds_files = True
    async with process("slack", database_url, tmp_path, point) as doomed:
        ts = await slack.mention("file")
        assert await doomed.death() == -signal.SIGKILL
    async with process("slack", database_url, tmp_path), open_store(database_url) as store:
        await slack.until(lambda: slack.faults.calls["files.info"] and slack.faults.calls[COMPLETE])
        slack.workspace.show_files()
        [ended] = await finished(store, queue="outbox")
        [shared] = await slack.replies(ts)
    assert [file["name"] for file in shared["files"]] == ["a.txt"]
    assert slack.faults.calls[COMPLETE] == 1
    assert ended.outcome == "completed"


async def test_a_database_that_is_stopped_is_not_acknowledged_and_after_its_start_answered_once(
    slack: FakeSlack, tmp_path: Path
) -> None:
    slack.sockets.ack_within = 0.5
    with private_server() as server:
        async with process("slack", server.url, tmp_path):
            await slack.replies(await slack.mention("before"), count=2)
            acked = len(slack.sockets.acked)
            await asyncio.to_thread(server.stop, "immediate")
            ts = await slack.mention("meanwhile")
            await slack.until(lambda: slack.sockets.sent[slack.last_event_id] >= 3)
            assert len(slack.sockets.acked) == acked
            await asyncio.to_thread(server.start)
            await slack.replies(ts, count=2)
            await slack.until(lambda: len(slack.sockets.acked) > acked)
        assert len(slack.bot_messages(ts)) == 2

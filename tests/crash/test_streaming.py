"""kill -9 at every point of a streamed answer: its readers see one answer, whole and once."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
import pytest_asyncio

from bench.event_stream import watching
from holdfast.agents.echo import echo
from holdfast.app import AgentHarness
from holdfast.settings import Settings
from holdfast.testing.slack import FakeSlack
from holdfast.testing.slack.workspace import GENERAL, TEAM
from tests.api.serving import ask_json, serving, token_of
from tests.channels.crashes import without_grace
from tests.crash import streamer
from tests.crash.pool import suspend
from tests.crash.streamer import AFTER_EFFECT, NOWHERE, ONCE, POINTS, answer_text
from tests.fork_server import PipedProcess

ENDS_WITHIN = 60.0
ENDS = ("response_ready", "message_failed")
LEASE = 4.0
"""Seconds; a loaded machine renews shorter ones too late."""
CHAOS_RUNS = 9
"""Runs of each point on each engine in `make chaos`."""


@pytest_asyncio.fixture
async def slack(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeSlack]:
    async with FakeSlack() as slack:
        monkeypatch.setenv("SLACK_BOT_TOKEN", slack.bot_token)
        monkeypatch.setenv("SLACK_APP_TOKEN", slack.app_token)
        monkeypatch.setenv("SLACK_API_URL", slack.api_url)
        yield slack


@asynccontextmanager
async def worker(
    url: str, folder: Path, point: str = NOWHERE, nth: int = 1, lease: float = 60
) -> AsyncIterator[PipedProcess]:
    """Run a worker, and kill it at the end of the block."""
    options = (url, str(folder), point, str(nth), str(lease))
    with PipedProcess("tests.crash.streamer", *options) as started:
        assert await asyncio.to_thread(started.read_line) == "ready"
        yield started


async def read_stream(port: int, message_id: str) -> str:
    """Read the stream of a message, reconnecting after a few frames. Returns the text at its end.

    Raises AssertionError if a delta does not continue the text before it."""
    path, text, last_id = f"/api/message/{quote(message_id, safe='')}/stream", "", None
    while True:
        left = random.randint(1, 5)
        async with watching(
            port, path=path, last_id=last_id, headers=token_of(port, "read")
        ) as stream:
            async for frame in stream.frames():
                if not frame.event:
                    continue
                if frame.event == "response_reset":
                    text = ""
                if frame.event == "response_delta":
                    assert frame.data["offset"] == len(text)
                    text += frame.data["text"]
                if frame.event in ENDS:
                    assert frame.event == "response_ready", frame.text
                    return text
                last_id, left = frame.id, left - 1
                if not left:
                    break


async def until_known(port: int, message_id: str) -> None:
    path = f"/api/message/{quote(message_id, safe='')}"
    while (await ask_json(port, path))[0] != 200:  # noqa: ASYNC110 - stored by another process
        await asyncio.sleep(0.02)


async def kill_and_read(
    slack: FakeSlack, database_url: str, folder: Path, point: str, nth: int
) -> None:
    """Kill a worker at a point of its answer, and check what all readers have in the end."""
    without_grace(database_url)
    api = AgentHarness(echo, settings=Settings(home=folder, database=database_url))
    async with serving(api, works=False) as port, asyncio.timeout(ENDS_WITHIN):
        async with worker(database_url, folder, point, nth) as doomed:
            ts = await slack.mention("report")
            message_id = f"slack_{TEAM}_{GENERAL}_{ts}"
            await until_known(port, message_id)
            reading = asyncio.create_task(read_stream(port, message_id))
            assert await asyncio.to_thread(doomed.wait, ENDS_WITHIN) == -signal.SIGKILL
        async with worker(database_url, folder):
            assert await reading == answer_text()
            await slack.until(
                lambda: [reply["text"] for reply in slack.bot_messages(ts)] == [answer_text()]
            )
        status, message = await ask_json(port, f"/api/message/{quote(message_id, safe='')}")
    assert (status, message["response"]) == (200, answer_text())
    effects = check_effects(streamer.Effects(folder / "effects").lines(), point)
    assert {step["status"] for step in message["steps"]} == {"done"}
    assert {step["key"] for step in message["steps"]} == set(effects)
    # The first worker may have died before it noted a record that the database has.
    first = [step["key"] for step in message["steps"] if step["attempt"] == 1]
    assert [effects[key] for key in first] == [1] * len(first)


def check_effects(lines: list[str], point: str) -> Counter[str]:
    """Check that no recorded step had its effect again, and the once-step had it once.

    Returns the number of effects of each step."""
    recorded: set[str] = set()
    effects: Counter[str] = Counter()
    for line in lines:
        kind, _, key = line.partition(" ")
        if kind == "recorded":
            recorded.add(key)
        elif kind == "effect":
            assert key not in recorded, f"{key} ran again after its record: {lines}"
            effects[key] += 1
    assert effects[ONCE] == 1
    assert len(effects) == streamer.STEPS + 1
    assert max(effects.values()) <= 2
    if point == AFTER_EFFECT:
        assert sum(effects.values()) <= streamer.STEPS + 2
    return effects


@pytest.mark.sweep(2)
@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("point", POINTS)
async def test_a_worker_that_dies_while_it_streams_leaves_one_whole_answer(
    slack: FakeSlack, database_url: str, tmp_path: Path, point: str
) -> None:
    await kill_and_read(slack, database_url, tmp_path, point, POINTS[point])


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
async def test_a_worker_that_was_suspended_past_its_lease_adds_nothing(
    slack: FakeSlack, database_url: str, tmp_path: Path
) -> None:
    without_grace(database_url)
    effects = streamer.Effects(tmp_path / "effects")
    async with worker(database_url, tmp_path, lease=LEASE) as zombie:
        ts = await slack.mention("report")
        await slack.until(lambda: any("word 1.0" in line for line in effects.lines()))
        await asyncio.to_thread(suspend, database_url, zombie.pid)
        before = effects.lines(zombie.pid)
        async with worker(database_url, tmp_path, lease=LEASE):
            await slack.until(
                lambda: [reply["text"] for reply in slack.bot_messages(ts)] == [answer_text()]
            )
            edits = slack.faults.calls["chat.update"]
            zombie.send_signal(signal.SIGCONT)
            await slack.until(lambda: "ended early" in effects.lines(zombie.pid))
            zombie.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(zombie.wait, ENDS_WITHIN) == 0
    assert effects.lines(zombie.pid) == [*before, "ended early"]
    assert slack.faults.calls["chat.update"] == edits
    assert [reply["text"] for reply in slack.bot_messages(ts)] == [answer_text()]
    check_effects(effects.lines(), NOWHERE)


@pytest.mark.chaos
@pytest.mark.parametrize("run", range(CHAOS_RUNS))
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("engine", ["sqlite", "postgres", "timescale"], indirect=True)
async def test_workers_that_die_again_and_again_leave_one_whole_answer_each(
    slack: FakeSlack, database_url: str, tmp_path: Path, point: str, run: int
) -> None:
    await kill_and_read(slack, database_url, tmp_path, point, random.randint(1, POINTS[point]))

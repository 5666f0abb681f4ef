"""The number of files that one Slack mention runs through, from the socket to the history."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from types import FrameType

import holdfast
from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.settings import Settings
from holdfast.testing.slack import FakeSlack
from tests.steps import running, until

PACKAGE = f"{Path(holdfast.__file__).parent}{os.sep}"
TESTING = f"testing{os.sep}"
MOST_FILES = 66
"""61 to 64 on an idle machine: the sweeper and its sums of history, which run at the start, may run
during every mention. Timers may add two more on a slow one."""
MENTIONS = 3


async def answer(turn: Turn) -> str:
    return f"you said {turn.text}"


class Tracer:
    """Record the files of Holdfast in which functions are called, in every thread."""

    def __init__(self) -> None:
        self.files: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(PACKAGE):
            self.files.add(file.removeprefix(PACKAGE))

    def take(self) -> set[str]:
        """Return the files recorded since the last call, without those of the fake Slack."""
        files, self.files = self.files, set()
        return {file for file in files if not file.startswith(TESTING)}


@contextmanager
def tracing() -> Iterator[Tracer]:
    """Trace this thread, and all threads that start meanwhile."""
    tracer = Tracer()
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        yield tracer
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def mention(slack: FakeSlack, database: Path, number: int) -> None:
    """Mention the bot, and wait until this many answers are delivered and in history."""
    await slack.mention("hello")
    with closing(sqlite3.connect(database)) as reader:
        query = "select count(*) from event_hist where queue = 'outbox'"
        # Not by the store: its reads would count as files of the mention.
        await until(lambda: reader.execute(query).fetchone() == (number,))


async def test_a_mention_does_not_run_through_more_files(slack: FakeSlack, tmp_path: Path) -> None:
    """A reader who follows a mention has to open these files, so their number is a cost.

    A growing number is a warning: a concept was cut in two, a layer only forwards, or the path of
    every message now passes through a feature that few messages need. Find the file that is new
    before you raise the limit.

    Files count if every one of several mentions runs them. That leaves out what only the first one
    loads, and maintenance that happens to run meanwhile.
    """
    database = tmp_path / "holdfast.db"
    settings = Settings(home=tmp_path, database=f"sqlite:///{database}", blocked_after=timedelta(0))
    with tracing() as tracer:
        async with running(AgentHarness(answer), settings):
            await mention(slack, database, 1)
            tracer.take()
            traces = []
            for number in range(MENTIONS):
                await mention(slack, database, 2 + number)
                traces.append(tracer.take())
    files = set.intersection(*traces)
    assert {"channels/slack/incoming.py", "queue/consumer.py", "store/sqlite/settle.py"} <= files
    assert len(files) <= MOST_FILES, "\n".join(sorted(files))

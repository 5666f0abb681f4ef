"""A harness in a process of its own, for tests that send signals.

Usage: `python -m tests.process.app URL KIND GRACE WORKERS`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from datetime import timedelta

from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.consumers.limits import Limits
from holdfast.settings import Settings
from tests.fork_server import PipedProcess


def app_process(url: str, kind: str, *, grace: str = "30s", workers: int = 5) -> PipedProcess:
    return PipedProcess("tests.process.app", url, kind, grace, str(workers))


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


async def wait_for_line(turn: Turn) -> None:
    say(f"started {turn.primary.id}")
    await asyncio.to_thread(sys.stdin.readline)


async def hang(turn: Turn) -> None:
    say(f"started {turn.primary.id}")
    await asyncio.Event().wait()


def hang_in_thread(turn: Turn) -> None:
    say(f"started {turn.primary.id}")
    time.sleep(3600)


def tick_in_thread(turn: Turn) -> None:
    """Append to a file every few milliseconds: for ever in attempt 1, for a while in the next."""
    say(f"started {turn.primary.id}")
    marks = itertools.count() if turn.attempt == 1 else range(10)
    with open(turn.event["marks"], "ab", buffering=0) as file:
        for _ in marks:
            file.write(f"{os.getpid()}\n".encode())
            time.sleep(0.005)


async def hang_on(turn: Turn) -> None:
    """Ignore cancellation."""
    say(f"started {turn.primary.id}")
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


class Announcing(AgentHarness):
    """Print when the stop begins, so that a test can send a second signal after the first."""

    def stop(self) -> None:
        super().stop()
        say("stopping")


KINDS = {
    kind.__name__: kind for kind in (wait_for_line, hang, hang_in_thread, tick_in_thread, hang_on)
}


def main(url: str, kind: str, grace: str, workers: str) -> None:
    settings = Settings(database=url, grace=grace)  # type: ignore[arg-type]
    # Tests of handlers that do not stop should not wait as long as the default.
    limits = Limits(let_go_within=timedelta(seconds=1))
    app = Announcing(KINDS[kind], settings=settings, limits=limits)
    asyncio.run(app.run(num_workers=int(workers), on_ready=lambda: say("ready")))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A worker on Slack whose agent streams through steps, and that kills itself at a named point.

Run it with `python -m tests.crash.streamer URL FOLDER POINT NTH LEASE`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

from holdfast import NotDone, process
from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.channels import preview
from holdfast.channels.slack.post import Post
from holdfast.queue.journal import JournalEntry
from holdfast.settings import Settings
from holdfast.store import Store, open_store
from holdfast.store.watch import Watch

BEFORE_STEP = "before a step"
AFTER_EFFECT = "after an effect, before its record"
AFTER_RECORD = "after the record of a step"
BETWEEN_DELTAS = "between two deltas"
BEFORE_SETTLE = "between the last delta and the settle"
BEFORE_EDIT = "before an edit in Slack"
AFTER_EDIT = "after an edit in Slack"
BEFORE_POST = "before the first post in Slack"
AFTER_POST = "after the first post in Slack"
NOWHERE = "nowhere"
POINTS = {
    BEFORE_STEP: 4,
    AFTER_EFFECT: 4,
    AFTER_RECORD: 4,
    BETWEEN_DELTAS: 3,
    BEFORE_SETTLE: 1,
    BEFORE_EDIT: 3,
    AFTER_EDIT: 3,
    BEFORE_POST: 1,
    AFTER_POST: 1,
}
"""How often each point is reached at least."""
STEPS = 3
ONCE = "charge"
WORDS = 8
PAUSE = 0.04
BETWEEN_LOOKS = timedelta(milliseconds=200)
EDIT_EVERY = timedelta(milliseconds=100)
START_AFTER = timedelta(milliseconds=10)


def answer_text() -> str:
    """Return the whole answer of the agent."""
    parts = [f"Step {step} gave {value_of(step)}: {words(step)}" for step in range(STEPS)]
    return f"Begin. {''.join(parts)}Charged {value_of(ONCE)}."


def value_of(step: object) -> str:
    return f"value of {step}"


def words(step: int) -> str:
    return "".join(f"word {step}.{number} " for number in range(WORDS))


class Mine:
    """Kills the process when its point is reached for the nth time."""

    def __init__(self, point: str, nth: int) -> None:
        self._point = point
        self._left = nth

    def reach(self, point: str) -> None:
        self._left -= point == self._point
        if point == self._point and self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Effects:
    """A file to which every effect and every record is appended, with the process that made it."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def append(self, kind: str, key: str) -> None:
        with self._file.open("ab", buffering=0) as file:
            file.write(f"{os.getpid()} {kind} {key}\n".encode())

    def lines(self, pid: int | None = None) -> list[str]:
        """Return the lines of all processes, or of one, without the process."""
        text = self._file.read_text() if self._file.exists() else ""
        lines = [line.partition(" ") for line in text.splitlines()]
        return [line for author, _, line in lines if pid in (None, int(author))]


class MinedStore:
    """A store with crash points around its calls."""

    def __init__(self, store: Store, mine: Mine, effects: Effects) -> None:
        self._store = store
        self._mine = mine
        self._effects = effects

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def record(self, entry: JournalEntry) -> None:
        await self._store.record(entry)
        if entry.write is not None:
            self._effects.append("wrote", entry.write.text)
        for step in entry.steps:
            if step.state == "done":
                self._effects.append("recorded", step.key)
                self._mine.reach(AFTER_RECORD)
        if entry.write is not None:
            self._mine.reach(BETWEEN_DELTAS)

    async def settle(self, ends: Any, **options: Any) -> Any:
        if any(turn.queue == "inbox" for turn, _ in ends):
            self._mine.reach(BEFORE_SETTLE)
        return await self._store.settle(ends, **options)


def agent_of(mine: Mine, effects: Effects) -> Callable[[Turn], AsyncIterator[str]]:
    def affect(step: object) -> str:
        effects.append("effect", f"step {step}" if step != ONCE else ONCE)
        mine.reach(AFTER_EFFECT)
        return value_of(step)

    async def was_charged(step: object) -> str:
        if f"effect {ONCE}" in effects.lines():
            return value_of(step)
        raise NotDone

    async def answer(turn: Turn) -> AsyncIterator[str]:
        try:
            async with aclosing(report(turn)) as texts:
                async for text in texts:
                    yield text
        except BaseException:
            effects.append("ended", "early")
            raise

    async def report(turn: Turn) -> AsyncGenerator[str, None]:
        yield "Begin. "
        for step in range(STEPS):
            mine.reach(BEFORE_STEP)
            value = await turn.step(f"step {step}", affect, step)
            yield f"Step {step} gave {value}: "
            for number in range(WORDS):
                yield f"word {step}.{number} "
                await asyncio.sleep(PAUSE)
        mine.reach(BEFORE_STEP)
        value = await turn.step(ONCE, affect, ONCE, effect="once", probe=was_charged)
        yield f"Charged {value}."

    return answer


def mined(
    mine: Mine, before: str, after: str, call: Callable[..., Awaitable[Any]]
) -> Callable[..., Awaitable[Any]]:
    """Return a call to Slack with a crash point before and after it."""

    async def doomed(*arguments: Any, **options: Any) -> Any:
        mine.reach(before)
        result = await call(*arguments, **options)
        mine.reach(after)
        return result

    return doomed


def main(url: str, folder: str, point: str, nth: str, lease: str) -> None:
    mine, effects = Mine(point, int(nth)), Effects(Path(folder, "effects"))
    open_one = open_store

    @asynccontextmanager
    async def open_mined(url: str, **given: Any) -> AsyncIterator[Store]:
        async with open_one(url, **given, watch=Watch(BETWEEN_LOOKS)) as store:
            yield cast(Store, MinedStore(store, mine, effects))

    process.open_store = open_mined  # type: ignore[attr-defined]
    mine_call = partial(mined, mine)
    setattr(Post, "edit", mine_call(BEFORE_EDIT, AFTER_EDIT, Post.edit))  # noqa: B010
    setattr(Post, "post", mine_call(BEFORE_POST, AFTER_POST, Post.post))  # noqa: B010
    preview.EDIT_EVERY, preview.START_AFTER = EDIT_EVERY, START_AFTER
    settings = Settings(
        database=url,
        home=Path(folder),
        lease=timedelta(seconds=float(lease)),
        retry_first=timedelta(milliseconds=10),
    )
    app = AgentHarness(agent_of(mine, effects), settings=settings)
    asyncio.run(app.run(on_ready=lambda: print("ready", flush=True)))


if __name__ == "__main__":
    main(*sys.argv[1:])

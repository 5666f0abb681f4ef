"""Waits of a turn: it gives its slot back, and goes on when it is due or a signal came."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NoReturn

from pydantic_core import from_json, to_json

from holdfast.agents.call import check_name
from holdfast.agents.journal import TurnJournal
from holdfast.errors import StepError
from holdfast.queue.outcome import Snooze
from holdfast.settings import DurationLike, duration

SIGNAL = "signal "
"""Beginning of the keys of waits for signals; the name of the signal follows."""
LONGEST_QUESTION = 20_000
"""Characters of a prompt and its options."""
LONGEST_WAIT = timedelta(days=3650)
"""A turn that waits longer, or for ever, wakes up in between and waits again."""


class Waits:
    """The sleeps and signals of one attempt of a turn."""

    def __init__(self, journal: TurnJournal) -> None:
        self._journal = journal
        self._until: datetime | None = None
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_suspended(self) -> bool:
        """Whether the turn gives its slot back now."""
        return self._until is not None

    async def sleep(self, until: DurationLike | datetime) -> None:
        """Sleep for a duration or until a moment. Returns at once if that has passed."""
        steps, key = self._journal.steps, self._journal.steps.key("sleep")
        now, found = await self._journal.store.now(), await steps.find(key, "sleep")
        due_at = _due_at("turn.sleep", until, now) if found is None else found.due_at
        if found is not None and found.state == "done":
            return
        if due_at is None or due_at > now:
            if found is None:
                await self._journal.record_steps(steps.step(key, "sleep", "started", due_at=due_at))
            await self._suspend(due_at, now)
        if found is not None:
            self._journal.in_background(
                self._journal.record_steps(steps.step(key, "sleep", "done", due_at=due_at))
            )

    async def signal(
        self,
        name: str,
        timeout: DurationLike | None,  # noqa: ASYNC109
        prompt: str | None = None,
        options: Mapping[str, Any] | Sequence[str] = (),
    ) -> Any:
        """Return the value of the next signal of this name. Raises TimeoutError after `timeout`."""
        check_name(name)
        steps, key = self._journal.steps, self._journal.steps.key(f"{SIGNAL}{name}")
        now, found = await self._journal.store.now(), await steps.find(key, "signal")
        if found is None:
            due_at = None if timeout is None else _due_at("turn.signal", timeout, now)
        else:
            due_at = found.due_at
            if found.state == "done":
                return from_json(found.result or "null")
            if found.state == "failed":
                raise TimeoutError(found.error)
        wait = steps.step(key, "signal", "started", signal=name, due_at=due_at)
        taken = await self._journal.store.take_signal(self._journal.leased, wait)
        if taken is not None:
            return from_json(taken.result or "null")
        if due_at is not None and due_at <= now:
            error = f"no signal {name!r} came in time"
            late = steps.step(key, "signal", "failed", signal=name, due_at=due_at, error=error)
            await self._journal.record_steps(late)
            raise TimeoutError(error)
        if found is None:
            choices = _choices(options)
            wait.arguments = _question(name, prompt, choices)
            if choices:
                await self._send_question(key, name, prompt or name, choices)
            await self._journal.record_steps(wait)
        return await self._suspend(due_at, now)

    async def _send_question(
        self, key: str, signal: str, text: str, choices: Mapping[str, Any]
    ) -> None:
        """Send a question before its wait is recorded: after a crash in between, it is sent again,
        which changes nothing."""
        if send := self._journal.send_question:
            name = key.removeprefix(SIGNAL)
            await self._journal.until_lease_ends(lambda: send(name, signal, text, choices))

    async def _suspend(self, due_at: datetime | None, now: datetime) -> NoReturn:
        """Cancel the task of the turn, as `asyncio.timeout` does. The inbox makes it a Snooze.

        Steps that run at the same time end first: a cancelled one would have to run again."""
        longest = now + LONGEST_WAIT
        until = longest if due_at is None else min(due_at, longest)
        await self._journal.steps.wait_idle()
        is_first = self._until is None
        self._until = until if self._until is None else min(self._until, until)
        if is_first and self._journal.task is not None:
            self._journal.task.cancel()
        await self._over
        raise AssertionError("the turn was cancelled")

    def end(self) -> None:
        """Cancel whatever still waits in a task of its own."""
        self._over.cancel()

    async def snooze(self) -> Snooze:
        """Return the outcome of a suspended turn."""
        assert self._until is not None
        delay = max(self._until - await self._journal.store.now(), timedelta(0))
        return Snooze(delay, leave_lane=self._journal.leave_lane)


def _choices(options: Mapping[str, Any] | Sequence[str]) -> Mapping[str, Any]:
    """Return the value of each option by its label."""
    return options if isinstance(options, Mapping) else {label: label for label in options}


def _question(name: str, prompt: str | None, choices: Mapping[str, Any]) -> str | None:
    """Return what a wait asks people, as JSON. Raises StepError if it is too long."""
    if prompt is None and not choices:
        return None
    listed = [{"label": label, "value": value} for label, value in choices.items()]
    try:
        asked = to_json({"prompt": prompt or "", "options": listed}).decode()
    except ValueError as error:
        raise StepError(f"signal {name!r} has options that are not JSON: {error}") from None
    if len(asked) > LONGEST_QUESTION:
        raise StepError(f"signal {name!r} asks with over {LONGEST_QUESTION} characters")
    return asked


def _due_at(what: str, until: DurationLike | datetime, now: datetime) -> datetime:
    """Return the moment until which to wait. Raises StepError for a bad one."""
    if isinstance(until, datetime):
        if until.tzinfo is None:
            raise StepError(f"{what} needs a datetime with a time zone, not {until}")
        return until
    try:
        length = duration(until)
        if length < timedelta(0):
            raise ValueError("it is negative")
        return now + length
    except (ValueError, OverflowError) as error:
        raise StepError(f"{what} cannot wait {until}: {error}") from None

"""Trials of an app on the engine under test, and a count of what its steps did."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.app import AgentHarness
from holdfast.chat import ChatStore
from holdfast.queue.journal import Journal
from holdfast.queue.outcome import Outcome
from holdfast.testing.clock import Clock
from holdfast.testing.trial import Trial


class Effects(list[object]):
    """Calls of functions whose effect a test counts."""

    async def note(self, value: int) -> int:
        self.append(value)
        return value


@asynccontextmanager
async def trial_on(
    store: ChatStore, clock: Clock, app: AgentHarness, files: Path = Path("none")
) -> AsyncIterator[Trial]:
    """Open a trial of an app on a store."""
    with app.using(store):
        yield Trial(app, store, clock, files)


async def journal_of(trial: Trial, event_id: int | None = None) -> Journal:
    """Return the journal of an event, by default of the last one that was worked."""
    return await trial.store.journal(event_id or trial.worked[-1][0].primary.id)


async def outcomes(trial: Trial) -> list[Outcome]:
    """Work what is ready and return how the turns ended."""
    return [outcome for _, outcome in await trial.work()]


async def texts(trial: Trial) -> list[str]:
    """Return the texts of the responses, oldest first."""
    return [str(event.event["message"]) for event in await trial.responses()]

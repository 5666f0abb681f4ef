"""Test an app without processes: a temporary store, a settable clock, and turns on demand."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.chat import ChatStore
from holdfast.consumers.memory import KnowledgeStoreOutboxRelay
from holdfast.errors import HoldfastError
from holdfast.memory.recall import Recall
from holdfast.migrations.runner import migrate
from holdfast.queue.event import INBOX, OUTBOX, Event
from holdfast.queue.outcome import Outcome, Snooze
from holdfast.queue.policy import Policy, TargetGroup, outcome_of
from holdfast.queue.store import Filter
from holdfast.routing.rooms import post
from holdfast.routing.router import Address, put_message
from holdfast.store import open_store
from holdfast.store.memory import open_knowledge, open_observations, open_people
from holdfast.testing.clock import Clock

LEASE = timedelta(minutes=10)
MAX_ATTEMPTS = 5


@dataclass(slots=True)
class Trial:
    """An app under test, worked one step at a time."""

    app: AgentHarness
    store: ChatStore
    clock: Clock
    files: Path
    worked: list[tuple[Turn, Outcome]] = field(default_factory=list)
    recall: Recall = field(init=False)

    def __post_init__(self) -> None:
        knowledge = open_knowledge(self.store, self.app.embedder)
        self.recall = Recall(open_observations(self.store), knowledge, open_people(self.store))

    async def ask(self, text: str, *, agent: str | None = None, sender: str = "API") -> str:
        """Send a message, work until nothing is ready, and return the answer.

        A turn that sleeps moves the clock to the end of its sleep. The answers of a team are
        joined by blank lines. Messages of one sender are one conversation. Raises HoldfastError if
        there is no answer: the message became a dead letter, or waits for another attempt."""
        before = {event.id for event in await self.responses()}
        message_id = await self.say(text, agent=agent, address=Address(sender=sender))
        worked = await self.work()
        while worked and (until := await self._sleeps_until(*worked[-1])):
            self.clock.set(until)
            worked += await self.work()
        answers = [event for event in await self.responses() if event.id not in before]
        if not answers:
            raise HoldfastError(f"no answer to {message_id}: {_describe(worked)}")
        return "\n\n".join(str(event.event["message"]) for event in answers)

    async def say(
        self, text: str, *, agent: str | None = None, address: Address | None = None
    ) -> str:
        """Store a message and return its id."""
        id_, _ = await put_message(
            self.store,
            self.app.routing,
            text,
            address or Address(),
            max_attempts=MAX_ATTEMPTS,
            agent=agent,
        )
        return id_

    async def post(self, team: str, text: str) -> int:
        """Post a line in a team's room. Returns its id."""
        return await post(self.store, self.app.routing, team, text, max_attempts=MAX_ATTEMPTS)

    async def work(self) -> list[tuple[Turn, Outcome]]:
        """Work all ready turns, and those that become ready as a result.

        Returns each turn with its outcome."""
        handle = self.app.worker(self.store, self.files, self.recall).handle
        done: list[tuple[Turn, Outcome]] = []
        while turns := await self.store.claim(
            INBOX, self._targets(), limit=1, lease=LEASE, max_attempts=MAX_ATTEMPTS
        ):
            turn = turns[0]
            try:
                outcome = await handle(turn)
            except Exception as error:  # noqa: BLE001 - an outcome, as in the consumer
                outcome = outcome_of(error)
            outcome = Policy(
                queue=INBOX, target_groups=(TargetGroup(targets=(), lease=LEASE),), at_once=1
            ).with_backoff(turn, outcome)
            await self.store.settle([(turn, outcome)], max_attempts=MAX_ATTEMPTS)
            if isinstance(outcome, Snooze):
                for event_id in turn.ids:
                    await self.store.resume_signalled(event_id)
            done.append((Turn(turn, turn.primary.target or self.app.default), outcome))
            await self._index()
        self.worked += done
        return done

    async def _sleeps_until(self, turn: Turn, outcome: Outcome) -> datetime | None:
        """Return the end of the sleep with which a turn ended; None if it does not sleep."""
        if not isinstance(outcome, Snooze):
            return None
        steps = (await self.store.journal(turn.primary.id)).steps.values()
        waits = [step for step in steps if step.state == "started" and step.due_at is not None]
        sleeps = [step.due_at for step in waits if step.kind == "sleep" and step.due_at]
        return min(sleeps, default=None)

    async def _index(self) -> None:
        """Index new observations, so that the next turn finds them."""
        relay = KnowledgeStoreOutboxRelay(self.recall.observations, self.recall.knowledge)
        while (await relay.drain_once()).claimed:
            pass

    def _targets(self) -> list[str]:
        return [target for id_ in self.app.agents for target in self.app.targets_of(id_)]

    async def responses(self, channel: str = "api") -> list[Event]:
        """Return the responses that wait for a channel, oldest first."""
        return await self.store.waiting(OUTBOX, channel)

    async def dead_letters(self) -> list[str | None]:
        """Return the errors of messages that could not be answered, newest first."""
        return [dead.last_error for dead in await self.store.dead(Filter(queue=INBOX))]


@asynccontextmanager
async def trial(app: AgentHarness, clock: Clock | None = None) -> AsyncIterator[Trial]:
    """Open a trial of an app, on a temporary SQLite database."""
    clock = clock or Clock()
    with tempfile.TemporaryDirectory(prefix="holdfast-trial-") as folder:
        url = f"sqlite:///{Path(folder) / 'trial.db'}"
        migrate(url)
        async with open_store(url, clock=clock) as store:
            await app.routing.write(store)
            with app.using(store):
                yield Trial(app, store, clock, Path(folder) / "files")


def _describe(worked: list[tuple[Turn, Outcome]]) -> str:
    """Describe how the turns ended, for the error of a message without an answer."""
    return "; ".join(repr(outcome) for _, outcome in worked) or "no agent was ready to take it"

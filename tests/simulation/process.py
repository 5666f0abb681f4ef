"""A simulated process: the real consumers, routing and sweeper, on a loop of its own."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import cast

from holdfast.agents.base import Answer, Reply, Team
from holdfast.agents.function import FunctionAgent
from holdfast.agents.turn import Turn
from holdfast.channels.base import Channel, NotNow, Part, Put, Undeliverable, part_key
from holdfast.chat import ChatStore
from holdfast.consumers.inbox import HostedAgent, Worker
from holdfast.consumers.outbox import Delivery
from holdfast.consumers.request import FINISHING_SHARE, RequestLimits
from holdfast.errors import StoreUnavailable
from holdfast.message import Payload
from holdfast.queue.consumer import Consumer
from holdfast.queue.event import INBOX, OUTBOX, Event
from holdfast.queue.outcome import Dead, Done, Outcome, Retry, Snooze
from holdfast.queue.policy import Backoff, Policy, TargetGroup
from holdfast.queue.store import Process, SweepPolicy
from holdfast.queue.sweeper import Sweeper
from holdfast.queue.turn import LeasedTurn
from holdfast.routing.files import Attachments
from holdfast.routing.handoff import Teamwork
from holdfast.routing.hooks import Hooks
from holdfast.routing.router import Address, Routing, put_message
from tests.simulation.history import History
from tests.simulation.server import START, Server
from tests.simulation.store import Network, SimulatedStore
from tests.simulation.timeline import ProcessLoop, Timeline

ROUTING = Routing(
    default="coder",
    lanes={"coder": "conversation", "writer": "agent", "loner": "none", "clerk": "conversation"},
    teams={"dev": Team(name="Devs", agents=("coder", "writer"), leader="coder")},
)
CHANNEL = "chat"
ATTEMPTS = 4
SEND_WITHIN = timedelta(seconds=5)
PLATFORM_SECONDS = 4.0
"""The longest time that the platform takes for a request; less than SEND_WITHIN."""
LET_GO_WITHIN = timedelta(seconds=2)
LIMITS = RequestLimits(send_within=SEND_WITHIN, finish_within=LET_GO_WITHIN * FINISHING_SHARE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How processes and their agents behave in one run."""

    lease: timedelta
    poll: timedelta
    grace: timedelta
    workers: int
    work_seconds: float
    failures: float
    """Part of the turns that fail in some way."""
    poison: float = 0.0
    """Part of the turns that kill their process."""


class Platform:
    """Takes each part of a response after a while, whatever became of the process that sent it."""

    def __init__(self, timeline: Timeline, history: History) -> None:
        self.timeline = timeline
        self.history = history
        self._coming: Counter[str] = Counter()

    async def take(self, loop: ProcessLoop, key: str) -> Payload:
        answer: asyncio.Future[Payload] = loop.create_future()

        def arrive() -> None:
            self._coming[key] -= 1
            self.history.sent[key] += 1
            if not answer.done():
                answer.set_result({"ts": key})

        self._coming[key] += 1
        self.timeline.after(random.random() ** 4 * PLATFORM_SECONDS, arrive)
        return await answer

    def find(self, key: str) -> Payload | None:
        """Look a part up. One that is still on its way cannot be found, and is sent again."""
        if self.history.sent[key]:
            return {"ts": key}
        if self._coming[key]:
            self.history.unseen.add(key)
        return None


class SimulatedChannel(Channel):
    """A channel whose platform can look up parts."""

    name = CHANNEL

    def __init__(self, platform: Platform, loop: ProcessLoop, habits: Habits) -> None:
        self._platform = platform
        self._loop = loop
        self._habits = habits

    async def run(self, put: Put) -> None:
        return

    def split(self, response: Event) -> Sequence[Part]:
        return [Part(part_key(response, number)) for number in range(1 + response.id % 2)]

    async def send_part(self, response: Event, part: Part, note: Payload) -> Payload:
        if random.random() < self._habits.failures / 2:
            if random.random() < 0.1:
                raise Undeliverable("gone", "the room is closed")
            raise NotNow(timedelta(seconds=random.random() * 3))
        return await self._platform.take(self._loop, part.key)

    async def find_part(self, response: Event, part: Part, note: Payload) -> Payload | None:
        await asyncio.sleep(random.random())
        return self._platform.find(part.key)


class SimulatedProcess:
    """One process with an inbox, an outbox and a sweeper; `kill`, `stop` or suspend it."""

    def __init__(
        self,
        number: int,
        server: Server,
        network: Network,
        platform: Platform,
        habits: Habits,
        history: History,
    ) -> None:
        self.number = number
        self.name = f"p{number}"
        self.habits = habits
        self.history = history
        self.server = server
        self.timeline = server.timeline
        self.loop = ProcessLoop(self.timeline, self._fail)
        self.store = SimulatedStore(server, network, self.loop, self.name)
        self.is_alive = True
        self.is_stopping = False
        self.on_poison: Callable[[], None] = lambda: None
        """Called when a message kills this process."""
        channel = SimulatedChannel(platform, self.loop, habits)
        self.consumers = [self._inbox(), self._outbox(channel)]
        self._main = self.loop.create_task(self._run())
        server.processes.add(self.name)
        server.sessions.add(self.name)

    def _fail(self, problem: str) -> None:
        self.history.problems.append(f"process {self.name}: {problem}")

    def _inbox(self) -> Consumer:
        store, habits = cast(ChatStore, self.store), self.habits
        groups = (
            TargetGroup(targets=("coder", "writer", "loner"), lease=habits.lease),
            TargetGroup(targets=("clerk",), lease=habits.lease * 1.5, collect_limit=10),
        )
        agent = HostedAgent(FunctionAgent(self._answer))
        worker = Worker(
            store,
            dict.fromkeys(ROUTING.lanes, agent),
            ROUTING.default,
            Hooks(),
            Teamwork(ROUTING, Attachments(Path("/nowhere")), store),
        )
        return self._consumer(INBOX, groups, worker.handle, unnamed=ROUTING.default)

    def _outbox(self, channel: Channel) -> Consumer:
        groups = (TargetGroup(targets=(CHANNEL,), lease=self.habits.lease, max_attempts=10),)
        delivery = Delivery({CHANNEL: channel}, cast(ChatStore, self.store), LIMITS)
        return self._consumer(OUTBOX, groups, delivery.handle)

    def _consumer(
        self,
        queue: str,
        groups: tuple[TargetGroup, ...],
        handle: Callable[[LeasedTurn], Awaitable[Outcome]],
        unnamed: str = "",
    ) -> Consumer:
        policy = Policy(
            queue=queue,
            target_groups=groups,
            at_once=self.habits.workers,
            unnamed=unnamed,
            backoff=Backoff(first=timedelta(seconds=0.2), most=timedelta(seconds=5)),
            poll=self.habits.poll,
            jitter=self.habits.poll / 4,
            let_go_within=LET_GO_WITHIN,
        )

        async def recorded(turn: LeasedTurn) -> Outcome:
            self.history.start(self.number, self.timeline.now, turn)
            emits = 0
            try:
                outcome = await handle(turn)
                emits = len(outcome.emits) if isinstance(outcome, Done) else 0
            finally:
                # A process that was killed notes nothing any more.
                if self.is_alive:
                    self.history.end(self.timeline.now, turn, emits)
            return outcome

        return Consumer(
            cast(ChatStore, self.store), policy, recorded, self.name, self.history.settled
        )

    async def _answer(self, turn: Turn) -> Answer:
        """Work for a while, and end in one of the ways that agents end."""
        habits = self.habits
        await asyncio.sleep(random.expovariate(1 / habits.work_seconds))
        if random.random() < habits.poison:
            self.kill()
            self.on_poison()
            await asyncio.Event().wait()
        if random.random() < habits.failures:
            return _failure()
        if turn.primary.hops < 2 and turn.agent == "coder" and random.random() < 0.2:
            return Reply("so be it [@writer: have a look]")
        return Reply("done") if random.random() < 0.9 else None

    async def _run(self) -> None:
        sweeps = [
            SweepPolicy(queue=INBOX, max_attempts=ATTEMPTS),
            SweepPolicy(queue=OUTBOX, max_attempts=10),
        ]
        sweeper = Sweeper(
            cast(ChatStore, self.store), sweeps, self._status, every=timedelta(seconds=10)
        )
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(self._listen()), group.create_task(sweeper.run())]
            await asyncio.wait(
                [group.create_task(one.run(self.habits.grace)) for one in self.consumers]
            )
            for task in beside:
                task.cancel()
        self._sign_off()

    async def _listen(self) -> None:
        async for queue in self.store.wakeups():
            for consumer in self.consumers:
                if queue in ("", consumer.policy.queue):
                    consumer.wake.set()

    def _status(self) -> Process:
        return Process(id=self.name, host="", started_at=START, seen_at=START)

    def stop(self) -> None:
        """Ask for a graceful stop, as SIGTERM does."""
        if self.is_alive and not self.is_stopping:
            self.is_stopping = True
            for consumer in self.consumers:
                self.loop.call_soon(consumer.stop)

    def _sign_off(self) -> None:
        """Leave the processes, unless turns are left that others must take over."""
        self.is_alive = False
        self.server.sessions.discard(self.name)
        if not any(consumer.running for consumer in self.consumers):
            self.server.processes.discard(self.name)
        self.server.model.record("stop", who=self.name)

    def kill(self, noticed_in: float = 0.0) -> None:
        """End the process at once. Its session ends later if its machine is gone, too."""
        if self.is_alive:
            self.is_alive = False
            self.loop.kill()
            self.server.model.record("kill", who=self.name)
            self.timeline.after(noticed_in, lambda: self.server.sessions.discard(self.name))


class Producer:
    """A process that only takes messages in: it puts each until that is acknowledged."""

    def __init__(self, number: int, server: Server, network: Network, history: History) -> None:
        self.number = number
        self.history = history
        self.loop = ProcessLoop(server.timeline, history.problems.append)
        self.store = SimulatedStore(server, network, self.loop, f"in{number}")
        self.left = 0

    def send(self, name: str, text: str, conversation: int) -> None:
        self.left += 1
        self.loop.create_task(self._put(name, text, conversation))

    async def _put(self, name: str, text: str, conversation: int) -> None:
        address = Address(channel=CHANNEL, sender="ann", sender_id=f"c{conversation}")
        while True:
            with suppress(StoreUnavailable):
                _, id = await put_message(
                    cast(ChatStore, self.store),
                    ROUTING,
                    text,
                    address,
                    max_attempts=ATTEMPTS,
                    message_id=name,
                )
                if id is not None:
                    self.history.acknowledged[name] = id
                self.left -= 1
                return
            await asyncio.sleep(random.random())


def _failure() -> Answer:
    failure = random.choice(["raise", "retry", "snooze", "snooze", "dead"])
    match failure:
        case "raise":
            raise RuntimeError("the agent is confused")
        case "retry":
            return Retry("again", timedelta(seconds=random.random() * 5))
        case "snooze":
            return Snooze(timedelta(seconds=random.random() * 5))
        case _:
            return Dead("this cannot be done")

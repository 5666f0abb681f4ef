"""The store as a simulated process sees it: every call goes over a network that may fail."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, TypeVar

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.message import Payload
from holdfast.queue.event import NewEvent
from holdfast.queue.journal import Journal
from holdfast.queue.outcome import Lost, Outcome, Settled
from holdfast.queue.record import Record
from holdfast.queue.store import DEFAULT_MAX_ATTEMPTS, Process, SweepPolicy, Swept
from holdfast.queue.turn import LeasedTurn
from holdfast.queue.wake import Wakeups
from holdfast.store.watch import Watch
from tests.simulation.server import Server
from tests.simulation.timeline import ProcessLoop

Result = TypeVar("Result")
Cut = Literal["", "both", "requests", "answers"]

LATE = 3.0
"""Seconds after a cut within which a request that was on its way may still arrive."""
NOTICED_WITHIN = 4.0
"""Seconds until a client notices that no answer will come."""
ASK_EVERY = 5
"""Every fifth look of a process that is not the looker asks whether it is now."""
GRACE = 3.0
"""Seconds after a start of the server in which nobody is declared dead."""


@dataclass(slots=True)
class Network:
    """How requests travel: how long they take, and which part of the server is slow."""

    latency: float
    wakeups_lost: float = 0.0
    slowness: float = 0.0

    def delay(self) -> float:
        return random.expovariate(1 / self.latency) + random.random() * self.slowness


class SimulatedStore:
    """The part of a store that consumers, routing and the sweeper call, for one process."""

    def __init__(self, server: Server, network: Network, loop: ProcessLoop, name: str) -> None:
        self._server = server
        self._network = network
        self._loop = loop
        self._timeline = loop.timeline
        self._name = name
        self._wakeups = Wakeups()
        self._watch = Watch(monotonic=lambda: time.monotonic())
        self._looks = 0
        self._rung: set[str] = set()
        self.expects: set[str] = set()
        self.cut: Cut = ""

    async def _ask(self, call: Callable[..., Result], *args: Any, **options: Any) -> Result:
        """Send a call to the server and wait for the answer, or for the end of patience."""
        answer: asyncio.Future[Result] = self._loop.create_future()
        if self.cut in ("both", "requests"):
            self._fail(answer)
            if random.random() < 0.5:
                self._timeline.after(
                    random.random() * LATE, lambda: self._arrive_late(call, args, options)
                )
            return await answer

        def arrive() -> None:
            try:
                result = call(*args, **options)
            except HoldfastError as error:
                self._answer(answer, partial(answer.set_exception, error))
            else:
                self._answer(answer, partial(answer.set_result, result))

        self._timeline.after(self._network.delay(), arrive)
        return await answer

    def _arrive_late(self, call: Callable[..., object], args: Any, options: Any) -> None:
        """The server goes on with a request whose client has given up."""
        try:
            call(*args, **options)
        except HoldfastError:
            return

    def _answer(self, answer: asyncio.Future[Any], give: Callable[[], None]) -> None:
        if self.cut:
            self._fail(answer)
            return
        self._timeline.after(self._network.delay(), lambda: None if answer.done() else give())

    def _fail(self, answer: asyncio.Future[Any]) -> None:
        def fail() -> None:
            if not answer.done():
                answer.set_exception(StoreUnavailable("the database cannot be reached"))

        self._timeline.after(random.random() * NOTICED_WITHIN, fail)

    async def now(self) -> datetime:
        return await self._ask(self._server.clock)

    async def put(
        self, events: Sequence[NewEvent], *, records: Sequence[Record] = (), tx: None = None
    ) -> list[int | None]:
        return await self._ask(self._server.put, events)

    async def claim(
        self,
        queue: str,
        targets: Sequence[str],
        *,
        limit: int,
        lease: timedelta,
        holder: str | None = None,
        collect_limit: int = 1,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        at_most: Sequence[int | None] | None = None,
    ) -> list[LeasedTurn]:
        return await self._ask(
            self._server.claim,
            queue,
            targets,
            limit=limit,
            lease=lease,
            holder=holder,
            collect_limit=collect_limit,
            max_attempts=max_attempts,
            at_most=at_most,
        )

    async def renew(self, turns: Sequence[LeasedTurn], lease: timedelta) -> list[LeasedTurn]:
        return await self._ask(self._server.renew, turns, lease)

    async def checkpoint(self, turn: LeasedTurn, state: Payload) -> datetime:
        return await self._ask(self._server.checkpoint, turn, state)

    async def settle(
        self,
        ends: Sequence[tuple[LeasedTurn, Outcome]],
        *,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    ) -> list[Settled | Lost]:
        return await self._ask(self._server.settle, ends, max_attempts)

    async def release(self, turns: Sequence[LeasedTurn]) -> list[Settled | Lost]:
        return await self._ask(self._server.release, turns)

    async def held(self, queue: str, holder: str) -> list[LeasedTurn]:
        return await self._ask(self._server.held, queue, holder)

    async def next_due(self, queue: str, targets: Sequence[str]) -> datetime | None:
        return await self._ask(self._server.next_due, queue, targets)

    async def handed_on(self, root_id: int, before_id: int) -> int:
        return await self._ask(self._server.handed_on, root_id, before_id)

    async def spent(self, root_id: int) -> int:
        return 0

    async def journal(self, event_id: int) -> Journal:
        """Agents here take no steps, so that every journal is empty."""
        return await self._ask(Journal)

    async def setting(self, key: str) -> Any:
        return await self._ask(self._server.settings.get, key)

    async def sweep(self, policy: SweepPolicy) -> Swept:
        return await self._ask(self._server.sweep, policy)

    async def forget_activity(self, keep: timedelta) -> int:
        return 0

    async def refresh_process(self, process: Process) -> None:
        return None

    async def reap(self, max_attempts: Mapping[str, int]) -> list[str]:
        """Look for dead processes, if this process does it for all."""
        self._looks += 1
        if self._server.looker != self._name and self._looks % ASK_EVERY:
            return []
        silent = await self._ask(self._server.look, self._name, GRACE)
        if silent is None:
            self._watch.forget()
            return []
        dead = self._watch.look(silent)
        return await self._ask(self._server.reap, dead, dict(max_attempts)) if dead else []

    async def wake(self, queue: str) -> None:
        await self._ask(self._server.on_ready, queue)

    async def expect(self, queue: str, is_expected: bool = True) -> None:
        if is_expected:
            self.expects.add(queue)
        else:
            self.expects.discard(queue)

    def wakeups(self, queue: str | None = None) -> AsyncIterator[str]:
        return self._wakeups.listen(queue)

    def ring(self, queue: str) -> None:
        """Carry a wake-up of the server to this process, unless it is lost on the way."""
        if queue not in self.expects or queue in self._rung or self.cut:
            return
        if random.random() < self._network.wakeups_lost:
            return
        self._rung.add(queue)

        def arrive() -> None:
            self._rung.discard(queue)
            self._wakeups.ring(queue)

        self._timeline.after(0.02 + self._network.delay(), arrive)

    def reconnected(self) -> None:
        """Wake every queue, as a new session does: wake-ups were lost meanwhile."""
        self._watch.forget()
        self._loop.call_soon(self._wakeups.ring, "")

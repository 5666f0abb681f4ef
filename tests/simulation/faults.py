"""Faults of a run: chosen from its seed, each with its end."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from tests.simulation.process import Producer, SimulatedProcess
from tests.simulation.server import Server
from tests.simulation.store import Cut, Network

KEEPALIVE = 12.0
"""Seconds until the server notices that a machine is gone or cut off."""
KINDS = ("crash", "pause", "partition", "step", "slow", "stop", "restart")
CUTS: tuple[Cut, ...] = ("both", "both", "requests", "answers")


@dataclass(slots=True, kw_only=True)
class Faults:
    """Does one fault at a time to a random process, and undoes it after a while."""

    server: Server
    network: Network
    processes: list[SimulatedProcess]
    producers: list[Producer]
    replace: Callable[[], None]
    lease: float
    steps: float = 0.0
    """Sum of all steps of the server's clock, forward or back."""
    happened: dict[str, int] = field(default_factory=dict)
    troubled: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Spans in which a process could not work as usual; '' stands for all of them."""

    def do(self, kind: str) -> None:
        alive = [one for one in self.processes if one.is_alive and not one.is_stopping]
        if not alive:
            return
        self.happened[kind] = self.happened.get(kind, 0) + 1
        getattr(self, f"_{kind}")(random.choice(alive))

    def _note(self, who: str, what: str, seconds: float = 0.0) -> None:
        now = self.server.timeline.now
        self.troubled.setdefault(who, []).append((now, now + seconds))
        detail = f"{seconds:.1f} s" if seconds else ""
        self.server.model.record(what, who=who, detail=detail)

    def _crash(self, process: SimulatedProcess) -> None:
        process.kill(random.choice([0.0, 0.0, KEEPALIVE * random.random()]))
        self._later(random.random() * 10, self.replace)

    def _stop(self, process: SimulatedProcess) -> None:
        self.server.model.record("stopping", who=process.name)
        process.stop()
        self._later(random.random() * 10, self.replace)

    def _pause(self, process: SimulatedProcess) -> None:
        """Suspend a process, or its whole machine, whose clock then stands still."""
        seconds = random.random() ** 2 * 2.5 * self.lease
        self._note(process.name, "paused", seconds)
        process.loop.suspend()
        lost = random.choice([0.0, seconds])
        self._later(seconds, lambda: process.loop.resume(lost=lost) if process.is_alive else None)

    def _partition(self, process: SimulatedProcess) -> None:
        """Cut some processes off, in one direction or both; the server then misses them."""
        seconds = random.random() ** 2 * 2.5 * self.lease
        alive = [one for one in self.processes if one.is_alive]
        for one in {process.number: process, **_some(alive)}.values():
            self._cut(one, random.choice(CUTS), seconds)
        if random.random() < 0.3:
            producer = random.choice(self.producers)
            producer.store.cut = random.choice(CUTS)
            self._later(seconds, lambda: self._heal_producer(producer))

    def _heal_producer(self, producer: Producer) -> None:
        producer.store.cut = ""

    def _cut(self, process: SimulatedProcess, how: Cut, seconds: float) -> None:
        if process.store.cut:
            return
        self._note(process.name, f"cut {how}", seconds)
        process.store.cut = how
        self._later(KEEPALIVE * random.random(), lambda: self._miss(process))
        self._later(seconds, lambda: self._heal(process))

    def _miss(self, process: SimulatedProcess) -> None:
        if process.store.cut:
            self.server.sessions.discard(process.name)

    def _heal(self, process: SimulatedProcess) -> None:
        process.store.cut = ""
        self._later(random.random() * 0.5, lambda: self._reconnect(process))

    def _reconnect(self, process: SimulatedProcess) -> None:
        """Open a new session, once the process runs."""
        if not process.is_alive or process.store.cut:
            return
        if process.loop.is_suspended:
            self._later(1.0, lambda: self._reconnect(process))
            return
        self.server.sessions.add(process.name)
        self.server.processes.add(process.name)
        process.store.reconnected()

    def _step(self, _: SimulatedProcess) -> None:
        """Set the server's clock, forward or back."""
        seconds = random.choice([-1, 1]) * random.random() ** 2 * 2 * self.lease
        self.steps += abs(seconds)
        self.server.step += timedelta(seconds=seconds)
        self._note("", f"clock {seconds:+.1f} s", self.lease * 3)

    def _slow(self, _: SimulatedProcess) -> None:
        """Let the server take seconds for each request."""
        seconds = random.random() * 2 * self.lease
        self._note("", "slow", seconds + self.lease)
        self.network.slowness = random.choice([0.5, 2.0, self.lease / 2])
        self._later(seconds, self._quicken)

    def _quicken(self) -> None:
        self.network.slowness = 0.0

    def _restart(self, _: SimulatedProcess) -> None:
        """Restart the server: all sessions end, and all processes are cut off for a while."""
        seconds = random.random() * 6
        self._note("", "restart", seconds)
        self.server.sessions.clear()
        for process in self.processes:
            if process.is_alive:
                self._cut(process, "both", seconds)
        self._later(seconds, self._started)

    def _started(self) -> None:
        self.server.up_since = self.server.timeline.now

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self.server.timeline.after(seconds, action)


def _some(alive: list[SimulatedProcess]) -> dict[int, SimulatedProcess]:
    chosen = random.sample(alive, random.choice([0, 0, 1, len(alive) // 3]) % (len(alive) + 1))
    return {one.number: one for one in chosen}

"""One run of the simulation: everything in it follows from its seed."""

from __future__ import annotations

import hashlib
import logging
import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from holdfast.telemetry import DEAD_LETTER, EVENTS_SWEPT
from holdfast.telemetry.logs import Entry as LogEntry
from tests.simulation.faults import KINDS, Faults
from tests.simulation.history import History
from tests.simulation.ledger import violations
from tests.simulation.process import Habits, Platform, Producer, SimulatedProcess
from tests.simulation.server import Server
from tests.simulation.store import Network
from tests.simulation.timeline import Timeline, virtual

AGENTS = ("", "", "@writer ", "@loner ", "@clerk ", "@clerk ", "@dev ")
RECOVERY = 900.0
"""Virtual seconds after the last fault within which everything must have ended."""
STOP = 120.0
FLEET = 500
"""Number of processes from which on polls are rare and most wake-ups are lost, to save time."""
LOST_IN_FLEETS = 0.97
EXPECTED = (DEAD_LETTER, EVENTS_SWEPT)
"""Errors that the log may show: agents fail, and processes die."""


@dataclass(frozen=True, slots=True)
class Result:
    """The violations of a run, its history and some counts."""

    seed: int
    processes: int
    violations: list[str]
    history: History
    seconds: float
    faults: dict[str, int]
    report: str

    @property
    def summary(self) -> str:
        """The size of the run, and a digest that is the same whenever the seed is repeated."""
        text = "\n".join(map(str, self.history.entries))
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return (
            f"{self.processes} processes, {len(self.history.rows)} events,"
            f" {len(self.history.runs)} runs, {self.seconds:.0f} s, {self.faults}, {digest}"
        )

    @property
    def command(self) -> str:
        return f"python -m tests.simulation {self.seed} --processes {self.processes}"


class Simulation:
    """A fleet over one server, with messages and faults over a stretch of virtual time."""

    def __init__(self, timeline: Timeline, processes: int) -> None:
        self.timeline = timeline
        self.history = History()
        self.server = Server(self.timeline, self.history)
        self.network = Network(
            latency=random.choice([0.001, 0.005, 0.05]),
            wakeups_lost=LOST_IN_FLEETS if processes >= FLEET else random.choice([0, 0, 0.1, 1]),
        )
        self.platform = Platform(self.timeline, self.history)
        self.habits = _habits(processes)
        self.processes: list[SimulatedProcess] = []
        self.producers = [
            Producer(number, self.server, self.network, self.history)
            for number in range(random.randint(1, 3))
        ]
        self.server.on_ready = self._ring
        self.count = processes
        self.is_ending = False
        lease = self.habits.lease.total_seconds()
        self.span = random.uniform(1, 3) * lease
        self.faults = Faults(
            server=self.server,
            network=self.network,
            processes=self.processes,
            producers=self.producers,
            replace=self._start,
            lease=lease,
        )

    def _ring(self, queue: str) -> None:
        for process in self.processes:
            if process.is_alive and process.name in self.server.sessions:
                process.store.ring(queue)

    def _start(self) -> None:
        if self.is_ending:
            return
        number = len(self.processes) + 1
        process = SimulatedProcess(
            number, self.server, self.network, self.platform, self.habits, self.history
        )
        process.on_poison = lambda: self.timeline.after(random.random() * 10, self._start)
        self.processes.append(process)

    def run(self) -> None:
        for _ in range(self.count):
            self.timeline.after(random.random() * 2, self._start)
        self._plan_messages()
        self._plan_faults()
        until = self.span + RECOVERY
        self.timeline.run(until, self._is_over)
        self.is_ending = True
        for process in self.processes:
            process.stop()
        self.timeline.run(self.timeline.now + STOP)
        left = [one.name for one in self.processes if one.is_alive]
        self.history.problems += [f"process {name} never stopped" for name in left]

    def _plan_messages(self) -> None:
        conversations = random.randint(2, 10 + self.count // 10)
        bursts = [random.random() * self.span for _ in range(random.randint(1, 6))]
        for number in range(random.randint(5, 30) + min(self.count // 2, 150)):
            text = f"{random.choice(AGENTS)}hello {number}"
            conversation = random.randrange(conversations)
            producer = random.choice(self.producers)
            self.timeline.after(
                random.choice(bursts), partial(producer.send, f"m{number}", text, conversation)
            )

    def _plan_faults(self) -> None:
        kinds = random.sample(KINDS, random.randint(0, len(KINDS)))
        number = random.randint(1, 4 + min(self.count // 4, 20)) if kinds else 0
        for _ in range(number):
            self.timeline.after(
                random.random() * self.span, partial(self.faults.do, random.choice(kinds))
            )

    def _is_over(self) -> bool:
        return (
            not self.server.model.live
            and self.timeline.now > self.span
            and not any(producer.left for producer in self.producers)
        )

    def close(self) -> None:
        for loop in [one.loop for one in self.processes] + [one.loop for one in self.producers]:
            loop.discard()

    def check(self) -> list[tuple[str, tuple[int, ...]]]:
        model = self.server.model
        self.history.rows = {**model.live, **model.history}
        happened = self.faults.happened
        clocks_differed = bool(happened.get("step") or happened.get("pause"))
        lease = self.habits.lease.total_seconds()
        return violations(
            self.history, self.faults.troubled, lease, clocks_differed=clocks_differed
        )


def _habits(processes: int) -> Habits:
    lease = random.choice([6.0, 15.0, 30.0])
    return Habits(
        lease=timedelta(seconds=lease),
        poll=timedelta(seconds=30.0 if processes >= FLEET else random.choice([2.0, 10.0])),
        grace=timedelta(seconds=random.choice([0.0, 1.0, 10.0])),
        workers=random.choice([1, 2, 5]),
        work_seconds=random.choice([0.01, 0.5, 2.0, lease / 3]),
        failures=random.choice([0.0, 0.1, 0.4]),
        poison=random.choice([0.0, 0.0, 0.02]),
    )


def fleet_size() -> int:
    """Draw the number of processes: most runs have few, some have dozens."""
    return round(math.exp(random.uniform(math.log(2), math.log(50))))


def simulate(seed: int, processes: int | None = None) -> Result:
    """Run one seed. The same seed and number of processes give the same history."""
    timeline = Timeline()
    with virtual(timeline, seed), _logged_errors() as errors:
        drawn = fleet_size()
        simulation = Simulation(timeline, processes or drawn)
        try:
            simulation.run()
        finally:
            simulation.close()
        simulation.history.problems += errors
        found = simulation.check()
    lines, ids = [line for line, _ in found], {id for _, ids in found for id in ids}
    return Result(
        seed=seed,
        processes=simulation.count,
        violations=lines,
        history=simulation.history,
        seconds=timeline.now,
        faults=simulation.faults.happened,
        report=simulation.history.report(lines, ids),
    )


@contextmanager
def _logged_errors() -> Iterator[list[str]]:
    """Keep the log of the package quiet, and collect the errors in it that no sweep explains."""
    errors: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            is_expected = isinstance(record.msg, LogEntry) and record.msg.event in EXPECTED
            if record.levelno >= logging.ERROR and not is_expected:
                errors.append(f"logged: {record.getMessage()} {record.exc_info or ''}")

    log, handler = logging.getLogger("holdfast"), Collect()
    level, propagates = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.ERROR)
    log.propagate = False
    try:
        yield errors
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagates

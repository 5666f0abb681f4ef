"""This process among the others on one database: its session, its wake-ups, and dead processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import timedelta

from holdfast.queue.event import new_id
from holdfast.queue.store import Process
from holdfast.queue.wake import Wakeups
from holdfast.store.payload import dump
from holdfast.store.postgres.connections import Connections
from holdfast.store.postgres.lookout import Lookout
from holdfast.store.postgres.rows import PROCESS, heartbeat_of, process_of
from holdfast.store.postgres.session import Session
from holdfast.store.postgres.vacuum import LiveTableVacuum
from holdfast.store.postgres.waker import Waker
from holdfast.store.watch import Watch

LATE_AFTER = timedelta(seconds=1)
LATE_WITHIN = timedelta(seconds=4)
"""Ages between which a ready event is late: nobody took it, perhaps for want of a wake-up."""


class Fleet:
    """Connects this process with the others on its database.

    The session starts when it is first needed: a program that only puts events has none."""

    def __init__(self, direct_url: str, connections: Connections, watch: Watch) -> None:
        self._connections = connections
        self._wakeups = Wakeups()
        self._session = Session(direct_url, self._wakeups.ring)
        self._lookout = Lookout(self._session, watch, new_id("lookout"))
        self._waker = Waker(self._session, connections)
        self._vacuum = LiveTableVacuum(connections, lambda: self._lookout.role == "looker")
        self._needs_session = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._waker.run())
            await self._needs_session.wait()
            tasks.create_task(self._session.run())
            tasks.create_task(self._vacuum.run())

    async def flush(self) -> None:
        """Send the wake-ups that have not been sent yet."""
        await self._waker.flush()

    def wake(self, queues: Iterable[str]) -> None:
        """Wake the consumers of queues in which a commit made events ready, here and elsewhere."""
        for queue in queues:
            self._wakeups.ring(queue)
        self._waker.add(queues)

    async def expect(self, queue: str, is_expected: bool) -> None:
        self._needs_session.set()
        await self._session.expect(queue, is_expected)

    def wakeups(self, queue: str | None) -> AsyncIterator[str]:
        self._needs_session.set()
        return self._wakeups.listen(queue)

    async def register(self, process: Process) -> None:
        self._needs_session.set()
        await self._session.register(process)

    async def unregister(self, process_id: str) -> None:
        await self._connections.rows(
            "delete from agent.process where id = %s returning id", (process_id,)
        )

    async def refresh_process(self, process: Process) -> None:
        await self._connections.value("select agent.beat(%s, %s, %s, %s)", heartbeat_of(process))

    async def processes(self) -> list[Process]:
        rows = await self._connections.rows(
            f"select {', '.join(PROCESS)} from agent.process order by started_at, id"
        )
        self._session.processes = len(rows)
        return [process_of(row) for row in rows]

    async def reap(self, max_attempts: Mapping[str, int] | None) -> list[str]:
        self._needs_session.set()
        gone = await self._lookout.find_dead()
        if self._lookout.role == "looker":
            await self._wake_late()
        arguments = gone, dump(dict(max_attempts or {}))
        rows = (
            await self._connections.rows_without_unreadable("select agent.reap(%s, %s)", arguments)
            if gone
            else []
        )
        return [row[0] for row in rows]

    async def _wake_late(self) -> None:
        """Wake queues whose ready events nobody took: a process may have died before its wake-up.

        Only one process of a fleet does this, so it can afford to do it often."""
        await self._session.fetch("select agent.wake_late(%s, %s)", (LATE_AFTER, LATE_WITHIN))

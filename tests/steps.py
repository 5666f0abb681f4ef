"""Building blocks of harness tests: waiting, putting, running, and a store that can fail."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.queue.consumer import Consumer, Handler
from holdfast.queue.event import INBOX, NewEvent
from holdfast.queue.policy import Policy, TargetGroup
from holdfast.queue.store import Store
from holdfast.testing.harness import (
    QUICK,
    QUICK_LIMITS,
    TIMEOUT_SECONDS,
    finished,
    quick_harness,
    running,
    until,
)

__all__ = [
    "AT_ONCE",
    "NEVER",
    "QUICK",
    "QUICK_LIMITS",
    "TIMEOUT_SECONDS",
    "Proxy",
    "both_engines",
    "consuming",
    "event",
    "finished",
    "policy",
    "put",
    "quick_harness",
    "running",
    "until",
]

both_engines = pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)

AT_ONCE = timedelta(0)
NEVER = timedelta(hours=1)


class Proxy:
    """A store that a test can take down, slow down or observe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.down = False
        self.before: dict[str, Callable[[], Awaitable[None]]] = {}
        self.after: dict[str, Callable[[], Awaitable[None]]] = {}
        self.calls: Counter[str] = Counter()
        self.wakeups = store.wakeups
        self.transaction = store.transaction

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)
        if not inspect.iscoroutinefunction(call):
            return call

        async def observed(*args: Any, **options: Any) -> Any:
            self.calls[name] += 1
            if self.down:
                raise StoreUnavailable("the database cannot be reached: it is down on purpose")
            if hook := self.before.get(name):
                await hook()
            result = await call(*args, **options)
            if hook := self.after.get(name):
                await hook()
            return result

        return observed


def policy(
    *targets: str,
    at_once: int = 5,
    lease: timedelta = timedelta(minutes=10),
    collect_limit: int = 1,
    max_attempts: int = 3,
    **further: Any,
) -> Policy:
    group = TargetGroup(
        targets=targets or ("",),
        lease=lease,
        collect_limit=collect_limit,
        max_attempts=max_attempts,
    )
    fields: dict[str, Any] = {
        "queue": INBOX,
        "backoff": QUICK,
        "poll": NEVER,
        "jitter": AT_ONCE,
    } | further
    return Policy(target_groups=(group,), at_once=at_once, **fields)


@asynccontextmanager
async def consuming(
    store: Store | Proxy,
    handler: Handler,
    how: Policy | None = None,
    *,
    holder: str = "worker",
    grace: timedelta = timedelta(seconds=TIMEOUT_SECONDS),
) -> AsyncIterator[Consumer]:
    """Run a consumer that receives wake-ups; stop it at the end of the block."""
    consumer = Consumer(cast(Store, store), how or policy(), handler, holder)

    async def listen() -> None:
        async for queue in store.wakeups():
            if queue in ("", consumer.policy.queue):
                consumer.wake.set()

    async with asyncio.TaskGroup() as group:
        listening = group.create_task(listen())
        working = group.create_task(consumer.run(grace))
        try:
            yield consumer
        finally:
            consumer.stop()
            await asyncio.wait([working])
            listening.cancel()


def event(**fields: Any) -> NewEvent:
    return NewEvent(**{"event": {"kind": "message", "channel": "api", "message": "hello"}} | fields)


async def put(store: Store | Proxy, count: int = 1, **fields: Any) -> list[int]:
    ids = await store.put([event(**fields) for _ in range(count)])
    return [id for id in ids if id is not None]

"""Leases are renewed while a handler runs; its work is dropped once another worker has them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from holdfast.chat import ChatStore
from holdfast.errors import LeaseLost
from holdfast.queue.outcome import Done, Outcome, Retry
from holdfast.queue.store import Filter
from holdfast.queue.turn import LeasedTurn
from holdfast.store import open_store
from tests.queue.test_consumer import Gate
from tests.steps import (
    TIMEOUT_SECONDS,
    Proxy,
    both_engines,
    consuming,
    event,
    finished,
    policy,
    put,
    until,
)

SHORT = timedelta(seconds=1)
# Long enough for tests that a late renewal would fail: a busy machine may pause for a second.
ROOMY = timedelta(seconds=3)


@both_engines
async def test_a_lease_is_renewed_while_its_handler_runs(
    store: ChatStore, database_url: str
) -> None:
    taken: list[LeasedTurn] = []

    async def take(turn: LeasedTurn) -> Outcome:
        taken.append(turn)
        return Done()

    [id] = await put(store)
    gate = Gate()
    async with consuming(store, gate, policy(lease=ROOMY)):
        await until(lambda: gate.inside)
        over_at = time.monotonic() + 2 * ROOMY.total_seconds()
        async with (
            open_store(database_url) as other,
            consuming(other, take, policy(poll=timedelta(milliseconds=50)), holder="other"),
        ):
            await until(lambda: time.monotonic() > over_at)
        gate.open.set()
        [ended] = await finished(store)
    assert taken == []
    assert (ended.id, ended.attempts, ended.outcome) == (id, 1, "completed")


async def test_all_renewals_of_a_round_are_one_call(proxy: Proxy) -> None:
    await put(proxy, 5)
    gate = Gate()
    async with consuming(proxy, gate, policy(lease=SHORT)):
        await until(lambda: len(gate.inside) == 5)
        await until(lambda: proxy.calls["renew"] >= 2)
        assert proxy.calls["renew"] <= 4
        gate.open.set()
        await finished(proxy, 5)


@both_engines
async def test_cancelling_a_turn_cancels_its_handler(store: ChatStore) -> None:
    let_go = asyncio.Event()

    async def handle(turn: LeasedTurn) -> Outcome:
        emitted = (event(queue="outbox"),)
        try:
            await asyncio.Event().wait()
        finally:
            let_go.set()
        return Done(emitted)

    [id] = await put(store)
    async with consuming(store, handle, policy(at_once=1, lease=SHORT)) as consumer:
        await until(lambda: store.leased("inbox"))
        assert await store.cancel(id, "by hand")
        await asyncio.wait_for(let_go.wait(), 10)
        await until(lambda: consumer.running == 0)
    [letter] = await store.dead(Filter())
    assert (letter.outcome, letter.last_error) == ("cancelled", "cancelled: by hand")
    assert await store.waiting("outbox", "") == []


@both_engines
async def test_a_handler_that_ignores_cancellation_stores_nothing(store: ChatStore) -> None:
    """It swallows its cancellation and answers. The fence refuses the answer and its emits."""

    async def stubborn(turn: LeasedTurn) -> Outcome:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return Done((event(queue="outbox"),))

    [id] = await put(store)
    async with consuming(store, stubborn, policy(at_once=1, lease=SHORT)) as consumer:
        await until(lambda: store.leased("inbox"))
        assert await store.cancel(id, "by hand")
        await until(lambda: consumer.running == 0)
        await put(store)
        await until(lambda: consumer.running == 1)
        [second] = await store.leased("inbox")
        assert await store.cancel(second.id, "by hand")
        await until(lambda: consumer.running == 0)
    assert [one.outcome for one in await store.finished(Filter())] == ["cancelled", "cancelled"]
    assert await store.waiting("outbox", "") == []


async def test_a_lost_turn_whose_handler_ignores_cancellation_frees_its_slot_once(
    store: ChatStore, caplog: pytest.LogCaptureFixture
) -> None:
    gate, late, returned = Gate(), asyncio.Event(), list[LeasedTurn]()

    async def handle(turn: LeasedTurn) -> Outcome:
        if turn.primary.id != stubborn:
            return await gate(turn)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await late.wait()
        returned.append(turn)
        return Done()

    [stubborn] = await put(store)
    async with consuming(store, handle, policy(at_once=1, lease=SHORT)) as consumer:
        await until(lambda: store.leased("inbox"))
        assert await store.cancel(stubborn, "by hand")
        await until(lambda: consumer.running == 0)
        await put(store)
        await until(lambda: gate.inside)
        late.set()
        await until(lambda: returned)
        assert not consumer.slots.begin("")
        gate.open.set()
        await until(lambda: consumer.running == 0)
    assert "lost before they were settled" not in caplog.text


@both_engines
async def test_a_settle_of_a_turn_that_another_worker_finished_is_refused(
    proxy: Proxy, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker pauses past its lease, and another one finishes the turn."""
    gate, paused = Gate(), asyncio.Event()
    proxy.before["renew"] = paused.wait  # type: ignore[assignment]

    async def finish(turn: LeasedTurn) -> Outcome:
        return Done((event(queue="outbox", event={"by": "other"}),))

    [id] = await put(proxy)
    async with consuming(proxy, gate, policy(at_once=1, lease=SHORT)) as consumer:
        await until(lambda: gate.inside)
        async with open_store(database_url) as other, consuming(other, finish, holder="other"):
            [ended] = await finished(proxy)
        gate.open.set()
        await until(lambda: consumer.running == 0)
        paused.set()
    assert (ended.id, ended.holder, ended.attempts) == (id, "other", 2)
    [response] = await proxy.waiting("outbox", "")
    assert response.event == {"by": "other"}
    assert f"lost before they were settled queue=inbox events=[{id}]" in caplog.text


async def test_a_turn_whose_claim_returned_after_its_lease_waits_for_a_renewal(
    proxy: Proxy,
) -> None:
    """Nobody else claimed it meanwhile, so the lease can still be renewed."""
    renewed_before_start: list[int] = []

    async def handle(turn: LeasedTurn) -> Outcome:
        renewed_before_start.append(proxy.calls["renew"])
        return Done()

    proxy.after["claim"] = answer_late(proxy)
    await put(proxy)
    async with consuming(proxy, handle, policy(at_once=1, lease=SHORT)):
        [ended] = await finished(proxy)
    assert renewed_before_start[0] >= 1
    assert len(ended.claimed) == 1


async def test_a_turn_that_another_worker_took_before_its_claim_returned_is_not_started(
    proxy: Proxy, database_url: str
) -> None:
    """Starting it would repeat its side effects."""
    started: list[LeasedTurn] = []

    async def handle(turn: LeasedTurn) -> Outcome:
        started.append(turn)
        return Done()

    async def elsewhere(turn: LeasedTurn) -> Outcome:
        return Done()

    proxy.after["claim"] = answer_late(proxy)
    await put(proxy)
    async with consuming(proxy, handle, policy(lease=SHORT)) as consumer:
        await until(lambda: proxy.leased("inbox"))
        async with open_store(database_url) as other, consuming(other, elsewhere, holder="other"):
            [ended] = await finished(proxy)
        await until(lambda: proxy.calls["renew"] and consumer.running == 0)
    assert (started, ended.holder) == ([], "other")


def answer_late(proxy: Proxy) -> Callable[[], Awaitable[None]]:
    """Delay the answer of the first claim that finds an event past its lease."""

    async def wait() -> None:
        if await proxy.leased("inbox"):
            proxy.after.clear()
            late_at = time.monotonic() + 1.5 * SHORT.total_seconds()
            await until(lambda: time.monotonic() > late_at)

    return wait


async def test_a_turn_whose_lease_cannot_be_renewed_is_kept_until_the_lease_ends(
    proxy: Proxy,
) -> None:
    gate = Gate()
    await put(proxy)
    async with consuming(proxy, gate, policy(lease=2 * ROOMY)) as consumer:
        await until(lambda: gate.inside)
        began = time.monotonic()
        proxy.down = True
        await until(lambda: not gate.inside)
        # Renewals fail from the first third of the lease on.
        assert 3 < time.monotonic() - began < TIMEOUT_SECONDS
        await until(lambda: consumer.running == 0)
        proxy.down = False
        gate.open.set()
        [ended] = await finished(proxy)
    assert ended.attempts == 2


async def test_the_limit_of_an_agent_holds_across_processes(
    store: ChatStore, database_url: str
) -> None:
    await store.limit("inbox", "scarce", 2)
    gate = Gate()
    await put(store, 8, target="scarce")
    how = policy("scarce", at_once=5, poll=timedelta(milliseconds=50))
    async with (
        open_store(database_url) as other,
        consuming(store, gate, how, holder="one"),
        consuming(other, gate, how, holder="two"),
    ):
        await until(lambda: len(gate.inside) == 2)
        gate.open.set()
        await finished(store, 8)
    assert gate.most == 2


@both_engines
async def test_a_full_process_signals_others_about_work_it_cannot_claim(
    store: ChatStore, database_url: str
) -> None:
    """Its retry falls due while it is full; an idle process does not know when."""
    failing, gate = Gate(), Gate()

    async def busy(turn: LeasedTurn) -> Outcome:
        if turn.primary.target == "b":
            return await gate(turn)
        await failing(turn)
        return Retry("later", timedelta(milliseconds=300))

    async def elsewhere(turn: LeasedTurn) -> Outcome:
        return Done()

    [id] = await put(store, target="a")
    async with (
        open_store(database_url) as other,
        consuming(store, busy, policy("a", "b", at_once=1), holder="busy"),
    ):
        await until(lambda: failing.inside)
        async with consuming(other, elsewhere, policy("a"), holder="idle"):
            await put(store, target="b")
            failing.open.set()
            await until(lambda: gate.inside)
            [ended] = await finished(store)
            gate.open.set()
            await finished(store, 2)
    assert (ended.id, ended.holder, ended.attempts) == (id, "idle", 2)


async def test_a_process_that_claims_its_own_event_again_works_it_once_at_a_time(
    proxy: Proxy,
) -> None:
    """Renewals hang, so the lease runs out unnoticed; the same process claims the event again."""
    gate, hanging = Gate(), asyncio.Event()
    proxy.before["renew"] = hanging.wait  # type: ignore[assignment]
    await put(proxy)
    async with consuming(proxy, gate, policy(at_once=5, lease=SHORT)):
        await until(lambda: gate.inside and gate.inside[0].attempt == 2)
        gate.open.set()
        [ended] = await finished(proxy)
        hanging.set()
    assert (ended.attempts, gate.most) == (2, 1)


async def test_a_request_that_outlives_its_lease_sends_no_more_of_itself(store: ChatStore) -> None:
    await put(store)
    [turn] = await store.claim("inbox", [""], limit=1, lease=SHORT, holder="slow")
    turn.until = time.monotonic() + 0.05
    mine, theirs = socket.socketpair()
    mine.setblocking(False)
    sent: list[bytes] = []

    async def request() -> None:
        async with turn.under_lease():
            sent.append(await asyncio.get_running_loop().sock_recv(mine, 9))

    with mine, theirs:
        asking = asyncio.create_task(request())
        await asyncio.sleep(0)
        # As after SIGSTOP: the bytes of the network and the end of the lease come together.
        time.sleep(0.1)  # noqa: ASYNC251
        theirs.send(b"go on")
        with pytest.raises(LeaseLost):
            await asking
    assert sent == []

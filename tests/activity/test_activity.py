"""Frames of turns: starts come before ends, and a failing listener harms nobody."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
import pytest_asyncio

from holdfast import AgentHarness, Dead, Done, Turn
from holdfast.activity.listeners import Listeners
from holdfast.activity.reporter import Reporter
from holdfast.errors import HoldfastError
from holdfast.queue.event import INBOX, NewEvent
from holdfast.queue.store import Store
from holdfast.queue.turn import LeasedTurn
from holdfast.settings import Settings
from holdfast.telemetry import LISTENER_FAILED
from tests.steps import Proxy, both_engines, running, until

DONE = ["chain_step_start", "chain_step_done", "response_delta", "response_ready"]


@pytest_asyncio.fixture(autouse=True)
async def there_was_an_api(store: Store) -> None:
    """Else nothing is written: nobody could read it."""
    await store.set_setting("activity", True)


async def read_frames(store: Store, message_id: str | None = None) -> list[dict[str, Any]]:
    frames = [frame for row in await store.activity(0) for frame in row.frames]
    return [frame for frame in frames if message_id is None or frame.get("messageId") == message_id]


async def ended(store: Store, message_id: str | None, last: str) -> list[str]:
    """The types of a message's frames, once the last of them is there."""

    async def types() -> list[str]:
        found = [frame["type"] for frame in await read_frames(store, message_id)]
        return found if last in found else []

    found: list[str] = await until(types)
    return found


@both_engines
async def test_a_quick_turn_tells_its_start_and_its_end_in_one_row(
    store: Store, settings: Settings
) -> None:
    async with running(AgentHarness(lambda turn: "hi"), settings) as app:
        message_id = await app.put("hello")
        assert await ended(store, message_id, "response_ready") == [
            "message_received",
            "agent_routed",
            *DONE,
        ]


async def test_a_long_turn_tells_its_start_while_it_runs(store: Store, settings: Settings) -> None:
    go_on = asyncio.Event()

    async def slow(turn: Turn) -> str:
        await go_on.wait()
        return "at last"

    async with running(AgentHarness(slow), settings) as app:
        message_id = await app.put("hello")
        assert (await ended(store, message_id, "chain_step_start"))[2:] == ["chain_step_start"]
        go_on.set()
        assert (await ended(store, message_id, "response_ready"))[2:] == DONE


async def test_a_failed_turn_tells_its_start_first(store: Store, settings: Settings) -> None:
    async with running(AgentHarness(lambda turn: Dead("no")), settings) as app:
        message_id = await app.put("hello")
        types = await ended(store, message_id, "message_failed")
    assert types[2:] == ["chain_step_start", "message_failed"]


async def test_an_end_never_overtakes_a_start_that_is_on_its_way(
    proxy: Proxy, store: Store
) -> None:
    on_its_way, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        on_its_way.set()
        await go_on.wait()

    async def handle(turn: LeasedTurn) -> Done:
        await on_its_way.wait()
        return Done()

    await store.put([NewEvent(event={"text": "hi"})])
    [turn] = await store.claim(INBOX, [""], limit=1, lease=Settings().lease)
    proxy.before["put"] = hold
    reporter = Reporter(proxy, handle, "coder", Listeners())
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(reporter.run())
        handling = group.create_task(reporter.handle(turn))
        await on_its_way.wait()
        await asyncio.sleep(0)
        assert not handling.done()
        go_on.set()
        outcome = await handling
        writing.cancel()
    assert isinstance(outcome, Done)
    await store.settle([(turn, outcome)])
    assert [frame["type"] for frame in await read_frames(store)][2:] == [
        "chain_step_start",
        "chain_step_done",
    ]


async def test_listeners_hear_what_happens_in_this_process(settings: Settings) -> None:
    app, received_frames = AgentHarness(lambda turn: "hi"), list[dict[str, Any]]()

    @app.on("chain_step_done")
    async def done(frame: dict[str, Any]) -> None:
        received_frames.append(frame)

    app.on("message_received")(received_frames.append)
    async with running(app, settings):
        message_id = await app.put("hello", sender="ann")
        await until(lambda: len(received_frames) == 2)
    received, done_ = received_frames
    assert (received["type"], received["messageId"], received["agent"]) == (
        "message_received",
        message_id,
        "agent",
    )
    assert (done_["response"], done_["messageId"], done_["sender"]) == ("hi", message_id, "ann")
    assert done_["timestamp"] > 10**12


@pytest.mark.parametrize("error", [ValueError("on purpose"), SystemExit(3), KeyboardInterrupt()])
async def test_a_listener_that_fails_is_logged_and_nobody_elses_matter(
    settings: Settings, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    app, received_frames = AgentHarness(lambda turn: "hi"), list[dict[str, Any]]()

    @app.on("chain_step_done")
    async def broken(frame: dict[str, Any]) -> None:
        raise error

    app.on("chain_step_done")(received_frames.append)
    with caplog.at_level(logging.ERROR):
        async with running(app, settings):
            await app.put("one")
            await app.put("two")
            await until(lambda: len(received_frames) == 2)
            await until(lambda: app.responses("api"))
    assert sum(LISTENER_FAILED in record.getMessage() for record in caplog.records) == 2


async def test_a_listener_for_nothing_there_is_refused() -> None:
    with pytest.raises(HoldfastError, match="known are: message_received"):
        AgentHarness().on("chain_step_don")(print)


@both_engines
async def test_activity_that_is_switched_off_is_not_written_and_still_heard(
    store: Store, settings: Settings
) -> None:
    app, received_frames = AgentHarness(lambda turn: "hi"), list[dict[str, Any]]()
    app.on("chain_step_done")(received_frames.append)
    async with running(app, settings, activity=False):
        await app.put("hello")
        await until(lambda: received_frames)
    assert await read_frames(store) == []

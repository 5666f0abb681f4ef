"""The schedule channel: a message that cannot be stored holds up no other."""

from __future__ import annotations

import pytest

from holdfast.channels.schedule import ScheduleChannel
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.queue.event import NewEvent
from holdfast.queue.store import Store
from holdfast.store.schedules import Draft, add_schedule
from holdfast.testing.clock import Clock


@pytest.fixture
def engine() -> str:
    return "sqlite"


async def add_three(store: Store) -> None:
    for text in ("one", "two", "three"):
        await add_schedule(store, Draft(timing="every 1m", text=text, agent="coder"), actor="me")


async def test_a_schedule_whose_message_is_refused_holds_up_no_other(
    store: Store, clock: Clock
) -> None:
    await add_three(store)
    tried: list[str] = []

    async def put(new: NewEvent) -> int | None:
        tried.append(new.event["message"])
        if len(tried) == 1:
            raise HoldfastError("refused on purpose")
        return 1

    clock.tick(minutes=1)
    with pytest.raises(HoldfastError, match="refused on purpose"):
        await ScheduleChannel(store, 5).run_due(put)
    assert sorted(tried) == ["one", "three", "two"]


async def test_no_further_schedule_is_tried_while_the_database_is_away(
    store: Store, clock: Clock
) -> None:
    await add_three(store)
    tried: list[str] = []

    async def put(new: NewEvent) -> int | None:
        tried.append(new.event["message"])
        raise StoreUnavailable("away on purpose")

    clock.tick(minutes=1)
    with pytest.raises(StoreUnavailable):
        await ScheduleChannel(store, 5).run_due(put)
    assert len(tried) == 1

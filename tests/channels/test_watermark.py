"""Watermarks: the position of a channel is the same for all processes."""

from __future__ import annotations

from datetime import timedelta

from holdfast.channels.watermark import Gap, Watermarks
from holdfast.telemetry import GAP_MESSAGES
from holdfast.testing.clock import Clock
from holdfast.testing.fixtures import StoreFactory
from tests.steps import both_engines

pytestmark = both_engines


async def test_a_position_is_read_where_another_process_wrote_it(
    another_store: StoreFactory, clock: Clock
) -> None:
    ours = Watermarks(await another_store(), "post")
    theirs = Watermarks(await another_store(), "post")
    assert await theirs.read("room/1") is None
    assert await theirs.written_at("room/1") is None
    await ours.write("room/1", "s7")
    assert await theirs.read("room/1") == "s7"
    assert await theirs.written_at("room/1") == clock()
    assert await theirs.read("room/2") is None


async def test_the_last_gap_is_known_with_the_messages_it_brought(
    another_store: StoreFactory, clock: Clock
) -> None:
    watermarks = Watermarks(await another_store(), "gappy")
    assert await watermarks.last_gap() is None
    since = clock() - timedelta(hours=1)
    await watermarks.note_gap(3, since)
    await watermarks.note_gap(2, since)
    assert await watermarks.last_gap() == Gap(messages=2, since=since, closed_at=clock())
    assert GAP_MESSAGES.values.pop(("gappy",)) == 5

"""kill -9 on the way of a message from Telegram: nothing is lost, and parts that were recorded are
not sent again. Telegram cannot tell whether the part in between arrived, so it may come twice."""

from __future__ import annotations

import signal
from pathlib import Path

from holdfast.store import open_store
from holdfast.testing.telegram import FakeTelegram
from tests.channels.crashes import kills, process, without_grace
from tests.channels.doomed import (
    AFTER_INSERT,
    AFTER_POST,
    BEFORE_INSERT,
    BEFORE_POST,
    IN_BETWEEN,
    parts_of,
)
from tests.steps import finished

FIRST, SECOND = parts_of("telegram")
VISIBLE = {
    BEFORE_INSERT: [FIRST, SECOND],
    AFTER_INSERT: [FIRST, SECOND],
    BEFORE_POST: [FIRST, SECOND],
    IN_BETWEEN: [FIRST, FIRST, SECOND],
    AFTER_POST: [FIRST, SECOND, SECOND],
}


@kills(tuple(VISIBLE), short=[BEFORE_INSERT, AFTER_POST])
async def test_a_process_that_dies_on_the_way_loses_nothing(
    telegram: FakeTelegram, database_url: str, tmp_path: Path, point: str
) -> None:
    without_grace(database_url)
    async with process("telegram", database_url, tmp_path, point) as doomed:
        await telegram.say("hello")
        assert await doomed.death() == -signal.SIGKILL
    async with process("telegram", database_url, tmp_path), open_store(database_url) as store:
        await telegram.answers(len(VISIBLE[point]))
        await finished(store, queue="outbox")
        await telegram.until(lambda: telegram.confirmed)
    assert [one["text"] for one in telegram.bot_messages()] == VISIBLE[point]

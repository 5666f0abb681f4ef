"""kill -9 on the way of a message from WhatsApp: nothing is lost, and parts that were recorded are
not sent again. WhatsApp cannot tell whether the part in between arrived, so it may come twice."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from holdfast.store import open_store
from holdfast.testing.whatsapp import FakeWhatsApp
from tests.channels.crashes import Doomed, kills, process, without_grace
from tests.channels.doomed import (
    AFTER_INSERT,
    AFTER_POST,
    BEFORE_INSERT,
    BEFORE_POST,
    IN_BETWEEN,
    WHILE_WORKING,
    parts_of,
)
from tests.channels.whatsapp_fixtures import whatsapp
from tests.steps import finished

__all__ = ["whatsapp"]

FIRST, SECOND = parts_of("whatsapp")
VISIBLE = {
    BEFORE_INSERT: [FIRST, SECOND],
    AFTER_INSERT: [FIRST, SECOND],
    WHILE_WORKING: [FIRST, SECOND],
    BEFORE_POST: [FIRST, SECOND],
    IN_BETWEEN: [FIRST, FIRST, SECOND],
    AFTER_POST: [FIRST, SECOND, SECOND],
}


def call(whatsapp: FakeWhatsApp, process: Doomed) -> None:
    """Send webhooks to a process from now on."""
    whatsapp.webhook_url = f"{process.address}/whatsapp/webhook"


@kills(tuple(VISIBLE), short=[BEFORE_INSERT, AFTER_POST])
async def test_a_process_that_dies_on_the_way_loses_nothing(
    whatsapp: FakeWhatsApp, database_url: str, tmp_path: Path, point: str
) -> None:
    without_grace(database_url)
    _, body = whatsapp.message("text", {"body": "hello"})
    async with process("whatsapp", database_url, tmp_path, point) as doomed:
        call(whatsapp, doomed)
        delivery = asyncio.create_task(whatsapp.deliver(body))
        assert await doomed.death() == -signal.SIGKILL
    is_taken = delivery.done()
    delivery.cancel()
    async with process("whatsapp", database_url, tmp_path) as other:
        call(whatsapp, other)
        if not is_taken:
            # Like Meta, try again until the webhook is answered.
            await whatsapp.deliver(body)
        async with open_store(database_url) as store:
            await whatsapp.answers(len(VISIBLE[point]))
            await finished(store, queue="outbox")
    assert await whatsapp.answers(0) == VISIBLE[point]

"""Clients that choose ids: they cannot take the place of a platform's message."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from holdfast import AgentHarness
from holdfast.agents.echo import echo
from holdfast.settings import Settings
from tests.api.serving import ask_json, serving


@pytest.fixture
def engine() -> str:
    return "sqlite"


@pytest.fixture
def app(database_url: str) -> AgentHarness:
    return AgentHarness(echo, settings=Settings(database=database_url))


@pytest_asyncio.fixture
async def port(app: AgentHarness) -> AsyncIterator[int]:
    async with serving(app) as port:
        yield port


@pytest.mark.parametrize(
    "prefix",
    [
        *("slack_", "discord_", "telegram_", "whatsapp_", "matrix_", "email_", "Slack_"),
        *("internal_", "chat_", "chatroom_", "proactive_", "heartbeat_", "schedule_"),
    ],
)
async def test_client_message_ids_may_not_begin_with_a_platforms_prefix(
    port: int, prefix: str
) -> None:
    body = {"message": "hi", "messageId": f"{prefix}T1_C1_1.2"}
    status, answer = await ask_json(port, "/api/message", "POST", body)
    assert status == 400
    assert f"the prefix {prefix.lower()} is reserved" in answer["error"]
    assert (await ask_json(port, "/api/queue/status"))[1]["completed"] == 0


@pytest.mark.parametrize(
    "message_id", ["api_1", "mine_1", "slack", "slackish_1", "x_slack_1", "_", "1"]
)
async def test_all_other_ids_are_the_clients_own(port: int, message_id: str) -> None:
    body = {"message": "hi", "messageId": message_id}
    assert await ask_json(port, "/api/message", "POST", body) == (
        200,
        {"ok": True, "messageId": message_id},
    )

"""The contract of channels for the API, whose clients fetch their answers."""

from __future__ import annotations

import pytest

from holdfast.app import AgentHarness
from holdfast.testing.channels import ChannelContract, Platform


class ApiPlatform(Platform):
    """One sender. Responses wait to be fetched."""

    name = "api"
    is_pushed = False
    can_acknowledge = can_edit = can_delete = can_send_files = can_receive_files = False
    can_show_typing = can_show_growth = can_limit = can_refuse = can_look_up = False
    can_disconnect = can_revoke = has_strangers = has_groups = has_bots = False

    def __init__(self) -> None:
        self._app: AgentHarness | None = None
        self._texts: dict[str, str] = {}

    @property
    def app(self) -> AgentHarness:
        assert self._app is not None
        return self._app

    def prepare(self, app: AgentHarness) -> None:
        self._app = app

    async def say(self, text: str) -> str:
        message = f"client-{len(self._texts)}"
        self._texts[message] = text
        assert await self.app.put(text, sender_id="ada", message_id=message) == message
        return message

    async def say_again(self, message: str) -> None:
        again = await self.app.put(self._texts[message], sender_id="ada", message_id=message)
        assert again is None

    async def answers(self) -> list[str]:
        return [str(response.event["message"]) for response in await self.app.responses("api")]


class TestApi(ChannelContract):
    """The API channel."""

    @pytest.fixture
    def platform(self) -> Platform:
        return ApiPlatform()

"""The contract of channels for WhatsApp, against the local Cloud API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from holdfast.app import AgentHarness
from holdfast.channels.whatsapp.post import LARGEST_DOCUMENT
from holdfast.settings import Settings
from holdfast.settings.channels import Channels
from holdfast.settings.channels.whatsapp import WhatsApp
from holdfast.testing.channels import ChannelContract, Platform
from holdfast.testing.whatsapp import ADA, BOB, FakeWhatsApp
from tests.channels.whatsapp_fixtures import QUICK, whatsapp

__all__ = ["whatsapp"]


class WhatsAppPlatform(Platform):
    """The chat of a person with the number."""

    name = "whatsapp"
    limit = 4096
    largest_file = QUICK.download_bytes
    largest_upload = LARGEST_DOCUMENT
    # The Cloud API reports neither edits nor deletions, has no groups and no other bots, edits no
    # messages, and has no history. Messages come by webhook, so there is no connection to break.
    can_edit = can_delete = can_show_growth = can_look_up = can_disconnect = False
    has_groups = has_bots = False

    def __init__(self, whatsapp: FakeWhatsApp) -> None:
        self._whatsapp = whatsapp
        self._deliveries: list[asyncio.Task[None]] = []
        self._bodies: dict[str, dict[str, Any]] = {}
        self._acknowledged: set[str] = set()
        self._order = asyncio.Lock()

    def prepare(self, app: AgentHarness) -> None:
        async def receive(body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
            with suppress(KeyError):
                return await app.channels["whatsapp"].webhooks["/whatsapp/webhook"](body, headers)
            return 503, ""

        self._whatsapp.receiver = receive

    async def say(self, text: str) -> str:
        return self._start("text", {"body": text}, ADA)

    def _start(self, kind: str, content: dict[str, Any], user: str) -> str:
        """Send a message in the background: the platform does not wait for the channel."""
        id_, body = self._whatsapp.message(kind, content, user)
        self._bodies[id_] = body
        self._deliveries.append(asyncio.create_task(self._deliver(id_, body)))
        return id_

    async def close(self) -> None:
        for task in self._deliveries:
            task.cancel()
        await asyncio.gather(*self._deliveries, return_exceptions=True)

    async def _deliver(self, id: str, body: dict[str, Any]) -> None:
        async with self._order:
            await self._whatsapp.deliver(body)
        self._acknowledged.add(id)

    async def answers(self) -> list[str]:
        return [one["text"]["body"] for one in self._whatsapp.messages_to() if "text" in one]

    async def say_again(self, message: str) -> None:
        assert await self._whatsapp.post_webhook(json.dumps(self._bodies[message])) == 200

    async def is_acknowledged(self, message: str) -> bool:
        return message in self._acknowledged

    async def send_file(self, text: str, name: str, content: bytes) -> str:
        described = self._whatsapp.upload(name, content) | {"caption": text, "filename": name}
        return self._start("document", described, ADA)

    async def files(self) -> Mapping[str, bytes]:
        sent = [one["document"] for one in self._whatsapp.messages_to() if "document" in one]
        return {file["filename"]: self._whatsapp.media[file["id"]][1] for file in sent}

    async def was_typing(self) -> bool:
        return bool(self._whatsapp.typing)

    async def say_as_stranger(self, text: str) -> None:
        self._start("text", {"body": text}, BOB)

    async def answers_to_stranger(self) -> list[str]:
        return [one["text"]["body"] for one in self._whatsapp.messages_to(BOB)]

    async def limit_next(self, seconds: int) -> None:
        self._whatsapp.faults.plan("send", "ratelimited", seconds=seconds)

    async def refuse_next(self) -> str:
        self._whatsapp.faults.plan("send", "error", code="131026", status=400)
        return "131026"

    async def revoke_token(self) -> None:
        self._whatsapp.token = "another"


class TestWhatsApp(ChannelContract):
    """The WhatsApp channel."""

    @pytest_asyncio.fixture
    async def platform(self, whatsapp: FakeWhatsApp) -> AsyncIterator[Platform]:
        platform = WhatsAppPlatform(whatsapp)
        yield platform
        await platform.close()

    @pytest.fixture
    def settings(self, platform: Platform, database_url: str, tmp_path: Path) -> Settings:
        channels = Channels(whatsapp=(WhatsApp(allow=(ADA,)),))
        return Settings(home=tmp_path, database=database_url, channels=channels)

"""The contract of channels for Matrix, against a real Synapse behind a proxy with faults."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast.channels.matrix import factory
from holdfast.channels.matrix.access import Access, access_of
from holdfast.channels.matrix.homeserver import Homeserver, open_homeserver
from holdfast.channels.matrix.html import LONGEST_PART
from holdfast.channels.matrix.incoming import content_of
from holdfast.settings import Settings
from holdfast.settings.channels.matrix import Matrix
from holdfast.settings.channels.table import Pairing
from holdfast.testing.channels import ChannelContract, Platform
from holdfast.testing.matrix import LARGEST_UPLOAD, Synapse
from holdfast.testing.matrix.person import Person
from holdfast.testing.matrix.proxy import SEND, TYPING, FaultyProxy
from tests.channels.matrix.servers import run_synapse

LARGEST_FILE = 1000


class MatrixPlatform(Platform):
    """One direct room."""

    name = "matrix"
    limit = LONGEST_PART
    largest_file = LARGEST_FILE
    largest_upload = LARGEST_UPLOAD
    can_go_away = True

    def __init__(
        self, proxy: FaultyProxy, bot: str, bot_account: Homeserver, people: list[Person]
    ) -> None:
        self.ada, self._stranger, self._third = people
        self._proxy = proxy
        self._bot = bot
        self._bot_account = bot_account
        self._room = self._strange_room = self._group = ""

    async def open(self) -> None:
        """Create the room. The bot joins when it starts."""
        self._room = await self.ada.create_room(self._bot, is_direct=True)

    async def say(self, text: str) -> str:
        return await self.ada.say(self._room, text)

    async def answers(self) -> list[str]:
        return await self._texts(self.ada, self._room)

    async def _texts(self, person: Person, room: str) -> list[str]:
        contents = [content_of(one) for one in await person.messages(room, self._bot)]
        return [str(one["body"]) for one in contents if one["msgtype"] == "m.text"]

    async def say_again(self, message: str) -> None:
        self._proxy.deliver_again(message)

    async def is_acknowledged(self, message: str) -> bool:
        return message in self._proxy.acknowledged

    async def edit(self, message: str, text: str) -> None:
        await self.ada.edit(self._room, message, text)

    async def delete(self, message: str) -> None:
        await self.ada.redact(self._room, message)

    async def send_file(self, text: str, name: str, content: bytes) -> str:
        url = await self.ada.homeserver.upload(content, "text/plain", name)
        file = {"msgtype": "m.file", "body": text, "filename": name, "url": url}
        return await self.ada.send(self._room, file)

    async def files(self) -> Mapping[str, bytes]:
        found = {}
        for message in await self.ada.messages(self._room, self._bot):
            if url := content_of(message).get("url"):
                async with self.ada.homeserver.download(url) as answer:
                    found[content_of(message)["filename"]] = await answer.read()
        return found

    async def was_typing(self) -> bool:
        return bool(self._proxy.faults.calls[TYPING])

    async def say_as_stranger(self, text: str) -> None:
        if not self._strange_room:
            self._strange_room = await self._stranger.create_room(self._bot, is_direct=True)
        await self._stranger.say(self._strange_room, text)

    async def answers_to_stranger(self) -> list[str]:
        return await self._texts(self._stranger, self._strange_room)

    async def say_unaddressed(self, text: str) -> None:
        room = await self.ada.create_room(self._bot, self._third.user)
        await self._third.join(room)
        await self.ada.say(room, text)

    async def say_as_bot(self, text: str) -> None:
        await self.ada.send(self._room, {"msgtype": "m.notice", "body": text})

    async def limit_next(self, seconds: int) -> None:
        self._proxy.faults.plan(SEND, "ratelimited", seconds=seconds)

    async def refuse_next(self) -> str:
        self._proxy.faults.plan(SEND, "error", code="M_FORBIDDEN")
        return "M_FORBIDDEN"

    async def lose_next_answer(self) -> None:
        self._proxy.faults.plan(SEND, "drop_after")

    async def disconnect(self) -> None:
        self._proxy.disconnect()

    async def go_away(self) -> None:
        self._proxy.is_away = True
        self._proxy.disconnect()

    async def come_back(self) -> None:
        self._proxy.is_away = False

    async def revoke_token(self) -> None:
        await self._bot_account.post("logout")


def _limited_access(table: Matrix, pairing: Pairing) -> Access:
    access = access_of(table, pairing)
    return replace(access, limits=replace(access.limits, download_bytes=LARGEST_FILE))


@pytest.fixture(scope="session")
def synapse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Synapse]:
    yield from run_synapse(tmp_path_factory)


class TestMatrix(ChannelContract):
    """The Matrix channel."""

    @pytest_asyncio.fixture
    async def platform(
        self, synapse: Synapse, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[MatrixPlatform]:
        async with AsyncExitStack() as stack:

            async def account(name: str) -> tuple[str, str, Homeserver]:
                user, token = synapse.register(f"{name}-{uuid.uuid4().hex[:8]}", name)
                opened = open_homeserver(synapse.url, token)
                return user, token, await stack.enter_async_context(opened)

            proxy = await stack.enter_async_context(FaultyProxy(synapse.url).open())
            bot, token, bot_account = await account("bot")
            monkeypatch.setenv("MATRIX_HOMESERVER", proxy.url)
            monkeypatch.setenv("MATRIX_ACCESS_TOKEN", token)
            monkeypatch.setattr(factory, "access_of", _limited_access)
            found = [await account(name) for name in ("ada", "stranger", "third")]
            people = [Person(user, homeserver) for user, _, homeserver in found]
            platform = MatrixPlatform(proxy, bot, bot_account, people)
            await platform.open()
            yield platform

    @pytest.fixture
    def settings(self, platform: Platform, database_url: str, tmp_path: Path) -> Settings:
        """Settings that admit the person of the conversation."""
        assert isinstance(platform, MatrixPlatform)
        settings = Settings(home=tmp_path, database=database_url)
        table = Matrix(allow=(platform.ada.user,))
        channels = settings.channels.model_copy(update={"matrix": (table,)})
        return settings.model_copy(update={"channels": channels})

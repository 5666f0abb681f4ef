"""A crowd in one room of a real Synapse."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from holdfast.channels.matrix.homeserver import open_homeserver
from holdfast.channels.matrix.incoming import content_of, thread_of
from holdfast.testing.crowds import Answer, Crowd
from holdfast.testing.matrix import Synapse, own_synapse
from holdfast.testing.matrix.person import Person
from holdfast.testing.matrix.proxy import FaultyProxy


class MatrixCrowd(Crowd):
    """Threads of a room of three, in which only mentions are answered."""

    title = "Matrix"
    per_second = 5
    # Reading a long room costs the homeserver more than answering in it.
    poll_seconds = 5.0

    def __init__(
        self, server: Synapse, proxy: FaultyProxy, ada: Person, bot: str, token: str, other: str
    ) -> None:
        super().__init__()
        self._server = server
        self._proxy = proxy
        self._ada = ada
        self._bot = bot
        self._token = token
        self._other = other
        self._room = ""
        self._is_limited = False
        self._roots: dict[int, str] = {}

    @property
    def variables(self) -> Mapping[str, str]:
        # The proxy only counts what a limit refuses; a measurement goes without it.
        url = self._proxy.url if self._is_limited else self._server.url
        return {"MATRIX_HOMESERVER": url, "MATRIX_ACCESS_TOKEN": self._token}

    async def write(self, thread: int, text: str) -> None:
        if not self._room:
            self._room = await self._ada.create_room(self._bot, self._other)
        if thread not in self._roots:
            self._roots[thread] = await self._ada.say(self._room, f"thread {thread}")
        root = self._roots[thread]
        await self._ada.say(self._room, text, mention=self._bot, thread=root)

    async def answers(self) -> Mapping[int, list[Answer]]:
        found: dict[int, list[Answer]] = {thread: [] for thread in self._roots}
        threads = {root: thread for thread, root in self._roots.items()}
        for one in await self._ada.messages(self._room, self._bot):
            at = one["origin_server_ts"] / 1000
            found[threads[str(thread_of(one))]].append(Answer(str(content_of(one)["body"]), at))
        return found

    def limit(self) -> None:
        self._is_limited = True
        _, admin_token = self._server.register("admin", is_admin=True)
        self._server.limit(self._bot, admin_token, per_second=5, burst=10)

    @property
    def early_requests(self) -> Counter[str]:
        return self._proxy.faults.impatient


@asynccontextmanager
async def matrix_crowd() -> AsyncIterator[Crowd]:
    """Start a Synapse that nobody else uses."""
    server = own_synapse()
    synapse = await asyncio.to_thread(server.__enter__)
    try:
        names = ("bot", "ada", "grace")
        (bot, token), (user, own_token), (other, _) = map(synapse.register, names)
        async with (
            open_homeserver(synapse.url, own_token) as homeserver,
            FaultyProxy(synapse.url).open() as proxy,
        ):
            yield MatrixCrowd(synapse, proxy, Person(user, homeserver), bot, token, other)
    finally:
        await asyncio.to_thread(server.__exit__, None, None, None)

"""The client-server API of a homeserver, one method for each request that the channel makes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.channels.base import Undeliverable
from holdfast.channels.matrix.errors import Refusal, Unreachable, raise_for_error
from holdfast.message import Payload

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from mautrix.api import HTTPAPI, Method, PathBuilder

REQUEST_WITHIN = timedelta(seconds=30)
SYNC_MARGIN = timedelta(seconds=15)
"""Extra time for the answer to a long poll, beyond the limit of the poll itself."""
UNREACHABLE_DELAY = timedelta(seconds=5)
"""Delay of a response while the homeserver is unreachable."""
TIMELINE_TYPES = ("m.room.message", "m.room.redaction", "m.room.member", "m.room.encrypted")
STATE_TYPES = ("m.room.member",)


class Homeserver:
    """One account on a homeserver. It raises only HoldfastErrors and TimeoutError.

    mautrix builds and sends the requests. Its sync loop is not used: it swallows the errors of
    handlers, and moves on past messages that were not stored."""

    def __init__(self, api: HTTPAPI, unreachable_delay: timedelta = UNREACHABLE_DELAY) -> None:
        self._api = api
        self._unreachable_delay = unreachable_delay

    async def whoami(self) -> Payload:
        return await self._get(_client().account.whoami)

    async def display_name(self, user: str) -> str:
        """Return the display name in a user's profile; '' if there is none."""
        return str((await self._get(_client().profile[user])).get("displayname") or "")

    async def joined_rooms(self) -> list[str]:
        return list((await self._get(_client().joined_rooms)).get("joined_rooms") or ())

    async def account_data(self, user: str, kind: str) -> Payload:
        try:
            return await self._get(_client().user[user].account_data[kind])
        except Undeliverable as error:
            if error.code != "M_NOT_FOUND":
                raise
            return {}

    async def set_account_data(self, user: str, kind: str, content: Payload) -> None:
        await self._put(_client().user[user].account_data[kind], content)

    async def sync(self, since: str | None, wait: timedelta, limit: int = 100) -> Payload:
        """Return what happened since a position, at most the `limit` newest events of each room.

        Wait while nothing has happened."""
        query = {
            "filter": json.dumps(sync_filter(limit if since else 1)),
            "timeout": str(int(wait.total_seconds() * 1000)),
        }
        if since is not None:
            query["since"] = since
        return await self._get(_client().sync, query, within=wait + SYNC_MARGIN + REQUEST_WITHIN)

    async def join(self, room: str) -> None:
        await self.post("join", room)

    async def leave(self, room: str) -> None:
        await self.post("rooms", room, "leave")

    async def create_direct_room(self, user: str) -> str:
        content = {"invite": [user], "is_direct": True, "preset": "trusted_private_chat"}
        return str((await self.post("createRoom", content=content))["room_id"])

    async def count_members(self, room: str) -> int:
        """Return how many people are in a room or invited to it."""
        found = await self._get(_client().rooms[room].members, {"not_membership": "leave"})
        states = [str(event["content"].get("membership")) for event in found["chunk"]]
        return states.count("join") + states.count("invite")

    async def member(self, room: str, user: str) -> Payload:
        """Return the content of a user's membership: the state, and the name in this room."""
        return await self._get(_client().rooms[room].state["m.room.member"][user])

    async def messages(self, room: str, start: str | None, end: str | None, limit: int) -> Payload:
        """Return a page of earlier events, newest first; without a start, the newest ones."""
        positions = {"from": start, "to": end}
        query = {name: token for name, token in positions.items() if token is not None}
        return await self._get(
            _client().rooms[room].messages, {"dir": "b", "limit": str(limit), **query}
        )

    async def event(self, room: str, event: str) -> Payload:
        return await self._get(_client().rooms[room].event[event])

    async def context(self, room: str, event: str, limit: int) -> Payload:
        """Return an event and those around it."""
        return await self._get(_client().rooms[room].context[event], {"limit": str(limit)})

    async def thread(self, room: str, root: str, limit: int) -> list[Payload]:
        """Return the newest events of a thread, newest first, without its root."""
        path = _path("_matrix/client/v1").rooms[room].relations[root]["m.thread"]
        return list((await self._get(path, {"limit": str(limit)})).get("chunk") or ())

    async def send(self, room: str, kind: str, content: Payload, key: str) -> str:
        """Send an event. Returns its id.

        Sending it again with the same key changes nothing, and returns the id of the first one."""
        path = _client().rooms[room].send[kind][transaction_id(key)]
        return str((await self._put(path, content))["event_id"])

    async def redact(self, room: str, event: str, key: str) -> None:
        await self._put(_client().rooms[room].redact[event][transaction_id(key)], {})

    async def set_typing(self, room: str, user: str, within: timedelta | None) -> None:
        """Show the bot as typing for this long; None ends it."""
        content: Payload = {"typing": within is not None}
        if within is not None:
            content["timeout"] = int(within.total_seconds() * 1000)
        await self._put(_client().rooms[room].typing[user], content)

    async def largest_upload(self) -> int | None:
        """Return how many bytes a file may have, None if the server does not say."""
        found = await self._get(_path("_matrix/client/v1").media.config)
        limit = found.get("m.upload.size")
        return limit if isinstance(limit, int) else None

    async def upload(self, content: bytes, mimetype: str, name: str) -> str:
        """Store a file. Returns its mxc address; nobody sees it before it is sent."""
        from mautrix.api import Method

        return str(
            (
                await self._call(
                    Method.POST,
                    _path("_matrix/media/v3").upload,
                    content,
                    {"filename": name},
                    {"Content-Type": mimetype},
                )
            )["content_uri"]
        )

    @asynccontextmanager
    async def download(self, address: str) -> AsyncIterator[ClientResponse]:
        """Open a file by its mxc address. Only the homeserver itself is asked."""
        from aiohttp import ClientError

        url = self._api.get_download_url(address, authenticated=True)
        headers = {"authorization": f"Bearer {self._api.token}"}
        try:
            async with self._api.session.get(url, headers=headers, allow_redirects=False) as answer:
                yield answer
        except (ClientError, OSError) as error:
            raise Unreachable(self._unreachable_delay, str(error)) from None

    async def _get(
        self,
        path: PathBuilder,
        query: Mapping[str, str] | None = None,
        within: timedelta = REQUEST_WITHIN,
    ) -> Payload:
        from mautrix.api import Method

        return await self._call(Method.GET, path, query=query, within=within)

    async def _put(self, path: PathBuilder, content: Payload) -> Payload:
        from mautrix.api import Method

        return await self._call(Method.PUT, path, content)

    async def post(self, *path: str, content: Payload | None = None) -> Payload:
        """Post to a path below the client API."""
        from mautrix.api import Method

        url = _client()
        for step in path:
            url = url[step]
        return await self._call(Method.POST, url, content or {})

    async def _call(
        self,
        method: Method,
        path: PathBuilder,
        content: Payload | bytes | None = None,
        query: Mapping[str, str] | None = None,
        headers: dict[str, str] | None = None,
        within: timedelta = REQUEST_WITHIN,
    ) -> Payload:
        from mautrix.errors import MatrixConnectionError

        try:
            async with asyncio.timeout(within.total_seconds()):
                found: Any = await self._api.request(method, path, content, headers, query)
        except (MatrixConnectionError, OSError) as error:
            raise Unreachable(self._unreachable_delay, str(error)) from None
        except ValueError as error:
            raise Refusal("not_json", str(error), 200) from None
        if not isinstance(found, dict):
            raise Refusal("not_json", "the answer is not a JSON object", 200)
        return found


@asynccontextmanager
async def open_homeserver(
    url: str, token: str, unreachable_delay: timedelta = UNREACHABLE_DELAY
) -> AsyncIterator[Homeserver]:
    """Yield the API of a homeserver, with a session that is closed after the block."""
    from mautrix.api import HTTPAPI

    quiet: Any = logging.getLogger("mautrix")
    # At lower levels it would log the texts of messages.
    quiet.setLevel(logging.WARNING)
    async with _session() as session:
        api = HTTPAPI(url.rstrip("/"), token, client_session=session, log=quiet)
        yield Homeserver(api, unreachable_delay)


def _session() -> ClientSession:
    from aiohttp import ClientSession, ClientTimeout

    # Requests have their own time limits, and a long poll may take long.
    return ClientSession(timeout=ClientTimeout(total=None), raise_for_status=raise_for_error)


def transaction_id(key: str) -> str:
    """Return the transaction id of a key. Keys may be longer than some servers accept."""
    return "holdfast-" + hashlib.sha256(key.encode(errors="replace")).hexdigest()[:40]


def sync_filter(limit: int) -> Payload:
    """Return the filter of a sync: messages and members, without presence, receipts and typing."""
    none: Payload = {"types": []}
    return {
        "presence": none,
        "account_data": none,
        "room": {
            "account_data": none,
            "ephemeral": none,
            "state": {"types": list(STATE_TYPES), "lazy_load_members": True},
            "timeline": {"types": list(TIMELINE_TYPES), "limit": limit},
        },
    }


def _client() -> PathBuilder:
    return _path("_matrix/client/v3")


def _path(prefix: str) -> PathBuilder:
    from mautrix.api import PathBuilder

    return PathBuilder(prefix)

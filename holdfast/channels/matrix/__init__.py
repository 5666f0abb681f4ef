"""The Matrix channel: direct messages and mentions in, replies in their rooms and threads out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from holdfast.channels.accounts import check_accounts
from holdfast.channels.background import BackgroundTasks
from holdfast.channels.base import (
    Channel,
    Check,
    Line,
    NotNow,
    Part,
    Preview,
    PreviewFence,
    Put,
    Undeliverable,
    part_key,
)
from holdfast.channels.matrix.access import Access
from holdfast.channels.matrix.account import Account
from holdfast.channels.matrix.check import check
from holdfast.channels.matrix.direct import direct_room
from holdfast.channels.matrix.errors import AccessDenied
from holdfast.channels.matrix.html import LONGEST_PART, texts_of
from holdfast.channels.matrix.incoming import CHANNEL, Location, location_of
from holdfast.channels.matrix.media import download_files, upload_file
from holdfast.channels.matrix.post import Post, destination_of
from holdfast.channels.matrix.reader import find_sent, read_conversation
from holdfast.channels.matrix.status import show_status
from holdfast.channels.parts import parts_of
from holdfast.channels.preview import EditedPreview, Style, replace_preview
from holdfast.message import PREVIEW, Payload, text_before_routing
from holdfast.queue.event import Event
from holdfast.queue.store import Store
from holdfast.telemetry import CHANNEL_REFUSED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

T = TypeVar("T")

SIGN_IN_DELAY = timedelta(seconds=1)
"""Delay of a response while its account may still be signing in."""
REPAIR_DELAY = timedelta(minutes=1)
"""Delay of a response while a person has to repair an account."""
STYLE = Style(texts_of, LONGEST_PART)


class MatrixChannel(Channel):
    """All configured accounts. The one that received a message sends the response."""

    name = CHANNEL
    notifies_senders = True

    def __init__(
        self, accesses: Sequence[Access], *, store: Store, files: Path | None = None
    ) -> None:
        self.accounts = [Account(access, store) for access in accesses]
        self._files = files
        self._background = BackgroundTasks()

    async def run(self, put: Put) -> None:
        async def run_one(account: Account) -> None:
            try:
                await account.run(put)
            except AccessDenied as error:
                # A person has to repair it. The other accounts and channels go on.
                log.error(Entry(CHANNEL_REFUSED, channel=self.name, error=error))

        async with self._background.open() as group:
            for account in self.accounts:
                group.create_task(run_one(account))
            await asyncio.Event().wait()

    async def wait_ready(self) -> None:
        for account in self.accounts:
            await account.listening.wait()

    @property
    def problems(self) -> Sequence[str]:
        found = [account.problem or account.outage for account in self.accounts]
        return [problem for problem in found if problem]

    async def check(self) -> Sequence[Check]:
        accesses = [one.access for one in self.accounts]
        return await check_accounts(accesses, check, lambda access: access.name)

    def routing_text(self, payload: Payload) -> str:
        account = self._account_of(payload.get("account"))
        text = text_before_routing(payload)
        bot = None if account is None else account.bot
        return text if bot is None else bot.text_without_mention(text)

    async def readable_text(self, event: Event) -> str:
        return self.routing_text(event.event) if event.routed_text is None else event.routed_text

    async def fetch_thread(self, payload: Payload) -> Sequence[Line]:
        account, location = self._account_of(payload.get("account")), location_of(payload)
        if account is None or location is None or not account.is_ready:
            return ()
        return await read_conversation(account, location, str(payload.get("event_id")))

    async def fetch_files(self, payload: Payload) -> Sequence[Path]:
        account = self._account_of(payload.get("account"))
        if self._files is None or account is None or not account.is_ready:
            return ()
        most = account.access.limits.download_bytes
        return await download_files(account.homeserver, self._files, payload, most)

    def show_typing(self, payload: Payload, *, again: bool) -> AbstractAsyncContextManager[object]:
        account, location = self._account_of(payload.get("account")), location_of(payload)
        event = payload.get("event_id")
        if not self._background.is_open or account is None or location is None or not event:
            return nullcontext()
        if not account.is_ready:
            return nullcontext()
        return show_status(account, location, str(event), self._background.start, again=again)

    def open_preview(
        self, draft: Payload, key: str, note: Payload, fence: PreviewFence
    ) -> Preview | None:
        location = location_of(draft)
        account = None if location is None else self._account_of(location.account)
        if not self._background.is_open or location is None or account is None:
            return None
        if not account.is_ready or not account.access.edits_per_minute:
            return None
        post = Post(account.homeserver, location, key)
        return EditedPreview(post, STYLE, account.edits, note, fence, self._background.start)

    def split(self, response: Event) -> Sequence[Part]:
        return parts_of(response, texts_of)

    async def prepare_part(self, response: Event, part: Part) -> Payload:
        """Upload a file. The note says when the part is sent, and by which device."""
        account, _ = await self._resolve(response)
        if part.file is None:
            return account.note()
        asked = upload_file(account.homeserver, self._files, part.file, response.event)
        return account.note() | {"content": await self._ask(account, asked)}

    async def send_part(self, response: Event, part: Part, note: Payload) -> Payload:
        account, location = await self._resolve(response)
        post = Post(account.homeserver, location, part.key)
        send = partial(self._send, response, part, note, post)
        return await self._ask(account, account.within_limits(send))

    async def _send(self, response: Event, part: Part, note: Payload, post: Post) -> Payload:
        if part.file is not None:
            return _receipt(post, await post.send(note["content"]))
        preview = response.event.get(PREVIEW)
        event = None
        if preview and part.key == part_key(response, 0):
            event = await replace_preview(post, preview, part.text)
        if event is None and part.text:
            event = await post.post(part.text)
        return _receipt(post, event)

    async def find_part(self, response: Event, part: Part, note: Payload) -> Payload | None:
        """Look a part up only if the homeserver may have forgotten its transaction id.

        Otherwise return None: sending the part again adds no message, and returns the receipt."""
        account, location = await self._resolve(response)
        if account.remembers_transactions_of(note):
            return None
        post = Post(account.homeserver, location, part.key)
        event = await self._ask(account, find_sent(account, post, response.created_at))
        return None if event is None else _receipt(post, event)

    async def _resolve(self, response: Event) -> tuple[Account, Location]:
        """Return account and conversation of a response; opens a direct room if needed."""
        destination = destination_of(response.event)
        if isinstance(destination, Location):
            account = self._sending_account(destination.account)
            return account, destination
        account = self._sending_account(response.event.get("account"))
        return account, Location(await self._ask(account, direct_room(account, destination)))

    def _account_of(self, user: object) -> Account | None:
        """Return the account of a user id. A single account needs no id."""
        known = [one for one in self.accounts if one.bot is not None and one.bot.user == user]
        return known[0] if known else self.accounts[0] if len(self.accounts) == 1 else None

    def _sending_account(self, user: object) -> Account:
        account = self._account_of(user)
        if account is not None and account.problem is None and account.is_ready:
            return account
        if any(one.problem for one in self.accounts):
            # The account may be the one that a person has to repair first.
            raise NotNow(REPAIR_DELAY)
        if account is None and all(one.is_ready for one in self.accounts):
            raise Undeliverable("no_account", f"there is no token for the account {user}")
        raise NotNow(SIGN_IN_DELAY)

    async def _ask(self, account: Account, asked: Awaitable[T]) -> T:
        """Await a request. If the token is refused, note the problem and raise NotNow."""
        try:
            return await asked
        except AccessDenied as error:
            account.note_refusal(error)
            raise NotNow(REPAIR_DELAY) from None


def _receipt(post: Post, event: str | None) -> Payload:
    return {"room": post.location.room, "event_id": event}

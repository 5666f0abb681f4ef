"""Receives the messages of one mailbox: those that are new, and those that were missed."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

from holdfast.channels.admission import Admission
from holdfast.channels.base import Put
from holdfast.channels.email.access import Access
from holdfast.channels.email.incoming import CHANNEL, Incoming, parse
from holdfast.channels.email.mailbox import AccessDenied, Mailbox, Position, open_mailbox
from holdfast.channels.gap import GapMessage, find_answered
from holdfast.channels.watermark import Watermarks
from holdfast.queue.event import NewEvent
from holdfast.queue.store import Store
from holdfast.telemetry import (
    CHANNEL_EVENT_FAILED,
    CHANNEL_REFUSED,
    PLATFORM_REACHABLE,
    PLATFORM_UNREACHABLE,
)
from holdfast.telemetry.logs import Entry
from holdfast.telemetry.redaction import hide

log = logging.getLogger(__name__)


class Receiver:
    """Reads a folder after the watermark, stores messages for agents, and waits for new ones.

    The watermark moves after the commit. So an outage of the server or of the database only delays
    messages."""

    def __init__(self, access: Access, store: Store) -> None:
        self.access = access
        self.listening = asyncio.Event()
        self.problem: str | None = None
        """Reason why it cannot work until a person repairs it; None while all is well."""
        self.outage: str | None = None
        """Reason why the server cannot be reached; None while it can."""
        self._admission = Admission(store, CHANNEL, access.rules)
        self._watermarks = Watermarks(store, CHANNEL)
        self._source = f"{access.address}/{access.imap.folder}"
        self._failures = 0
        for server in (access.imap, access.smtp):
            if server.password:
                hide(server.password)

    async def run(self, put: Put) -> None:
        """Receive until cancelled."""
        limits = self.access.limits
        while True:
            delay = limits.refused_retry
            try:
                await self._run_connection(put)
            except AccessDenied as error:
                self.note_problem(str(error))
            except Exception as error:  # noqa: BLE001 - any failure may pass
                self._failures += 1
                reason = " ".join(str(error).split())[:200] or type(error).__name__
                self.outage = f"{self.access.name}: the server is out of reach: {reason}"
                delay = limits.reconnect_backoff.delay(self._failures)
                if self._failures == 1:
                    log.warning(Entry(PLATFORM_UNREACHABLE, channel=CHANNEL, error=error))
            await asyncio.sleep(delay.total_seconds())

    def note_problem(self, problem: str) -> None:
        """Note that a server refuses us, once in the log."""
        if problem != self.problem:
            log.error(Entry(CHANNEL_REFUSED, channel=CHANNEL, error=problem))
        self.problem = problem
        self.listening.set()

    async def _run_connection(self, put: Put) -> None:
        stop = threading.Event()
        opened = open_mailbox(self.access)
        mailbox = await asyncio.to_thread(opened.__enter__)
        waiting: asyncio.Future[None] | None = None
        try:
            await self._catch_up(mailbox, put)
            self._note_connected()
            while True:
                waiting = asyncio.ensure_future(asyncio.to_thread(mailbox.wait, stop))
                await asyncio.shield(waiting)
                waiting = None
                await self._read_new(mailbox, put)
        finally:
            # A thread cannot be cancelled: ask it to end, then close the connection.
            stop.set()
            if waiting is not None:
                await asyncio.wait([waiting])
            await asyncio.to_thread(partial(opened.__exit__, None, None, None))

    def _note_connected(self) -> None:
        if self._failures or self.problem:
            log.info(Entry(PLATFORM_REACHABLE, channel=CHANNEL, tries=self._failures + 1))
        self._failures, self.problem, self.outage = 0, None, None
        self.listening.set()

    async def _catch_up(self, mailbox: Mailbox, put: Put) -> None:
        """Read messages since the watermark. The first start sets the watermark to the end."""
        since = await self._watermarks.written_at(self._source)
        if since is None:
            end = await asyncio.to_thread(lambda: mailbox.end)
            await self._watermarks.write(self._source, str(end))
            return
        found = await self._read_new(mailbox, put, skips_answered=self.access.skip_answered)
        await self._watermarks.note_gap(found, since)

    async def _read_new(self, mailbox: Mailbox, put: Put, *, skips_answered: bool = False) -> int:
        """Store the messages behind the watermark, and move it. Returns how many are new."""
        limits = self.access.limits
        position = Position.parse(str(await self._watermarks.read(self._source)))
        oldest = datetime.now(UTC) - limits.gap_age
        uids = await asyncio.to_thread(mailbox.find_new, position, oldest)
        uids, stored = uids[-limits.gap_messages :], 0
        left_out = await self._answered_uids(mailbox, uids) if skips_answered else ()
        for uid in uids:
            if str(uid) not in left_out:
                stored += await self._receive(mailbox, uid, oldest, put)
            position = Position(mailbox.validity, uid)
            await self._watermarks.write(self._source, str(position))
        if position.validity != mailbox.validity:
            # The folder was replaced by an empty one.
            end = await asyncio.to_thread(lambda: mailbox.end)
            await self._watermarks.write(self._source, str(end))
        return stored

    async def _receive(self, mailbox: Mailbox, uid: int, oldest: datetime, put: Put) -> bool:
        """Store a message if it is for the agents. Returns whether it is new."""
        found = await asyncio.to_thread(mailbox.headers, uid)
        if found is None:
            return False
        incoming = Incoming(parse(found.source), self.access.address)
        if found.arrived_at < oldest or not self._is_readable(incoming):
            return False
        decision = await self._admission.decide(incoming.as_sender())
        if not decision.is_admitted:
            payload = incoming.payload | {"message_id": incoming.message_id}
            await self._admission.announce(decision, payload)
            return False
        whole = await asyncio.to_thread(mailbox.read, uid, found.size)
        event = await asyncio.to_thread(self._event, whole, incoming)
        return await put(event) is not None

    def _event(self, source: bytes, headers: Incoming) -> NewEvent:
        """Return the event of a message; of its headers alone if the rest cannot be parsed."""
        try:
            return Incoming(parse(source), self.access.address).event
        except Exception as error:  # noqa: BLE001 - one message must not hold up those behind it
            log.warning(Entry(CHANNEL_EVENT_FAILED, channel=CHANNEL, mail=headers.id, error=error))
            return headers.event_of_headers

    async def _answered_uids(self, mailbox: Mailbox, uids: Sequence[int]) -> set[str]:
        """Return the uids of messages that are flagged as answered, or answered by a later one."""
        ids: dict[str, str] = {}
        marked, messages = set[str](), list[GapMessage]()
        for uid in uids:
            found = await asyncio.to_thread(mailbox.headers, uid)
            if found is None:
                continue
            message = Incoming(parse(found.source), self.access.address)
            ids[message.id] = str(uid)
            messages.append(message.as_gap_message())
            marked |= {str(uid)} if found.is_answered else set()
        return marked | {ids[id] for id in find_answered(messages)}

    def _is_readable(self, incoming: Incoming) -> bool:
        """Return whether a person wrote a message, with proof of the mail server if required."""
        server = self.access.authentication_server
        if not incoming.sender or incoming.is_own or incoming.is_automatic:
            return False
        return not server or incoming.is_authentic(server)

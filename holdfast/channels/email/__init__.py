"""The e-mail channel: messages of a mailbox in, answers in their threads out."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from holdfast.channels.accounts import check_accounts
from holdfast.channels.base import (
    Channel,
    Check,
    NotNow,
    Part,
    Put,
    Undeliverable,
    part_key,
)
from holdfast.channels.email.access import Access
from holdfast.channels.email.check import check
from holdfast.channels.email.incoming import CHANNEL, parse
from holdfast.channels.email.mailbox import AccessDenied, Mailbox, open_mailbox
from holdfast.channels.email.outgoing import OutgoingMail, Unreachable, compose, message_id, send
from holdfast.channels.email.receiver import Receiver
from holdfast.channels.files import read_file, safe_name
from holdfast.message import PROFILE, Payload
from holdfast.queue.event import Event
from holdfast.queue.store import Store
from holdfast.store.chain import find_message
from holdfast.store.files import person_folder, write_file
from holdfast.telemetry import COPY_FAILED, FILE_NOT_FETCHED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

T = TypeVar("T")

NO_ANSWER = "(no answer)"
_ANSWERED = re.compile(r"email_([^\s@]{1,320}@[^_\s@]{1,320})_(<[^<>]{1,900}>|[0-9a-f]{24})")
"""Id of a stored message: the mailbox, and the Message-ID or its hash."""
_RECIPIENT = re.compile(r"email:([^:\s<>@]{1,320}@[^:\s<>]{1,320})")
_ADDRESS = re.compile(r"[^@\s<>,]{1,320}@[^@\s<>,]{1,320}")


@dataclass(frozen=True, slots=True)
class Destination:
    """Target of a response: a person, and the message that it answers."""

    to: str
    account: str = ""
    """Address that received the message."""
    answered: str = ""
    subject: str = ""
    references: Sequence[str] = ()


class EmailChannel(Channel):
    """All configured mailboxes. The one that received a message sends the response."""

    name = CHANNEL
    notifies_senders = True

    def __init__(
        self, accesses: Sequence[Access], store: Store, *, files: Path | None = None
    ) -> None:
        self._receivers = [Receiver(access, store) for access in accesses]
        self._store = store
        self._files = files

    async def run(self, put: Put) -> None:
        async with asyncio.TaskGroup() as group:
            for receiver in self._receivers:
                group.create_task(receiver.run(put))

    async def wait_ready(self) -> None:
        for receiver in self._receivers:
            await receiver.listening.wait()

    @property
    def problems(self) -> Sequence[str]:
        found = [one.problem or one.outage for one in self._receivers]
        return [problem for problem in found if problem]

    async def check(self) -> Sequence[Check]:
        accesses = [one.access for one in self._receivers]
        return await check_accounts(accesses, check, lambda access: access.address)

    async def fetch_files(self, payload: Payload) -> Sequence[Path]:
        if self._files is None or not payload.get("attachments"):
            return ()
        access = self._receiver_of(str(payload.get("email_account") or "")).access
        source = await _in_mailbox(access, lambda box: box.find(str(payload["email_id"])))
        if isinstance(source, str):
            log.warning(Entry(FILE_NOT_FETCHED, channel=CHANNEL, reason=source))
            return ()
        return await asyncio.to_thread(self._save, source, payload)

    def _save(self, source: bytes, payload: Payload) -> list[Path]:
        """Write the attachments of a message. Returns their paths."""
        assert self._files is not None
        folder = person_folder(self._files, payload) / safe_name(str(payload["email_id"]))
        found = []
        for number, part in enumerate(parse(source).iter_attachments()):
            content = part.get_payload(decode=True)
            if isinstance(content, bytes):
                path = folder / f"{number}-{safe_name(part.get_filename() or 'file')}"
                write_file(path, content)
                found.append(path)
        return found

    def split(self, response: Event) -> Sequence[Part]:
        """Return a single part: a response is one message, with its files."""
        text = str(response.event.get("message") or "")
        has_files = bool(response.event.get("files"))
        return [Part(part_key(response, 0), text or ("" if has_files else NO_ANSWER))]

    async def prepare_part(self, response: Event, part: Part) -> Payload:
        destination = await self._destination(response.event)
        access = self._receiver_of(destination.account).access
        conversation = str(response.event.get("conversation") or f"{CHANNEL}:{destination.to}")
        return {"id": message_id(part.key, conversation, access.address)}

    async def send_part(self, response: Event, part: Part, note: Payload) -> Payload:
        destination = await self._destination(response.event)
        receiver = self._receiver_of(destination.account)
        mail = await self._mail(response, part, note, destination, receiver.access)
        source = await asyncio.to_thread(compose, mail, receiver.access)
        try:
            await asyncio.to_thread(send, receiver.access, destination.to, source)
        except AccessDenied as error:
            receiver.note_problem(str(error))
            raise NotNow(receiver.access.limits.busy_delay) from None
        await _keep_copy(receiver.access, source)
        return {"id": mail.id}

    async def find_part(self, response: Event, part: Part, note: Payload) -> Payload | None:
        """Find a message in the folder of sent ones, where we or the server put a copy."""
        destination = await self._destination(response.event)
        access = self._receiver_of(destination.account).access
        is_there = await _in_mailbox(access, lambda box: box.find_sent(note["id"]))
        return {"id": note["id"]} if is_there else None

    async def _mail(
        self, response: Event, part: Part, note: Payload, destination: Destination, access: Access
    ) -> OutgoingMail:
        most = access.limits.upload_bytes
        files = [
            await asyncio.to_thread(read_file, self._files, str(file), response.event, most)
            for file in response.event.get("files") or ()
        ]
        return OutgoingMail(
            id=note["id"],
            to=destination.to,
            text=part.text,
            subject=destination.subject,
            answered=destination.answered,
            references=destination.references,
            sender_name=str((response.event.get(PROFILE) or {}).get("name") or ""),
            files=files,
        )

    async def _destination(self, response: Payload) -> Destination:
        """Return the target of a response. Raises Undeliverable if it names none."""
        named = _RECIPIENT.fullmatch(str(response.get("conversation") or ""))
        to = named[1] if named else str(response.get("sender_id") or "")
        if not _ADDRESS.fullmatch(to):
            raise Undeliverable("no_address", "the response names no e-mail address")
        answered = _ANSWERED.fullmatch(str(response.get("message_id") or ""))
        if answered is None:
            return Destination(to)
        found = await find_message(self._store, str(response["message_id"]))
        payload = {} if found is None else found.event
        id = answered[2] if answered[2].startswith("<") else str(payload.get("email_id") or "")
        references = tuple(str(id) for id in payload.get("references") or ())
        subject = str(payload.get("subject") or "")
        return Destination(to, answered[1], id, subject, references)

    def _receiver_of(self, account: str) -> Receiver:
        """Return the mailbox with an address; the first one if none has it."""
        found = [one for one in self._receivers if one.access.address == account]
        return (found or self._receivers)[0]


async def _in_mailbox(access: Access, ask: Callable[[Mailbox], T]) -> T:
    """Open a mailbox in a thread, ask it, and close it. Raises Unreachable or AccessDenied."""

    def work() -> T:
        with open_mailbox(access) as mailbox:
            return ask(mailbox)

    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        raise Unreachable(access.limits.unreachable_delay, error) from None


async def _keep_copy(access: Access, source: bytes) -> None:
    """Add a message to the folder of sent ones, where a look-up finds it after a crash."""
    try:
        await _in_mailbox(access, lambda box: box.keep_sent(source))
    except Exception as error:  # noqa: BLE001 - the message was sent; failing would send it again
        log.warning(Entry(COPY_FAILED, channel=CHANNEL, error=error))

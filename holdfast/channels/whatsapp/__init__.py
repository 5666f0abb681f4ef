"""The WhatsApp channel: the Cloud API of Meta, with signed webhooks."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from holdfast.channels.accounts import check_accounts
from holdfast.channels.admission import Admission
from holdfast.channels.background import BackgroundTasks
from holdfast.channels.base import (
    Channel,
    Check,
    Part,
    Put,
    Undeliverable,
    Verification,
    Webhook,
    part_key,
    response_event,
)
from holdfast.channels.files import read_file, safe_name
from holdfast.channels.parts import parts_of
from holdfast.channels.whatsapp.access import Access
from holdfast.channels.whatsapp.check import check
from holdfast.channels.whatsapp.client import CHANNEL, PhoneNumber
from holdfast.channels.whatsapp.errors import undeliverable
from holdfast.channels.whatsapp.incoming import (
    SIGNATURE,
    WAMID,
    Failure,
    Incoming,
    failures_of,
    is_signed,
    messages_of,
)
from holdfast.channels.whatsapp.markup import texts_of
from holdfast.channels.whatsapp.post import (
    LARGEST_DOCUMENT,
    Destination,
    destination_of,
    kind_of,
    shown_file,
)
from holdfast.errors import HoldfastError
from holdfast.message import Payload
from holdfast.queue.event import Event
from holdfast.queue.store import Store
from holdfast.store.files import person_folder, write_file
from holdfast.telemetry import FILE_NOT_FETCHED, RECEIVE_FAILED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

WEBHOOK = "/whatsapp/webhook"
REFUSED = "refused"
"""Key of a response's payload: the error of a message that WhatsApp could not deliver later."""


class WhatsAppChannel(Channel):
    """All configured numbers. The number in a response's conversation, or message id, selects one.

    Messages older than `oldest` are ignored: the store has forgotten their ids by then, so that a
    recorded request could be replayed."""

    name = CHANNEL
    notifies_senders = True

    def __init__(
        self,
        accesses: Sequence[Access],
        *,
        store: Store,
        files: Path | None = None,
        oldest: timedelta = timedelta(days=7),
    ) -> None:
        self.numbers = [PhoneNumber(access, store) for access in accesses]
        self._admissions = {
            number: Admission(store, CHANNEL, number.access.rules) for number in self.numbers
        }
        self._store = store
        self._files = files
        self._oldest = oldest
        self._background = BackgroundTasks()
        self._put: Put | None = None
        self._arriving = asyncio.Lock()

    async def run(self, put: Put) -> None:
        self._put = put
        async with self._background.open() as group:
            try:
                for number in self.numbers:
                    group.create_task(self._run_number(number))
                await asyncio.Event().wait()
            finally:
                self._put = None

    async def _run_number(self, number: PhoneNumber) -> None:
        async with number.open():
            await number.keep_checking()
            await asyncio.Event().wait()

    async def wait_ready(self) -> None:
        for number in self.numbers:
            await number.checked.wait()

    @property
    def webhooks(self) -> Mapping[str, Webhook]:
        return {WEBHOOK: self.receive}

    @property
    def verifications(self) -> Mapping[str, Verification]:
        return {WEBHOOK: self.verify}

    def verify(self, query: Mapping[str, str]) -> tuple[int, str]:
        """Answer the request by which Meta verifies the webhook."""
        given = query.get("hub.verify_token", "").encode()
        tokens = [one.access.verify_token.encode() for one in self.numbers]
        is_known = any(token and hmac.compare_digest(given, token) for token in tokens)
        if query.get("hub.mode") != "subscribe" or not is_known:
            return 403, "the verify token is not ours"
        return 200, query.get("hub.challenge", "")

    async def receive(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
        """Handle a signed request. It is answered after the commit."""
        signature = headers.get(SIGNATURE, "")
        signers = [one for one in self.numbers if is_signed(one.access.app_secret, body, signature)]
        if not signers:
            return 401, "the signature is not WhatsApp's"
        try:
            given = json.loads(body.decode())
        except (ValueError, RecursionError):
            return 400, "the body is not JSON"
        if not isinstance(given, dict):
            return 400, "the body is not an event of WhatsApp"
        if self._put is None:
            return 503, ""
        try:
            await self._store_all(given, {one.access.phone_number_id: one for one in signers})
        except HoldfastError as error:
            log.warning(Entry(RECEIVE_FAILED, channel=CHANNEL, error=error))
            return 503, ""
        return 200, ""

    async def _store_all(self, given: Any, signers: Mapping[str, PhoneNumber]) -> None:
        async with self._arriving:
            for message in messages_of(given, has_other_numbers=len(self.numbers) > 1):
                if number := signers.get(message.phone_number_id):
                    await self._receive(number, message)
            for failure in failures_of(given):
                if failure.phone_number_id in signers:
                    await self._store_failure(failure)

    async def _receive(self, number: PhoneNumber, message: Incoming) -> None:
        if await self._store.now() - message.sent_at > self._oldest:
            return
        admission = self._admissions[number]
        decision = await admission.decide(message.sender)
        if not decision.is_admitted:
            await admission.announce(decision, message.payload)
        elif self._put is not None:
            await self._put(message.event)

    async def _store_failure(self, failure: Failure) -> None:
        """Make a dead letter of a message that WhatsApp accepted and then could not deliver."""
        owner = f"{failure.phone_number_id}@" if len(self.numbers) > 1 else ""
        event = response_event(
            {
                "kind": "response",
                "channel": CHANNEL,
                "conversation": f"{CHANNEL}:{owner}{failure.recipient}",
                "sender": failure.recipient,
                "sender_id": failure.recipient,
                "message": f"(the message {failure.id})",
                REFUSED: failure.error,
            }
        )
        await self._store.put([replace(event, message_id=f"{CHANNEL}_failed_{failure.id}")])

    @property
    def problems(self) -> Sequence[str]:
        return [number.problem for number in self.numbers if number.problem]

    async def check(self) -> Sequence[Check]:
        accesses = [one.access for one in self.numbers]
        return await check_accounts(accesses, check, lambda access: access.name)

    async def fetch_files(self, payload: Payload) -> Sequence[Path]:
        if self._files is None or not payload.get("attachments"):
            return ()
        number, found = self._number_of(destination_of(payload)), []
        for file in payload["attachments"]:
            content = await number.download(str(file.get("id")))
            if isinstance(content, str):
                log.warning(Entry(FILE_NOT_FETCHED, file=file.get("name"), reason=content))
                continue
            name = f"{safe_name(str(file.get('id')))}-{safe_name(str(file.get('name')))}"
            path = person_folder(self._files, payload) / name
            await asyncio.to_thread(write_file, path, content)
            found.append(path)
        return found

    def show_typing(self, payload: Payload, *, again: bool) -> AbstractAsyncContextManager[object]:
        answered = payload.get(WAMID)
        if not self._background.is_open or not isinstance(answered, str):
            return nullcontext()
        try:
            number = self._number_of(destination_of(payload))
        except Undeliverable:
            return nullcontext()
        return self._background.during(_keep_typing(number, answered))

    def split(self, response: Event) -> Sequence[Part]:
        return parts_of(response, texts_of)

    async def prepare_part(self, response: Event, part: Part) -> Payload:
        """Upload a file, which nobody sees yet."""
        if error := response.event.get(REFUSED):
            raise undeliverable(error.get("code", -1), error)
        if part.file is None:
            return {}
        number = self._number_of(destination_of(response.event))
        name, content = await asyncio.to_thread(
            read_file, self._files, part.file, response.event, LARGEST_DOCUMENT
        )
        kind, mime_type = kind_of(name, len(content))
        media_id = await number.upload(name, content, mime_type)
        return {"kind": kind, "media_id": media_id, "name": name}

    async def send_part(self, response: Event, part: Part, note: Payload) -> Payload:
        destination = destination_of(response.event)
        number = self._number_of(destination)
        if part.file is not None:
            content = shown_file(note["kind"], note["media_id"], note["name"])
            return {"id": await number.send(destination.message(note["kind"], content))}
        message = destination.message("text", {"body": part.text, "preview_url": False})
        if destination.answered is not None and part.key == part_key(response, 0):
            message["context"] = {"message_id": destination.answered}
        return {"id": await number.send(message)}

    def _number_of(self, destination: Destination) -> PhoneNumber:
        if destination.number is None or len(self.numbers) == 1:
            return self.numbers[0]
        for number in self.numbers:
            if number.access.phone_number_id == destination.number:
                return number
        problem = f"there is no token for the number {destination.number}"
        raise Undeliverable("number_not_found", problem)


async def _keep_typing(number: PhoneNumber, answered: str) -> None:
    """Mark a message as read and show that an answer is written. A refusal is not worth a log."""
    body = {"messaging_product": CHANNEL, "status": "read", "message_id": answered}
    path = f"{number.access.phone_number_id}/messages"
    while True:
        try:
            await number.call("POST", path, json=body | {"typing_indicator": {"type": "text"}})
        except HoldfastError:
            return
        await asyncio.sleep(number.access.limits.typing_every.total_seconds())

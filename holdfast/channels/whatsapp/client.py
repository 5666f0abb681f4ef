"""One phone number: calls of the Cloud API, and whether its token works."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from aiohttp import ClientConnectorError, ClientError, ClientSession, ClientTimeout, FormData

from holdfast.channels.base import NotNow
from holdfast.channels.budget import SettingsStore
from holdfast.channels.files import CHUNK, read_limited, too_large
from holdfast.channels.rate_limits import RateLimits
from holdfast.channels.whatsapp.access import Access
from holdfast.channels.whatsapp.errors import (
    AccessDenied,
    NumberLimited,
    Refusal,
    Unreachable,
    translate_error,
)
from holdfast.errors import HoldfastError
from holdfast.message import Payload
from holdfast.telemetry import CHANNEL_REFUSED, PLATFORM_REACHABLE, PLATFORM_UNREACHABLE
from holdfast.telemetry.logs import Entry
from holdfast.telemetry.redaction import hide

log = logging.getLogger(__name__)

CHANNEL = "whatsapp"
SEND = "messages"
"""Name of the rate limit of messages."""
REQUEST_WITHIN = 60.0
"""Seconds for a request."""
MEDIA_DOMAINS = (".facebook.com", ".fbsbx.com", ".whatsapp.net")


class PhoneNumber:
    """A number of the Cloud API."""

    def __init__(self, access: Access, store: SettingsStore | None = None) -> None:
        """With a store, all processes obey a rate limit that one of them meets."""
        self.access = access
        self._limits = RateLimits(CHANNEL, access.phone_number_id, store)
        self.problem: str | None = None
        """Reason why it cannot work until a person repairs it; None while all is well."""
        self.checked = asyncio.Event()
        """Set once the token was checked, or once only a person can make it work."""
        self._session: ClientSession | None = None
        for secret in (access.token, access.app_secret, access.verify_token):
            if secret:
                hide(secret)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Keep a connection during the block."""
        headers = {"authorization": f"Bearer {self.access.token}"}
        timeout = ClientTimeout(REQUEST_WITHIN)
        async with ClientSession(headers=headers, timeout=timeout) as session:
            self._session = session
            try:
                yield
            finally:
                self._session = None

    async def keep_checking(self) -> None:
        """Ask for the number until WhatsApp answers. An outage, or a refusal, is logged once."""
        failures = 0
        while True:
            try:
                await self.describe()
            except (NotNow, Refusal) as error:
                if not failures:
                    log.warning(Entry(PLATFORM_UNREACHABLE, channel=CHANNEL, error=error))
            except HoldfastError as error:
                self._deny(str(error))
            else:
                break
            failures += 1
            self.checked.set()
            await asyncio.sleep(self.access.limits.backoff.delay(failures).total_seconds())
        if failures:
            log.info(Entry(PLATFORM_REACHABLE, channel=CHANNEL, tries=failures + 1))
        self.problem = None
        self.checked.set()

    async def describe(self) -> Payload:
        """Return the number as people know it. Raises AccessDenied."""
        fields = "display_phone_number,verified_name"
        return await self.request("GET", self.access.phone_number_id, params={"fields": fields})

    async def send(self, message: Payload) -> str:
        """Send a message. Returns its id. Raises NotNow, Undeliverable or Refusal."""
        path = f"{self.access.phone_number_id}/messages"
        await self._limits.check(SEND)
        try:
            answer = await self.call("POST", path, json=message)
        except NumberLimited as limit:
            await self._limits.wait(SEND, limit.delay.total_seconds())
            raise
        sent = answer.get("messages")
        is_sent = isinstance(sent, list) and sent and isinstance(sent[0], dict)
        return str(sent[0].get("id")) if is_sent and isinstance(sent, list) else ""

    async def upload(self, name: str, content: bytes, mime_type: str) -> str:
        """Upload a file, which nobody sees yet. Returns its id."""
        form = FormData()
        form.add_field("messaging_product", CHANNEL)
        form.add_field("type", mime_type)
        form.add_field("file", content, filename=name, content_type=mime_type)
        answer = await self.call("POST", f"{self.access.phone_number_id}/media", data=form)
        return str(answer.get("id"))

    async def download(self, media_id: str) -> bytes | str:
        """Return the content of a file, or the reason why it cannot be had."""
        described = await self.call("GET", media_id)
        url, most = str(described.get("url") or ""), self.access.limits.download_bytes
        # The request carries the token, so it may go to Meta only, whatever the answer says.
        if not self._is_own_url(url):
            return "its address is not one of WhatsApp"
        try:
            async with self._open_session.get(url, allow_redirects=False) as answer:
                if answer.status != 200:
                    return f"status {answer.status}"
                content = await read_limited(answer.content.iter_chunked(CHUNK), most)
        except (ClientError, TimeoutError) as error:
            return type(error).__name__
        return f"it {too_large(most)}" if content is None else content

    async def call(self, method: str, path: str, **content: Any) -> Payload:
        """Send a request, and note whether the token works. Raises NotNow if it is refused."""
        try:
            found = await self.request(method, path, **content)
        except AccessDenied as error:
            self._deny(str(error))
            raise NotNow(self.access.limits.repair_delay) from None
        self.problem = None
        return found

    async def request(self, method: str, path: str, **content: Any) -> Payload:
        """Send a request. Raises AccessDenied, NotNow, Undeliverable or Refusal."""
        limits = self.access.limits
        if not self.access.token or not self.access.phone_number_id:
            raise AccessDenied("the token or the id of the phone number is not set")
        url = f"{self.access.api_url}/{path}"
        try:
            async with self._open_session.request(method, url, **content) as answer:
                text = await answer.text(errors="replace")
        except ClientConnectorError as error:
            raise Unreachable(limits.unreachable_delay, type(error).__name__) from None
        except (ClientError, TimeoutError) as error:
            # It may have been sent: only the answer is missing.
            raise Refusal(f"no answer of WhatsApp: {type(error).__name__}") from error
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            body = None
        if answer.status == 200 and isinstance(body, dict):
            return body
        retry_after = answer.headers.get("retry-after")
        raise translate_error(answer.status, body, retry_after, limits.rate_limit_delay)

    def _deny(self, why: str) -> None:
        problem = f"{self.access.name}: {why}; see `holdfast doctor`"
        if self.problem != problem:
            log.error(Entry(CHANNEL_REFUSED, channel=CHANNEL, problem=problem))
        self.problem = problem

    @property
    def _open_session(self) -> ClientSession:
        if self._session is None:
            raise NotNow(self.access.limits.backoff.first)
        return self._session

    def _is_own_url(self, url: str) -> bool:
        parts, own = urlsplit(url), urlsplit(self.access.api_url)
        if (parts.scheme, parts.netloc) == (own.scheme, own.netloc):
            return True
        return parts.scheme == "https" and f".{parts.hostname or ''}".endswith(MEDIA_DOMAINS)

"""One workspace: signs in, listens by Socket Mode or HTTP, and calls the Web API."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs
from weakref import WeakValueDictionary

from holdfast.channels.base import NotNow, Put
from holdfast.channels.budget import EditBudget
from holdfast.channels.rate_limits import RateLimits
from holdfast.channels.slack.access import Access
from holdfast.channels.slack.errors import (
    TOKEN_ERRORS,
    AccessDenied,
    Unreachable,
    translate_error,
)
from holdfast.channels.slack.gaps import Gaps
from holdfast.channels.slack.incoming import Bot, apply_change, is_bot, message_of
from holdfast.channels.watermark import Watermarks
from holdfast.errors import HoldfastError
from holdfast.message import Payload, conversation_of
from holdfast.queue.store import Store
from holdfast.store.bot_counts import BotCounts
from holdfast.telemetry import RECEIVE_FAILED, SLACK_REACHABLE, SLACK_SIGN_IN_FAILED
from holdfast.telemetry.logs import Entry
from holdfast.telemetry.redaction import hide

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import ClientSession
    from slack_bolt.app.async_app import AsyncApp
    from slack_sdk.socket_mode.aiohttp import SocketModeClient
    from slack_sdk.web.async_client import AsyncWebClient

log = logging.getLogger(__name__)

REQUEST_WITHIN = timedelta(seconds=30)
SIGN_IN_WITHIN = 2.5
"""Seconds that an HTTP event waits for the sign-in; Slack waits three for the answer."""
NO_EVENT = "the body is not a Slack event"


async def ignore_press(workspace: Workspace, body: Payload) -> None:
    """Ignore the press of a button, for a workspace that handles none."""


class Workspace:
    """A workspace. `run` signs in, retrying while Slack is unreachable; then it can be used."""

    def __init__(
        self,
        access: Access,
        store: Store | None = None,
        press: Callable[[Workspace, Payload], Awaitable[None]] = ignore_press,
    ) -> None:
        self.access = access
        self._store = store
        self._press = press
        self.edits = EditBudget(store)
        self._bots = None if store is None else BotCounts(store, "slack")
        self._signed_in = asyncio.Event()
        self.listening = asyncio.Event()
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._bot: Bot | None = None
        self._bolt: AsyncApp | None = None
        self._gaps: Gaps | None = None
        self.problem: str | None = None
        """Reason why it cannot work until a person repairs it; None while all is well."""
        self._failure: Exception | None = None
        self._socket_client: SocketModeClient | None = None
        self.can_customize = True
        """Whether messages may carry other names than the bot's; false once Slack refused it."""
        self.can_set_status = True
        """Whether threads may have a status; false once Slack refused it."""
        for secret in (access.bot_token, access.app_token, access.signing_secret):
            if secret:
                hide(secret)

    @property
    def bot(self) -> Bot | None:
        return self._bot

    @property
    def outage(self) -> str | None:
        """Reason why nothing comes in for now; None while Slack is reachable."""
        if self._failure is not None:
            return f"Slack cannot be reached, will try again: {type(self._failure).__name__}"
        client = self._socket_client
        if client is None or (client.current_session and not client.current_session.closed):
            return None
        return "the connection to Slack is lost, will open it again"

    @property
    def is_ready(self) -> bool:
        return self._signed_in.is_set()

    async def ready(self) -> Bot:
        """Wait for the sign-in. Raises AccessDenied if Slack refuses the token."""
        if self.problem is not None and not self.is_ready:
            raise AccessDenied(self.problem)
        await self._signed_in.wait()
        assert self._bot is not None
        return self._bot

    async def run(self, put: Put, *, listens: bool) -> None:
        """Receive until cancelled; by Socket Mode only if `listens`. Raises AccessDenied."""
        async with AsyncExitStack() as stack:
            self.session = await stack.enter_async_context(_session())
            self.client = self._client(self.access.bot_token)
            self._bot = await self._sign_in()
            self._limits = RateLimits("slack", self._bot.team, self._store)
            if self._store is not None:
                watermarks = Watermarks(self._store, "slack")
                self._gaps = Gaps(self, watermarks, put, self._connection)
            self._bolt = self._app(self._bot, put)
            self._signed_in.set()
            stack.callback(self._signed_in.clear)
            if listens and self.access.app_token:
                await stack.enter_async_context(self._listening(self._bolt, await self._socket()))
            self.listening.set()
            await (asyncio.Event().wait() if self._gaps is None else self._gaps.run())

    def _connection(self) -> object:
        """Return the current connection; without Socket Mode, this workspace stands for it."""
        client = self._socket_client
        return self if client is None else client.current_session

    def _client(self, token: str | None) -> AsyncWebClient:
        from slack_sdk.web.async_client import AsyncWebClient

        # No retry handlers: if the connection breaks after Slack took a message, the client
        # would post it again.
        return AsyncWebClient(token, self.access.api_url, session=self.session, retry_handlers=[])

    async def _sign_in(self) -> Bot:
        if not self.access.bot_token:
            raise self._access_denied(" is not set: Slack needs the token of its bot, xoxb-…")
        found = await self._call_until_allowed("auth.test", "let the bot in")
        team, user, bot_id, name = (
            str(found.get(key) or "") for key in ("team_id", "user_id", "bot_id", "user")
        )
        return Bot(team, user, bot_id, name)

    async def _socket(self) -> str:
        """Return an address for Socket Mode. The client would retry a refused token for ever."""
        found = await self._call_until_allowed(
            "apps.connections.open",
            "open a socket for the app token beside it",
            app_token=self.access.app_token,
        )
        if not found.get("url"):
            raise self._access_denied(": Slack gives no address for Socket Mode")
        self.problem = None
        return str(found["url"])

    def _access_denied(self, why: str) -> AccessDenied:
        self.problem = f"{self.access.name}{why}"
        return AccessDenied(self.problem)

    async def _call_until_allowed(self, method: str, wish: str, **arguments: Any) -> Payload:
        backoff, failures = self.access.limits.sign_in_backoff, 0
        while True:
            try:
                found = await self._request(method, arguments)
            except Exception as error:  # noqa: BLE001 - any failure may pass
                if (code := getattr(error, "code", None)) in TOKEN_ERRORS:
                    raise self._access_denied(
                        f": Slack does not {wish}: {code}; see `holdfast doctor`"
                    ) from None
                failures += 1
                self._failure = error
                if failures == 1:
                    log.warning(Entry(SLACK_SIGN_IN_FAILED, error=error))
                await asyncio.sleep(backoff.delay(failures).total_seconds())
            else:
                self._failure = None
                if failures:
                    log.info(Entry(SLACK_REACHABLE, tries=failures + 1))
                return found

    def _app(self, bot: Bot, put: Put) -> AsyncApp:
        from slack_bolt.app.async_app import AsyncApp
        from slack_bolt.authorization import AuthorizeResult
        from slack_bolt.response import BoltResponse

        async def authorize() -> AuthorizeResult:
            # Bolt acknowledges an event if this fails, though nobody stored it. So use what
            # auth.test returned at the start.
            return AuthorizeResult(
                enterprise_id=None, team_id=bot.team, bot_user_id=bot.user, bot_id=bot.bot_id
            )

        async def receive(body: Payload) -> BoltResponse:
            """Acknowledge after the commit; at once if it is not for us, or Slack sends it
            again."""
            try:
                await self._take(body, bot, put)
            except HoldfastError as error:
                log.warning(Entry(RECEIVE_FAILED, channel="slack", error=error))
                return BoltResponse(status=503, body="")
            return BoltResponse(status=200, body="")

        quiet = logging.getLogger("slack_bolt")
        quiet.setLevel(logging.ERROR)
        app = AsyncApp(
            logger=quiet,
            # Bolt configures the logger of this name, so it must not be one of ours.
            name="slack_bolt",
            process_before_response=True,
            client=self._client(None),
            authorize=authorize,
            signing_secret=self.access.signing_secret,
        )
        app.use(receive)
        return app

    async def _take(self, body: Payload, bot: Bot, put: Put) -> None:
        """Store a message, or apply a change or the press of a button. Ignores the rest."""
        new = message_of(body, bot, self.access.permissions)
        if new is not None:
            if await self.is_no_loop(new.event):
                await (put(new) if self._gaps is None else self._gaps.receive(new))
        elif body.get("type") == "block_actions":
            await self._press(self, body)
        elif self._store is not None:
            await apply_change(self._store, body)

    async def is_no_loop(self, event: Payload) -> bool:
        """Count the messages of other bots. Returns False for too many without one of a person."""
        if self._bots is None or not self.access.permissions.bots:
            return True
        conversation = conversation_of(event)
        if is_bot(event):
            return await self._bots.count(conversation)
        await self._bots.reset(conversation)
        return True

    @asynccontextmanager
    async def _listening(self, app: AsyncApp, address: str) -> AsyncIterator[None]:
        from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler

        handler = AsyncSocketModeHandler(
            app,
            self.access.app_token,
            logger=logging.getLogger("slack_sdk.socket_mode"),
            web_client=self._client(None),
            ping_interval=self.access.limits.ping_seconds,
        )
        handler.client.wss_uri = address
        # The library itself would ask for each further address at a fixed interval.
        handler.client.issue_new_wss_url = self._socket  # type: ignore[method-assign]
        try:
            await handler.connect_async()  # type: ignore[no-untyped-call]
            self._socket_client = handler.client
            yield
        finally:
            self._socket_client = None
            await handler.close_async()  # type: ignore[no-untyped-call]

    async def receive(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Handle a request to /slack/events. Returns None if this workspace did not sign it."""
        from slack_bolt.request.async_request import AsyncBoltRequest
        from slack_sdk.signature import SignatureVerifier

        secret = self.access.signing_secret
        if not secret or not _can_be_signed(headers):
            return None
        if not SignatureVerifier(secret).is_valid_request(body, dict(headers)):
            return None
        if not _is_event(_payload_of(body, headers)):
            return 400, NO_EVENT
        try:
            async with asyncio.timeout(SIGN_IN_WITHIN):
                await self.ready()
        except (TimeoutError, AccessDenied):
            return 503, ""
        assert self._bolt is not None
        try:
            # Bolt expects a list of values for each header.
            request = AsyncBoltRequest(
                body=body.decode(), headers={name: [value] for name, value in headers.items()}
            )
        except Exception:  # noqa: BLE001 - Bolt trusts the types of many fields
            return 400, NO_EVENT
        answer = await self._bolt.async_dispatch(request)
        # Bolt answers 500 to a body it cannot read. Our own failures are 503, so Slack retries.
        return (400, NO_EVENT) if answer.status == 500 else (answer.status, answer.body)

    async def call(self, method: str, **arguments: Any) -> Payload:
        """Call a method. Raises NotNow, Undeliverable or Refusal, and errors of the network."""
        await self.ready()
        channel = str(arguments.get("channel", ""))
        # One request at a time per channel: after a 429, all further ones would be too early.
        async with self._locks.setdefault((method, channel), asyncio.Lock()):
            await self._limits.check(method)
            try:
                return await self._request(method, arguments)
            except Unreachable:
                # The network is down here; other processes may still reach Slack.
                raise
            except NotNow as wait:
                await self._limits.wait(method, wait.delay.total_seconds())
                raise

    async def _request(self, method: str, arguments: Payload) -> Payload:
        from aiohttp import ClientConnectorError
        from slack_sdk.errors import SlackApiError

        try:
            answer = await getattr(self.client, method.replace(".", "_"))(**arguments)
        except SlackApiError as error:
            raise translate_error(method, error) from None
        except ClientConnectorError as error:
            raise Unreachable(self.access.limits.unreachable_delay, str(error)) from None
        found: Payload = answer.data
        return found | {"headers": {name.lower(): value for name, value in answer.headers.items()}}


def _can_be_signed(headers: Mapping[str, str]) -> bool:
    """Return whether the headers can be verified; Slack's verifier raises for malformed ones."""
    timestamp, signature = (
        headers.get(f"x-slack-{name}", "") for name in ("request-timestamp", "signature")
    )
    return (
        timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 20 and signature.isascii()
    )


def _payload_of(body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return the JSON of a request: a press of a button comes in a field of a form."""
    if not headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return body
    return parse_qs(body.decode(errors="replace")).get("payload", [""])[0].encode()


def _is_event(text: bytes) -> bool:
    """Return whether a signed body has the shape that Bolt relies on."""
    try:
        # Decode first: json.loads accepts more encodings than Bolt does.
        body = json.loads(text.decode())
    except (ValueError, RecursionError):
        return False
    if not isinstance(body, dict) or not isinstance(body.get("event", {}), dict):
        return False
    authorizations = body.get("authorizations", [])
    return isinstance(authorizations, list) and all(isinstance(one, dict) for one in authorizations)


def _session() -> ClientSession:
    from aiohttp import ClientSession, ClientTimeout

    return ClientSession(
        timeout=ClientTimeout(REQUEST_WITHIN.total_seconds()), json_serialize=json.dumps
    )

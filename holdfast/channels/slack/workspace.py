"""One workspace: signed in, listening by Socket Mode or HTTP, and called with its limits kept."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from holdfast.channels.base import NotNow, Put
from holdfast.channels.slack.access import Access
from holdfast.channels.slack.gate import Gate, Shared
from holdfast.channels.slack.incoming import Bot, message_of
from holdfast.channels.slack.refusal import (
    SLACK_WORKSPACE_REFUSED,
    NotLetIn,
    Unreachable,
    translated,
)
from holdfast.errors import HoldfastError
from holdfast.message import Payload
from holdfast.queue.policy import Backoff
from holdfast.telemetry import RECEIVE_FAILED, SLACK_REACHABLE, SLACK_SIGN_IN_FAILED
from holdfast.telemetry.logs import Entry
from holdfast.telemetry.redaction import hide

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import ClientSession
    from slack_bolt.app.async_app import AsyncApp
    from slack_sdk.web.async_client import AsyncWebClient

log = logging.getLogger(__name__)

REQUEST_WITHIN = timedelta(seconds=30)
PING_EVERY = 5.0
"""Seconds; a connection that is gone without a word is noticed after four of these."""
SIGN_IN = Backoff(first=timedelta(seconds=1), most=timedelta(seconds=60))
SIGNED_IN_WITHIN = 2.5
"""Seconds that a request waits where we have only just started; Slack itself waits three."""
TRY_AGAIN_AFTER = timedelta(seconds=10)
NO_EVENT = "the body is no event of Slack's"


class Workspace:
    """Usable once it has signed in, which `run` does and keeps trying."""

    def __init__(self, access: Access, shared: Shared | None = None) -> None:
        self.access = access
        self._shared = shared
        self._signed_in = asyncio.Event()
        self.opened = asyncio.Event()
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._bot: Bot | None = None
        self._bolt: AsyncApp | None = None
        self.problem: str | None = None
        """What keeps it from working until a person does something about it."""
        self.can_customize = True
        """Whether messages may carry another name than the bot's; false once Slack has refused it."""
        for secret in (access.bot_token, access.app_token, access.signing_secret):
            if secret:
                hide(secret)

    @property
    def bot(self) -> Bot | None:
        return self._bot

    @property
    def is_ready(self) -> bool:
        return self._signed_in.is_set()

    async def ready(self) -> Bot:
        if self.problem is not None:
            raise NotLetIn(self.problem)
        await self._signed_in.wait()
        assert self._bot is not None
        return self._bot

    async def run(self, put: Put, *, listens: bool) -> None:
        """Receive until cancelled, by Socket Mode only if it listens; raises NotLetIn where a token is refused."""
        async with AsyncExitStack() as stack:
            self.session = await stack.enter_async_context(_session())
            self.client = self._client(self.access.bot_token)
            self._bot = await self._sign_in()
            self._gate = Gate(self._bot.team, self._shared)
            self._bolt = self._app(self._bot, put)
            self._signed_in.set()
            stack.callback(self._signed_in.clear)
            if listens and self.access.app_token:
                await stack.enter_async_context(self._listening(self._bolt, await self._socket()))
            self.opened.set()
            await asyncio.Event().wait()

    def _client(self, token: str | None) -> AsyncWebClient:
        from slack_sdk.web.async_client import AsyncWebClient

        # Without retry handlers: the client would post again by itself what Slack took before the connection was lost.
        return AsyncWebClient(token, self.access.api_url, session=self.session, retry_handlers=[])

    async def _sign_in(self) -> Bot:
        if not self.access.bot_token:
            raise self._not_let_in(" is not set: Slack needs the token of its bot, xoxb-…")
        found = await self._let_in("auth.test", "let the bot in")
        team, user, bot_id, name = (
            str(found.get(key) or "") for key in ("team_id", "user_id", "bot_id", "user")
        )
        return Bot(team, user, bot_id, name)

    async def _socket(self) -> str:
        """Asked for here first: the client would ask with a token that is refused for ever."""
        found = await self._let_in(
            "apps.connections.open",
            "open a socket for the app token beside it",
            app_token=self.access.app_token,
        )
        if not found.get("url"):
            raise self._not_let_in(": Slack gives no address for Socket Mode")
        return str(found["url"])

    def _not_let_in(self, why: str) -> NotLetIn:
        self.problem = f"{self.access.name}{why}"
        return NotLetIn(self.problem)

    async def _let_in(self, method: str, wish: str, **arguments: Any) -> Payload:
        failures = 0
        while True:
            try:
                found = await self._request(method, arguments)
            except Exception as error:  # noqa: BLE001 - whatever keeps us from Slack now may be over soon
                if (code := getattr(error, "code", None)) in SLACK_WORKSPACE_REFUSED:
                    raise self._not_let_in(
                        f": Slack does not {wish}: {code}; see `holdfast doctor`"
                    ) from None
                failures += 1
                if failures == 1:
                    log.warning(Entry(SLACK_SIGN_IN_FAILED, error=error))
                await asyncio.sleep(SIGN_IN.delay(failures).total_seconds())
            else:
                if failures:
                    log.info(Entry(SLACK_REACHABLE, tries=failures + 1))
                return found

    def _app(self, bot: Bot, put: Put) -> AsyncApp:
        from slack_bolt.app.async_app import AsyncApp
        from slack_bolt.authorization import AuthorizeResult
        from slack_bolt.response import BoltResponse

        async def authorize() -> AuthorizeResult:
            # Known since the start: asked for at an event, a failure would have Bolt acknowledge what nobody stored.
            return AuthorizeResult(
                enterprise_id=None, team_id=bot.team, bot_user_id=bot.user, bot_id=bot.bot_id
            )

        async def receive(body: Payload) -> BoltResponse:
            """The only one to acknowledge: after the commit, and at once what is nobody's, or Slack sends it again."""
            new = message_of(body, bot, self.access.doors)
            try:
                if new is not None:
                    await put(new)
            except HoldfastError as error:
                log.warning(Entry(RECEIVE_FAILED, channel="slack", error=error))
                return BoltResponse(status=503, body="")
            return BoltResponse(status=200, body="")

        quiet = logging.getLogger("slack_bolt")
        quiet.setLevel(logging.ERROR)
        app = AsyncApp(
            logger=quiet,
            # Bolt sets up the logger of this name as its own: ours would fall silent.
            name="slack_bolt",
            process_before_response=True,
            client=self._client(None),
            authorize=authorize,
            signing_secret=self.access.signing_secret,
        )
        app.use(receive)
        return app

    @asynccontextmanager
    async def _listening(self, app: AsyncApp, address: str) -> AsyncIterator[None]:
        from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler

        handler = AsyncSocketModeHandler(
            app,
            self.access.app_token,
            logger=logging.getLogger("slack_sdk.socket_mode"),
            web_client=self._client(None),
            ping_interval=PING_EVERY,
        )
        handler.client.wss_uri = address
        try:
            await handler.connect_async()  # type: ignore[no-untyped-call]
            yield
        finally:
            await handler.close_async()  # type: ignore[no-untyped-call]

    async def receive(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """A request to /slack/events, if this workspace's Slack signed it: status and answer."""
        from slack_bolt.request.async_request import AsyncBoltRequest
        from slack_sdk.signature import SignatureVerifier

        secret = self.access.signing_secret
        if not secret or not _can_be_signed(headers):
            return None
        if not SignatureVerifier(secret).is_valid_request(body, dict(headers)):
            return None
        if not _is_event(body):
            return 400, NO_EVENT
        try:
            async with asyncio.timeout(SIGNED_IN_WITHIN):
                await self.ready()
        except (TimeoutError, NotLetIn):
            return 503, ""
        assert self._bolt is not None
        try:
            # Several values of a header would be a list there.
            request = AsyncBoltRequest(
                body=body.decode(), headers={name: [value] for name, value in headers.items()}
            )
        except Exception:  # noqa: BLE001 - Bolt reads many fields here, and trusts each to be of its type
            return 400, NO_EVENT
        answer = await self._bolt.async_dispatch(request)
        # Bolt's own word for a body that it cannot read; our failures are 503, so that Slack sends again.
        return (400, NO_EVENT) if answer.status == 500 else (answer.status, answer.body)

    async def call(self, method: str, **arguments: Any) -> Payload:
        """One request; raises NotNow, Undeliverable or Refusal for what Slack says, and what the network raises."""
        await self.ready()
        channel = str(arguments.get("channel", ""))
        # One at a time in a channel: were several on their way, all but the first would come too early after a 429.
        async with self._locks.setdefault((method, channel), asyncio.Lock()):
            await self._gate.passing(method)
            try:
                return await self._request(method, arguments)
            except Unreachable:
                # That is our own way to Slack, and no wish of Slack's that others would have to know of.
                raise
            except NotNow as wait:
                await self._gate.close(method, wait.delay.total_seconds())
                raise

    async def _request(self, method: str, arguments: Payload) -> Payload:
        from aiohttp import ClientConnectorError
        from slack_sdk.errors import SlackApiError

        try:
            answer = await getattr(self.client, method.replace(".", "_"))(**arguments)
        except SlackApiError as error:
            raise translated(method, error) from None
        except ClientConnectorError as error:
            raise Unreachable(TRY_AGAIN_AFTER, str(error)) from None
        found: Payload = answer.data
        return found | {"headers": {name.lower(): value for name, value in answer.headers.items()}}


def _can_be_signed(headers: Mapping[str, str]) -> bool:
    """Whether Slack's headers are of the right kind: its verifier raises for what is no number and no ASCII."""
    timestamp, signature = (
        headers.get(f"x-slack-{name}", "") for name in ("request-timestamp", "signature")
    )
    return (
        timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 20 and signature.isascii()
    )


def _is_event(text: bytes) -> bool:
    """Whether a signed body has the shape of Slack's events, as far as Bolt relies on it."""
    try:
        # Decoded first: of bytes, json.loads would take more encodings than Bolt does.
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

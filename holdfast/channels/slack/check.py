"""What `holdfast doctor` asks Slack: whether the tokens are taken, which scopes they have, whether a socket opens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Literal

from holdfast.channels.slack.access import Access
from holdfast.channels.slack.manifest import BOT_SCOPES

WITHIN = 10
State = Literal["ok", "warn", "fail"]
Line = tuple[str, State, str]


async def check(access: Access) -> list[Line]:
    """Lines of name, state and detail; none of them holds a token."""
    from slack_sdk.web.async_client import AsyncWebClient

    client = AsyncWebClient(access.bot_token, access.api_url, timeout=WITHIN, retry_handlers=[])
    lines = [await _asked("Slack", lambda: _bot(client))]
    if lines[0][1] != "ok":
        return lines
    lines.append(await _asked("Slack scopes", lambda: _scopes(client)))
    if access.app_token:
        lines.append(await _asked("Slack socket", lambda: _socket(client, access.app_token)))
    elif access.signing_secret:
        lines.append(("Slack socket", "ok", "none: events come signed to /slack/events"))
    else:
        detail = "neither an app token nor a signing secret: nothing can come in"
        lines.append(("Slack socket", "warn", detail))
    return lines


async def _asked(name: str, ask: Callable[[], Coroutine[Any, Any, tuple[State, str]]]) -> Line:
    from aiohttp import ClientError
    from slack_sdk.errors import SlackApiError

    try:
        async with asyncio.timeout(WITHIN):
            return (name, *await ask())
    except SlackApiError as error:
        data = getattr(error.response, "data", None)
        code = data.get("error") if isinstance(data, dict) else "an answer that nobody understands"
        return name, "fail", f"Slack says {code}"
    except (ClientError, OSError, TimeoutError) as error:
        return name, "fail", f"Slack cannot be reached: {type(error).__name__}"


async def _bot(client: Any) -> tuple[State, str]:
    answer = await client.auth_test()
    return "ok", f"the bot is {answer.get('user')} in {answer.get('team')}"


async def _scopes(client: Any) -> tuple[State, str]:
    answer = await client.auth_test()
    told = answer.headers.get("x-oauth-scopes")
    if told is None:
        return "warn", "Slack does not say which the token has"
    held = {scope.strip() for scope in told.split(",")}
    missing = [scope for scope in BOT_SCOPES if scope not in held]
    if missing:
        return (
            "warn",
            f"missing are {', '.join(missing)}; `holdfast slack manifest` prints all, then install again",
        )
    return "ok", "all that are needed"


async def _socket(client: Any, app_token: str) -> tuple[State, str]:
    await client.apps_connections_open(app_token=app_token)
    return "ok", "Socket Mode can be opened"

"""Checks of a workspace for `holdfast doctor`: tokens, scopes and Socket Mode."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Literal

from holdfast.channels.base import Check
from holdfast.channels.slack.access import Access
from holdfast.channels.slack.manifest import BOT_SCOPES

CHECK_WITHIN = 10
"""Seconds for each request."""
State = Literal["ok", "warn", "fail"]


async def check(access: Access) -> list[Check]:
    """Check one workspace: its tokens, scopes and socket."""
    if not access.bot_token:
        return [Check("Slack", "fail", f"{access.name} is not set: Slack is off")]
    from slack_sdk.web.async_client import AsyncWebClient

    client = AsyncWebClient(
        access.bot_token, access.api_url, timeout=CHECK_WITHIN, retry_handlers=[]
    )
    lines = [await _check("Slack", lambda: _bot(client))]
    if lines[0].state != "ok":
        return lines
    lines.append(await _check("Slack scopes", lambda: _scopes(client)))
    if access.app_token:
        lines.append(await _check("Slack socket", lambda: _socket(client, access.app_token)))
    elif access.signing_secret:
        detail = "not used: signed events come to /slack/events"
        lines.append(Check("Slack socket", "ok", detail))
    elif access.receiving_problem:
        lines.append(Check("Slack socket", "warn", access.receiving_problem))
    return lines


async def _check(name: str, ask: Callable[[], Coroutine[Any, Any, tuple[State, str]]]) -> Check:
    from aiohttp import ClientError
    from slack_sdk.errors import SlackApiError

    try:
        async with asyncio.timeout(CHECK_WITHIN):
            return Check(name, *await ask())
    except SlackApiError as error:
        data = getattr(error.response, "data", None)
        code = data.get("error") if isinstance(data, dict) else "something unreadable"
        return Check(name, "fail", f"Slack says {code}")
    except (ClientError, OSError, TimeoutError) as error:
        return Check(name, "fail", f"Slack cannot be reached: {type(error).__name__}")


async def _bot(client: Any) -> tuple[State, str]:
    answer = await client.auth_test()
    return "ok", f"the bot is {answer.get('user')} in {answer.get('team')}"


async def _scopes(client: Any) -> tuple[State, str]:
    answer = await client.auth_test()
    listed = answer.headers.get("x-oauth-scopes")
    if listed is None:
        return "warn", "Slack does not list the scopes of the token"
    held = {scope.strip() for scope in listed.split(",")}
    missing = [scope for scope in BOT_SCOPES if scope not in held]
    if missing:
        advice = "update the app with `holdfast slack manifest`, then install it again"
        return "warn", f"missing: {', '.join(missing)}; {advice}"
    return "ok", "complete"


async def _socket(client: Any, app_token: str) -> tuple[State, str]:
    await client.apps_connections_open(app_token=app_token)
    return "ok", "Socket Mode can be opened"

"""Checks of a bot for `holdfast doctor`: its token and its intents."""

from __future__ import annotations

import asyncio

import discord
from aiohttp import ClientError

from holdfast.channels.base import Check
from holdfast.channels.discord.access import Access
from holdfast.channels.discord.bot import signed_in

CHECK_WITHIN = 10.0


async def check(access: Access) -> list[Check]:
    """Check one bot: its token, and the intents that it asks for."""
    if not access.token:
        return [Check("Discord", "fail", f"{access.name} is not set: Discord is off")]
    try:
        async with asyncio.timeout(CHECK_WITHIN), signed_in(access) as client:
            found = Check("Discord", "ok", f"the bot is {client.user}")
            return [found, _intents(access, client.application_flags)]
    except discord.LoginFailure:
        detail = f"Discord refuses {access.name} (401): reset the token in the developer portal"
        return [Check("Discord", "fail", detail)]
    except (discord.DiscordException, ClientError, OSError, TimeoutError) as error:
        return [Check("Discord", "fail", f"Discord cannot be reached: {type(error).__name__}")]


def _intents(access: Access, flags: discord.ApplicationFlags) -> Check:
    name = "Discord intents"
    if not access.message_content:
        return Check(name, "ok", "not needed: message_content is off")
    if flags.gateway_message_content or flags.gateway_message_content_limited:
        return Check(name, "ok", "the Message Content Intent is on")
    detail = "the Message Content Intent is off: turn it on in the developer portal under Bot"
    return Check(name, "fail", f"{detail}, or set message_content = false")

"""Checks of a bot for `holdfast doctor`: its token, and how its messages come in."""

from __future__ import annotations

import asyncio

from aiogram.exceptions import AiogramError, TelegramAPIError
from aiogram.methods import GetMe, GetWebhookInfo
from aiogram.types import User, WebhookInfo

from holdfast.channels.base import Check
from holdfast.channels.telegram.access import Access
from holdfast.channels.telegram.bot import TelegramBot
from holdfast.channels.telegram.errors import AccessDenied, error_code

CHECK_WITHIN = 10
"""Seconds for all requests."""


async def check(access: Access) -> list[Check]:
    """Check one bot."""
    bot = TelegramBot(access)
    try:
        async with asyncio.timeout(CHECK_WITHIN), bot.open():
            user = await bot.client(GetMe())
            webhook = await bot.client(GetWebhookInfo())
    except AccessDenied as error:
        return [Check("Telegram", "fail", str(error))]
    except TelegramAPIError as error:
        code = error_code(error)
        says = f"Telegram says {code} {error.message}" if code else "Telegram cannot be reached"
        return [Check("Telegram", "fail", f"{access.name}: {says}")]
    except (AiogramError, OSError, TimeoutError) as error:
        reason = type(error).__name__
        return [Check("Telegram", "fail", f"Telegram cannot be reached: {reason}")]
    signed_in = Check("Telegram", "ok", f"the bot is @{user.username}")
    return [signed_in, *_groups(user), _receiving(access, webhook)]


def _groups(user: User) -> list[Check]:
    if user.can_join_groups is False:
        detail = "the bot cannot be added to groups; allow it with /setjoingroups at @BotFather"
        return [Check("Telegram groups", "warn", detail)]
    return []


def _receiving(access: Access, webhook: WebhookInfo) -> Check:
    name = "Telegram updates"
    if not access.webhook_secret:
        if webhook.url:
            advice = f"a webhook is set ({webhook.url}), so polling is refused: call deleteWebhook"
            return Check(name, "fail", advice)
        return Check(name, "ok", f"polled; {webhook.pending_update_count} wait")
    if not webhook.url:
        return Check(name, "fail", "no webhook is set: call setWebhook with url and secret_token")
    if webhook.last_error_message:
        return Check(name, "warn", f"{webhook.url}: {webhook.last_error_message}")
    return Check(name, "ok", f"sent to {webhook.url}; {webhook.pending_update_count} wait")

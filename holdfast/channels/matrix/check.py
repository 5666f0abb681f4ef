"""Checks of an account for `holdfast doctor`: address, token and rooms."""

from __future__ import annotations

import asyncio

from holdfast.channels.base import Check, NotNow
from holdfast.channels.matrix.access import Access
from holdfast.channels.matrix.errors import AccessDenied
from holdfast.channels.matrix.homeserver import Homeserver, open_homeserver
from holdfast.errors import HoldfastError

CHECK_WITHIN = 10


async def check(access: Access) -> list[Check]:
    """Check one account. The lines contain no token."""
    if access.missing:
        return [Check("Matrix", "fail", access.missing)]
    try:
        async with (
            asyncio.timeout(CHECK_WITHIN),
            open_homeserver(access.homeserver, access.token) as homeserver,
        ):
            return await _examine(homeserver)
    except AccessDenied as error:
        detail = f"the homeserver does not let the bot in, {error}; create a new token"
        return [Check("Matrix", "fail", detail)]
    except (NotNow, TimeoutError) as error:
        detail = f"{access.homeserver} cannot be reached: {type(error).__name__} {error}"
        return [Check("Matrix", "fail", detail)]
    except (HoldfastError, KeyError) as error:
        detail = f"{access.homeserver} does not answer as a Matrix homeserver: {error}"
        return [Check("Matrix", "fail", detail)]


async def _examine(homeserver: Homeserver) -> list[Check]:
    user = str((await homeserver.whoami())["user_id"])
    rooms = len(await homeserver.joined_rooms())
    lines = [Check("Matrix", "ok", f"the bot is {user}")]
    if rooms:
        return [*lines, Check("Matrix rooms", "ok", f"the bot is in {rooms}")]
    detail = "the bot is in none; invite it to one, or write to it"
    return [*lines, Check("Matrix rooms", "warn", detail)]

"""The direct room with a person, for messages that answer none."""

from __future__ import annotations

from holdfast.channels.matrix.account import Account

DIRECT = "m.direct"
"""Account data that lists the direct rooms by person, for all clients of the account."""


async def direct_room(account: Account, user: str) -> str:
    """Return the room with a person; create one and invite them if there is none.

    A crash between creating the room and recording it leaves an empty one."""
    async with account.opens_room:
        return await _direct_room(account, user)


async def _direct_room(account: Account, user: str) -> str:
    bot, homeserver = account.bot, account.homeserver
    assert bot is not None
    rooms = await homeserver.account_data(bot.user, DIRECT)
    known = [room for room in rooms.get(user) or () if isinstance(room, str)]
    joined = set(await homeserver.joined_rooms()) if known else set()
    for room in known:
        if room in joined:
            return room
    room = await homeserver.create_direct_room(user)
    await homeserver.set_account_data(bot.user, DIRECT, rooms | {user: [room, *known]})
    return room

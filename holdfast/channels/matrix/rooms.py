"""Rooms of an account: how many people are in them, and their names. Memory is bounded."""

from __future__ import annotations

from holdfast.channels.base import Undeliverable
from holdfast.channels.cache import Cache
from holdfast.channels.matrix.homeserver import Homeserver
from holdfast.channels.matrix.incoming import content_of
from holdfast.message import Payload

MOST_ROOMS = 10_000
MOST_NAMES = 10_000
DIRECT_MEMBERS = 2
"""Maximum number of people in a direct conversation."""
LONGEST_NAME = 200


class Rooms:
    """Numbers and names of members, taken from syncs; missing ones are requested once."""

    def __init__(self, homeserver: Homeserver) -> None:
        self._homeserver = homeserver
        self._members: Cache[str, int] = Cache(MOST_ROOMS)
        self._names: Cache[tuple[str, str], str] = Cache(MOST_NAMES)

    def update(self, room: str, synced: Payload) -> None:
        """Note names and numbers of members from the sync of a room."""
        events = [event for part in ("state", "timeline") for event in events_of(synced, part)]
        members = [event for event in events if event.get("type") == "m.room.member"]
        for event in members:
            name = content_of(event).get("displayname")
            self._keep_name(room, str(event.get("state_key")), name)
        summary = synced.get("summary")
        counts = summary if isinstance(summary, dict) else {}
        numbers = [counts.get(f"m.{kind}_member_count") for kind in ("joined", "invited")]
        if all(isinstance(number, int) for number in numbers):
            self._members.keep(room, sum(number for number in numbers if number))
        elif members or any(number is not None for number in numbers):
            self._members.pop(room, None)

    def forget(self, room: str) -> None:
        """Forget a room that the bot has left."""
        self._members.pop(room, None)

    async def is_direct(self, room: str) -> bool:
        """Return whether nobody but the bot and one other person is in a room."""
        known = self._members.get(room)
        if known is None:
            known = self._members.keep(room, await self._homeserver.count_members(room))
        return known <= DIRECT_MEMBERS

    async def name(self, room: str, user: str) -> str:
        """Return the name of a person in a room; the id if there is none."""
        known = self._names.get((room, user))
        if known is not None:
            return known
        try:
            content = await self._homeserver.member(room, user)
        except Undeliverable:
            # They have left, or the bot has.
            content = {}
        return self._keep_name(room, user, content.get("displayname"))

    def _keep_name(self, room: str, user: str, name: object) -> str:
        shown = name[:LONGEST_NAME] if isinstance(name, str) and name.strip() else user
        return self._names.keep((room, user), shown)


def events_of(synced: Payload, part: str) -> list[Payload]:
    """Return the events of a part of a room's sync; malformed ones are left out."""
    found = synced.get(part)
    events = found.get("events") if isinstance(found, dict) else None
    return [event for event in events or () if isinstance(event, dict)]

"""Receives syncs: invitations, messages in order, edits and redactions, and gaps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from holdfast.channels.admission import Admission, Decision, Sender
from holdfast.channels.base import NotNow, Put, Undeliverable, response_event
from holdfast.channels.edits import edit_message, withdraw_message
from holdfast.channels.matrix.access import Access
from holdfast.channels.matrix.errors import Refusal
from holdfast.channels.matrix.homeserver import Homeserver
from holdfast.channels.matrix.incoming import (
    CHANNEL,
    Bot,
    Location,
    content_of,
    edit_of,
    is_message,
    message_id,
    new_message,
    platform_time,
    redacted_by,
    text_of_content,
    with_edits,
    without_answered,
)
from holdfast.channels.matrix.rooms import Rooms, events_of
from holdfast.message import Payload, sender_id_of
from holdfast.queue.event import FinishedEvent
from holdfast.queue.store import Store
from holdfast.store.chain import find_message
from holdfast.telemetry import (
    INVITATION_FAILED,
    INVITATION_REFUSED,
    ROOM_ENCRYPTED,
    ROOM_UNREADABLE,
)
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

UNREADABLE = (
    "I cannot read encrypted messages. Please write to me in a room without encryption: switch it"
    " off when you create the room."
)
MOST_ENCRYPTED = 1000
"""Maximum number of encrypted rooms that are reported, once each."""


class Receiver:
    """Stores the messages of one account."""

    def __init__(
        self, bot: Bot, homeserver: Homeserver, store: Store, access: Access, put: Put
    ) -> None:
        self.homeserver = homeserver
        self._bot = bot
        self._store = store
        self._access = access
        self._put = put
        self._rooms = Rooms(homeserver)
        self._admission = Admission(store, CHANNEL, access.rules)
        self._encrypted: set[str] = set()

    async def receive(self, synced: Payload, since: str | None, *, is_gap: bool) -> int:
        """Store everything that a sync brings. Returns how many messages were new.

        The first sync of an account brings no messages: they are older than the bot."""
        for room, invited in _rooms(synced, "invite"):
            await self._invitation(room, events_of(invited, "invite_state"))
        for room, _ in _rooms(synced, "leave"):
            self._rooms.forget(room)
        counts = await _all(
            self._readable_room(room, joined, since, is_gap=is_gap)
            for room, joined in _rooms(synced, "join")
        )
        return sum(counts)

    async def _readable_room(
        self, room: str, joined: Payload, since: str | None, *, is_gap: bool
    ) -> int:
        """Store the messages of a room. An unreadable room does not stop the others."""
        try:
            return await self._room(room, joined, since, is_gap=is_gap)
        except Undeliverable as error:
            log.warning(Entry(ROOM_UNREADABLE, channel=CHANNEL, room=room, error=error))
            return 0

    async def _room(self, room: str, joined: Payload, since: str | None, *, is_gap: bool) -> int:
        self._rooms.update(room, joined)
        if since is None:
            return 0
        events = events_of(joined, "timeline")
        is_new = self._has_joined(events)
        timeline = joined["timeline"] if isinstance(joined.get("timeline"), dict) else {}
        start = timeline.get("prev_batch")
        if timeline.get("limited") and start:
            events = await self._earlier(room, str(start), None if is_new else since) + events
            is_gap = True
        if is_new:
            events = self._since_invitation(events)
        return await self._events(room, self._worth_answering(events) if is_gap else events)

    def _worth_answering(self, events: Sequence[Payload]) -> list[Payload]:
        """Leave out messages of a gap that are too old, or that a person has answered."""
        recent = self._recent(events)
        skips = self._access.skip_answered
        return without_answered(recent, self._bot.user) if skips else recent

    def _has_joined(self, events: Sequence[Payload]) -> bool:
        """Return whether the bot came into the room with these events."""
        own = [event for event in events if self._is_own_membership(event, "join")]
        return any(_previous_membership(event) != "join" for event in own)

    def _is_own_membership(self, event: Payload, membership: str) -> bool:
        return (
            event.get("type") == "m.room.member"
            and event.get("state_key") == self._bot.user
            and content_of(event).get("membership") == membership
        )

    async def _earlier(self, room: str, start: str, end: str | None) -> list[Payload]:
        """Read what came between two positions page by page, within the limits of a gap.

        Without an end, read back to the invitation of the bot."""
        limits, events = self._access.limits, list[Payload]()
        at: str | None = start
        while at is not None and len(events) < limits.gap_messages:
            page = await self.homeserver.messages(room, at, end, limits.page)
            found = [event for event in page.get("chunk") or () if isinstance(event, dict)]
            events += found
            is_enough = len(self._recent(found)) < len(found) or (
                end is None and any(self._is_own_membership(one, "invite") for one in found)
            )
            at = None if is_enough or not found else page.get("end")
        return events[: limits.gap_messages][::-1]

    def _recent(self, events: Sequence[Payload]) -> list[Payload]:
        """Leave out events that are too old to be answered."""
        oldest = datetime.now(UTC) - self._access.limits.gap_age
        times = [platform_time(event.get("origin_server_ts")) for event in events]
        pairs = zip(events, times, strict=True)
        return [event for event, sent_at in pairs if sent_at is None or sent_at >= oldest]

    def _since_invitation(self, events: Sequence[Payload]) -> list[Payload]:
        """Return the events since the bot was invited, or since it joined without invitation."""
        for membership in ("invite", "join"):
            for at in range(len(events) - 1, -1, -1):
                if self._is_own_membership(events[at], membership):
                    return list(events[at + 1 :])
        return list(events)

    async def _events(self, room: str, events: Iterable[Payload]) -> int:
        """Store messages in order within each conversation, and apply edits and redactions.

        Returns how many messages were new."""
        stored, waiting = 0, list[Payload]()
        for event in with_edits(events):
            if event.get("sender") == self._bot.user:
                continue
            if is_message(event):
                waiting.append(event)
            elif edit_of(event) or redacted_by(event):
                stored += await self._messages(room, waiting)
                waiting = []
                await self._change(room, event)
            elif event.get("type") == "m.room.encrypted":
                await self._encrypted_message(room, event)
        return stored + await self._messages(room, waiting)

    async def _messages(self, room: str, events: Sequence[Payload]) -> int:
        conversations: dict[str, list[Payload]] = {}
        for event in events:
            message = new_message(self._bot, room, event, "", is_direct=False)
            conversations.setdefault(str(message.event["conversation"]), []).append(event)
        return sum(await _all(self._in_order(room, group) for group in conversations.values()))

    async def _in_order(self, room: str, events: Iterable[Payload]) -> int:
        return sum([await self._message(room, event) for event in events])

    async def _message(self, room: str, event: Payload) -> bool:
        """Store a message if its sender is admitted. Returns whether it is new."""
        is_direct = await self._rooms.is_direct(room)
        user = str(event["sender"])
        name = await self._rooms.name(room, user)
        new = new_message(self._bot, room, event, name, is_direct=is_direct)
        sender = Sender(
            id=user,
            name=name,
            conversation=str(new.event["conversation"]),
            is_direct=is_direct,
            is_mentioned=self._bot.is_mentioned(content_of(event)),
            group=None if is_direct else room,
            domain=domain_of(user),
            sent_at=new.event_ts,
        )
        decision = await self._admission.decide(sender)
        if decision.is_admitted:
            return await self._put(new) is not None
        await self._admission.announce(decision, new.event)
        return False

    async def _change(self, room: str, event: Payload) -> None:
        """Apply an edit or a redaction to a message that no agent has claimed."""
        if (removed := redacted_by(event)) is not None:
            await withdraw_message(self._store, message_id(self._bot.user, room, removed))
            return
        edit = edit_of(event)
        if edit is None:
            return
        edited = message_id(self._bot.user, room, edit[0])
        found = await find_message(self._store, edited)
        # Everybody can send an edit; it counts only from the sender of the message.
        if found is None or isinstance(found, FinishedEvent):
            return
        if sender_id_of(found.event) == event.get("sender"):
            await edit_message(self._store, edited, text_of_content(edit[1]))

    async def _encrypted_message(self, room: str, event: Payload) -> None:
        """Say once per room that encrypted messages cannot be read: in the log, and to a person."""
        if room in self._encrypted or len(self._encrypted) >= MOST_ENCRYPTED:
            return
        self._encrypted.add(room)
        log.warning(Entry(ROOM_ENCRYPTED, channel=CHANNEL, room=room))
        user, is_direct = str(event.get("sender")), await self._rooms.is_direct(room)
        sender = Sender(id=user, is_direct=is_direct, domain=domain_of(user))
        if is_direct and await self._admission.knows(sender):
            notice = self._to_person(room, sender) | {"kind": "response", "message": UNREADABLE}
            id_ = f"{CHANNEL}_encrypted_{self._bot.user}_{room}"
            await self._store.put([replace(response_event(notice), message_id=id_)])

    def _to_person(self, room: str, sender: Sender) -> Payload:
        """Return the part of a response that says where it goes."""
        return {
            "channel": CHANNEL,
            "account": self._bot.user,
            "conversation": Location(room).conversation,
            "sender": sender.name,
            "sender_id": sender.id,
        }

    async def _invitation(self, room: str, events: Sequence[Payload]) -> None:
        """Accept the invitation of a known person, or of a stranger who needs a pairing code."""
        invitation = next((one for one in events if self._is_own_membership(one, "invite")), None)
        if invitation is None:
            return
        inviter = str(invitation.get("sender") or "")
        is_direct = content_of(invitation).get("is_direct") is True
        own = [content_of(one) for one in events if one.get("state_key") == inviter]
        sender = Sender(
            id=inviter,
            name=str(next((one["displayname"] for one in own if one.get("displayname")), inviter)),
            conversation=Location(room).conversation,
            is_direct=is_direct,
            is_mentioned=True,
            group=None if is_direct else room,
            domain=domain_of(inviter),
        )
        if is_direct:
            decision = await self._admission.decide(sender)
        else:
            # A stranger gets no code in a room, where all would see it.
            decision = Decision(is_admitted=await self._admission.knows(sender))
        await self._answer_invitation(room, sender, decision)

    async def _answer_invitation(self, room: str, sender: Sender, decision: Decision) -> None:
        is_welcome = decision.is_admitted or decision.notice is not None
        try:
            if not is_welcome:
                log.info(Entry(INVITATION_REFUSED, channel=CHANNEL, room=room, sender=sender.id))
                return await self.homeserver.leave(room)
            await self.homeserver.join(room)
        except NotNow:
            raise
        except (Undeliverable, Refusal) as error:
            # The room is gone, or its servers are.
            log.warning(Entry(INVITATION_FAILED, channel=CHANNEL, room=room, error=error))
            return None
        return await self._admission.announce(decision, self._to_person(room, sender))


def domain_of(user: str) -> str:
    """Return the server of a user id, @name:server."""
    return user.partition(":")[2]


def _previous_membership(event: Payload) -> object:
    unsigned = event.get("unsigned")
    previous = unsigned.get("prev_content") if isinstance(unsigned, dict) else None
    return previous.get("membership") if isinstance(previous, dict) else None


def _rooms(synced: Payload, membership: str) -> list[tuple[str, Payload]]:
    rooms = synced.get("rooms")
    found = rooms.get(membership) if isinstance(rooms, dict) else None
    pairs = found.items() if isinstance(found, dict) else ()
    return [(room, one) for room, one in pairs if isinstance(one, dict)]


async def _all(work: Iterable[Awaitable[int]]) -> list[int]:
    """Wait for all, then raise the first error: nothing may run on while a sync is repeated."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]

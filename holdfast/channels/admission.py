"""Admission: which senders a channel accepts messages from."""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from datetime import datetime

from holdfast.channels.base import response_event
from holdfast.message import Payload
from holdfast.queue.store import Store
from holdfast.settings.channels.table import ChannelTable
from holdfast.settings.channels.table import Pairing as PairingPolicy
from holdfast.store.bot_counts import BotCounts
from holdfast.store.pairing import (
    ID_LENGTH,
    MOST_REQUESTS,
    Pairing,
    open_pairings,
    request_pairing,
)
from holdfast.telemetry import PAIRING_FULL
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

ANNOUNCED_CODES = 1000
"""Maximum number of pairing codes that this process remembers, so as to send each only once."""
DOMAIN = ("*@", "*:")
"""Prefixes of list entries that name a whole domain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """The author of a message, with all that admission depends on."""

    id: str
    name: str = ""
    conversation: str = ""
    is_direct: bool = True
    is_bot: bool = False
    is_mentioned: bool = False
    """Whether the message addresses our bot, by a mention or as a reply to it."""
    group: str | None = None
    """Id of the room, chat or server of a message that is not direct."""
    domain: str | None = None
    """Domain of an e-mail address or of a Matrix id."""
    sent_at: datetime | None = None
    """The platform's time of the message. Messages from before an approval are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The lists and the pairing policy of one channel."""

    pairing: PairingPolicy = "code"
    allow: frozenset[str] = frozenset()
    deny: frozenset[str] = frozenset()
    allow_groups: frozenset[str] = frozenset()
    deny_groups: frozenset[str] = frozenset()
    bots: bool = False
    groups: str = "mention"

    def denies(self, sender: Sender) -> bool:
        return (
            _is_listed(sender, self.deny)
            or sender.group in self.deny_groups
            or (bool(self.allow_groups) and not sender.is_direct and not self._trusts(sender))
        )

    def is_addressed(self, sender: Sender) -> bool:
        return sender.is_direct or sender.is_mentioned or self.groups == "all"

    def admits(self, sender: Sender) -> bool:
        """Return whether lists or open pairing admit a sender who is not denied."""
        if _is_listed(sender, self.allow) or (not sender.is_direct and self._trusts(sender)):
            return True
        if self.pairing == "open":
            return not self.allow
        return self.pairing == "code" and sender.is_bot and self.bots

    @property
    def allows_bots(self) -> bool:
        """Whether messages of bots may be answered."""
        return self.bots or bool(self.allow)

    def allows_bot(self, sender: Sender) -> bool:
        return self.bots or _is_listed(sender, self.allow)

    def _trusts(self, sender: Sender) -> bool:
        return sender.group in self.allow_groups


def rules_of(table: ChannelTable, pairing: PairingPolicy) -> Rules:
    """Return the rules of a table; `pairing` is the setting for tables without their own."""
    return Rules(
        pairing=table.pairing or pairing,
        allow=_names(table.allow),
        deny=_names(table.deny),
        allow_groups=frozenset(table.allow_groups),
        deny_groups=frozenset(table.deny_groups),
        bots=table.bots,
        groups=table.groups,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether a message is accepted, and the reason if not."""

    is_admitted: bool
    reason: str = ""
    notice: str | None = None
    """Text with the pairing code, to send once to the conversation."""
    code: str | None = field(default=None, repr=False)


ADMITTED = Decision(is_admitted=True)


class Admission:
    """Decides for one channel whose messages are stored."""

    def __init__(self, store: Store, channel: str, rules: Rules) -> None:
        self._store = store
        self._channel = channel
        self._rules = rules
        self._bots = BotCounts(store, channel)
        self._announced: OrderedDict[str, None] = OrderedDict()
        self._is_full = False

    async def decide(self, sender: Sender) -> Decision:
        """Decide about one message. Call it for every message, even without a mention of the bot.

        Any message of a person resets the count of bot messages in its conversation."""
        rules = self._rules
        if not sender.is_bot:
            if rules.allows_bots:
                await self._bots.reset(sender.conversation)
        elif not rules.allows_bot(sender):
            return _refuse("bots are ignored")
        if rules.denies(sender):
            return _refuse("on a deny-list, or not on the list of groups")
        if not rules.is_addressed(sender):
            return _refuse("the bot is not mentioned")
        if sender.is_bot and not await self._bots.count(sender.conversation):
            return _refuse("too many messages of bots without one of a person")
        if rules.admits(sender):
            return ADMITTED
        return await self._decide_about_stranger(sender)

    async def knows(self, sender: Sender) -> bool:
        """Return whether a sender is admitted, without giving a stranger a code."""
        if self._rules.denies(sender):
            return False
        return self._rules.admits(sender) or await self._approval(sender) is not None

    async def announce(self, decision: Decision, payload: Payload) -> None:
        """Send the notice of a decision through the outbox, once over all processes.

        `payload` is that of the message that was refused."""
        if decision.notice is None or decision.code is None:
            return
        keys = [key for key in payload if key not in ("kind", "message", "files")]
        answer = {key: payload[key] for key in keys} | {
            "kind": "response",
            "channel": self._channel,
            "message": decision.notice,
        }
        id_ = f"pairing_{self._channel}_{decision.code}"
        await self._store.put([replace(response_event(answer), message_id=id_)])
        self._announced[decision.code] = None
        if len(self._announced) > ANNOUNCED_CODES:
            self._announced.popitem(last=False)

    async def _decide_about_stranger(self, sender: Sender) -> Decision:
        if not sender.id or len(sender.id) > ID_LENGTH or not sender.id.isprintable():
            return _refuse("the id of the sender is not usable")
        pairings = open_pairings(self._store)
        known = await pairings.find(self._channel, sender.id)
        if known is not None and known.approved_at is not None:
            is_early = sender.sent_at is not None and sender.sent_at < known.approved_at
            return _refuse("sent before the sender was approved") if is_early else ADMITTED
        if self._rules.pairing != "code" or sender.is_bot:
            return _refuse("not on a list")
        request = known or await request_pairing(pairings, self._channel, sender.id, sender.name)
        if request is None:
            self._log_full()
            return _refuse("too many strangers wait for approval")
        self._is_full = False
        return _pair(request, is_announced=request.code in self._announced)

    async def _approval(self, sender: Sender) -> datetime | None:
        known = await open_pairings(self._store).find(self._channel, sender.id)
        return None if known is None else known.approved_at

    def _log_full(self) -> None:
        """Log once that the channel gives no further codes."""
        if not self._is_full:
            log.warning(Entry(PAIRING_FULL, channel=self._channel, most=MOST_REQUESTS))
        self._is_full = True


def _pair(request: Pairing, *, is_announced: bool) -> Decision:
    code = request.code
    text = (
        f"I do not know you yet. Your pairing code is {code}. Ask the operator of this bot to run"
        f" `holdfast pairing approve {code}` within an hour, then send your message again."
    )
    notice = None if is_announced else text
    return Decision(is_admitted=False, reason="waits for approval", notice=notice, code=code)


def _refuse(reason: str) -> Decision:
    return Decision(is_admitted=False, reason=reason)


def _is_listed(sender: Sender, names: frozenset[str]) -> bool:
    if sender.id in names:
        return True
    return sender.domain is not None and f"*@{sender.domain.lower()}" in names


def _names(listed: tuple[str, ...]) -> frozenset[str]:
    """Normalise a list: *:example.org, as Matrix writes it, becomes *@example.org."""
    return frozenset(f"*@{name[2:].lower()}" if name[:2] in DOMAIN else name for name in listed)

"""Destination of a response: workspace, channel and thread, read from its conversation."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.channels.base import Undeliverable
from holdfast.message import Payload

_TS = r"[0-9]+\.[0-9]+"
_CONVERSATION = re.compile(rf"slack:(?:([TE][A-Z0-9]+):)?([CDGUW][A-Z0-9]+)(?::({_TS}))?")
_ANSWERED = re.compile(rf"slack_(?:([TE][A-Z0-9]+)_)?([CDG][A-Z0-9]+)_({_TS})")
_RECIPIENT = re.compile(r"[CDGUW][A-Z0-9]{2,}")


@dataclass(frozen=True, slots=True)
class Destination:
    """Target of a response in Slack.

    `channel` may be the id of a person, for direct messages. `after` is the time of the answered
    message; look-ups start there."""

    team: str | None
    channel: str
    thread_ts: str | None = None
    after: str | None = None

    @property
    def is_person(self) -> bool:
        return self.channel[0] in "UW"


def destination_of(response: Payload) -> Destination:
    """Read the destination of a response. Raises Undeliverable if it names none."""
    answered = _ANSWERED.match(str(response.get("message_id") or ""))
    found = _CONVERSATION.fullmatch(str(response.get("conversation") or ""))
    if found is None:
        return Destination(None, _recipient(response))
    team, channel, thread_ts = found.groups()
    if answered is None or answered[2] != channel:
        return Destination(team, channel, thread_ts, thread_ts)
    # A direct message outside a thread is a conversation of its own. Answer it outside a thread.
    outside = channel.startswith("D") and answered[3] == thread_ts
    return Destination(team or answered[1], channel, None if outside else thread_ts, answered[3])


def _recipient(response: Payload) -> str:
    """Return the channel or person of a proactive message."""
    for name in ("sender_id", "sender"):
        if _RECIPIENT.fullmatch(given := str(response.get(name) or "")):
            return given
    raise Undeliverable(
        "no_address",
        "the response names neither a conversation nor the id of a channel or a person",
    )

"""A text message of the bot: its destination, posting, finding it by its key, and editing it."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.channels.base import Undeliverable
from holdfast.channels.slack.errors import Refusal
from holdfast.channels.slack.manifest import CUSTOMIZE_SCOPE
from holdfast.channels.slack.mrkdwn import mrkdwn
from holdfast.channels.slack.reader import messages
from holdfast.channels.slack.workspace import Workspace
from holdfast.channels.split import split
from holdfast.message import Payload
from holdfast.telemetry import SLACK_CUSTOMIZE_REFUSED, SLACK_LOOKUP_FAILED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

LONGEST_PART = 4000
"""Characters of one message."""
EVENT_TYPE = "holdfast_part"
LOOKUP_UNSUPPORTED = (
    "missing_scope",
    "not_allowed_token_type",
    "status_404",
    "status_405",
    "unknown_method",
)
"""Error codes of look-ups that never work.

Without them a part may be sent twice, and a turn gets no earlier messages."""
NOT_EDITABLE = (
    "cant_update_message",
    "edit_window_closed",
    "message_not_found",
    "missing_scope",
    "not_allowed_token_type",
)
"""Error codes of an edit after which the text is posted as a new message."""

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


@dataclass(frozen=True, slots=True)
class Post:
    """One message. Its key is stored in its metadata, so that it can be found again."""

    workspace: Workspace
    destination: Destination
    key: str
    profile: Payload
    """Name and icon under which it is posted."""
    since: str
    """Time before which it cannot have been posted."""
    blocks: Sequence[Payload] = ()
    """Its text and its buttons; none for a plain text."""

    async def post(self, text: str) -> str:
        """Post the message. Returns its `ts`."""
        answer = await self._post(
            {
                "channel": self.destination.channel,
                "text": text,
                "thread_ts": self.destination.thread_ts,
                "metadata": self._metadata,
                "unfurl_links": False,
                **({"blocks": self.blocks} if self.blocks else {}),
            }
        )
        return str(answer.get("ts"))

    async def edit(self, id: str, text: str) -> bool:
        """Replace the text of a message, and its key by ours. Returns False if it is too late."""
        try:
            await self.workspace.call(
                "chat.update",
                channel=self.destination.channel,
                ts=id,
                text=text,
                metadata=self._metadata,
            )
        except Refusal as refusal:
            if refusal.code not in NOT_EDITABLE:
                raise
            return False
        return True

    async def delete(self, id: str) -> None:
        """Delete a message, unless it is gone."""
        try:
            await self.workspace.call("chat.delete", channel=self.destination.channel, ts=id)
        except Refusal as refusal:
            if refusal.code not in (*NOT_EDITABLE, "cant_delete_message"):
                raise

    async def find(self, key: str, text: str | None = None) -> str | None:
        """Return the `ts` of the message with this key, or this text if a server keeps no keys."""
        where = self.workspace, self.destination.channel, self.destination.thread_ts
        try:
            # Read only the part of the history that can contain the message.
            async for message in messages(*where, oldest=self.since, include_all_metadata=True):
                if self._matches(message, key, text):
                    return str(message.get("ts"))
        except Refusal as refusal:
            log_unsupported(refusal, what=f"the part {key}")
        return None

    @property
    def _metadata(self) -> Payload:
        return {"event_type": EVENT_TYPE, "event_payload": {"key": self.key}}

    def _matches(self, message: Payload, key: str, text: str | None) -> bool:
        metadata = message.get("metadata") or {}
        if metadata.get("event_type") == EVENT_TYPE:
            return bool((metadata.get("event_payload") or {}).get("key") == key)
        # A server other than Slack may not return metadata. Then compare the text.
        bot = self.workspace.bot
        is_ours = bot is not None and bot.is_author(message)
        return is_ours and not metadata and text is not None and message.get("text") == text

    async def _post(self, message: Payload) -> Payload:
        """Post under the name and icon of the profile, if the app's scopes allow it."""
        if self.profile and self.workspace.can_customize:
            try:
                return await self.workspace.call(
                    "chat.postMessage", **message, **_customization(self.profile)
                )
            except Refusal as refusal:
                if refusal.code != "missing_scope":
                    raise
                self.workspace.can_customize = False
                log.warning(Entry(SLACK_CUSTOMIZE_REFUSED, scope=CUSTOMIZE_SCOPE, error=refusal))
        return await self.workspace.call("chat.postMessage", **message)


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


def texts_of(text: str) -> list[str]:
    """Return a text as Slack's messages: in its markup, and cut at its limit."""
    return split(mrkdwn(text), LONGEST_PART)


def log_unsupported(refusal: Refusal, *, what: str) -> None:
    """Log a refusal of an unsupported look-up; raise any other one, which may pass."""
    if refusal.code not in LOOKUP_UNSUPPORTED:
        raise refusal
    log.warning(Entry(SLACK_LOOKUP_FAILED, what=what, error=refusal))


def _customization(profile: Payload) -> Payload:
    icon = str(profile.get("icon") or "")
    kind = "icon_emoji" if icon.startswith(":") else "icon_url"
    return {"username": profile["name"], **({kind: icon} if icon else {})}

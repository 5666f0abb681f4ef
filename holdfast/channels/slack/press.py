"""Buttons in Slack: the blocks that show them, and what happens when somebody presses one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.channels.admission import Sender
from holdfast.channels.base import NotNow, Undeliverable
from holdfast.channels.buttons import Button, button_id, buttons_of, press
from holdfast.channels.slack.errors import Refusal, Unreachable
from holdfast.channels.slack.incoming import Bot, Permissions
from holdfast.channels.slack.post import destination_of
from holdfast.channels.slack.workspace import Workspace
from holdfast.channels.split import split
from holdfast.message import Payload
from holdfast.queue.event import Event
from holdfast.queue.store import Store
from holdfast.telemetry import SLACK_PRESS_NOT_SHOWN
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

LONGEST_SECTION = 3000
"""Characters of one block of text."""
CLOSED = "This question is closed."


@dataclass(frozen=True, slots=True, kw_only=True)
class Press:
    """A press of a button, as Slack reports it."""

    button: str
    room: str
    person: Payload
    message: Payload
    """The message that shows the button."""

    @property
    def user(self) -> str:
        return str(self.person.get("id") or "")


def press_of(body: Payload) -> Press | None:
    """Read a press; None if the payload reports something else."""
    match body:
        case {
            "type": "block_actions",
            "actions": [{"action_id": str(button)}, *_],
            "channel": {"id": str(room)},
            "user": dict(person),
            "message": dict(message),
        }:
            return Press(button=button, room=room, person=person, message=message)
    return None


async def take_press(store: Store, workspace: Workspace, pressed: Press) -> Button | None:
    """Send the signal of a button. Returns None if the person may not, or the question is closed.

    Slack does not report a press again, so a failure shows the person a warning."""
    bot = await workspace.ready()
    if not _is_allowed(pressed, bot, workspace.access.permissions):
        return None

    def is_here(response: Payload) -> bool:
        destination = destination_of(response)
        return destination.channel == pressed.room and destination.team in (None, bot.team)

    return await press(store, pressed.button, "slack", Sender(id=pressed.user), is_here)


def _is_allowed(pressed: Press, bot: Bot, permissions: Permissions) -> bool:
    """Return whether the person may write to the bot in this channel."""
    event = {"user": pressed.user, "channel": pressed.room, "team": pressed.person.get("team_id")}
    is_external = bot.is_external(event, is_shared=False)
    return permissions.allows(event) and (permissions.external or not is_external)


async def show_press(workspace: Workspace, pressed: Press, button: Button | None) -> None:
    """Replace the buttons by the choice, or tell the person that the question is closed."""
    try:
        if button is None:
            thread_ts = pressed.message.get("thread_ts")
            given = {"user": pressed.user, "thread_ts": thread_ts, "text": CLOSED}
            await workspace.call("chat.postEphemeral", channel=pressed.room, **given)
        else:
            edit = _without_buttons(pressed, button)
            await workspace.call("chat.update", channel=pressed.room, **edit)
    except (NotNow, Refusal, Undeliverable, Unreachable) as error:
        # The signal is stored. Buttons that stay visible do no harm.
        log.info(Entry(SLACK_PRESS_NOT_SHOWN, error=error))


def _without_buttons(pressed: Press, button: Button) -> Payload:
    """Return the edit that shows the choice instead of the buttons."""
    shown = pressed.message
    choice = f"*{button.label}* – <@{pressed.user}>"
    kept = [block for block in shown.get("blocks") or () if block.get("type") != "actions"]
    text = f"{shown.get('text') or ''}\n{choice}"
    return {"ts": shown.get("ts"), "text": text, "blocks": [*kept, _section(choice)]}


def blocks_of(response: Event, text: str) -> list[Payload]:
    """Return the text and the buttons of a response as blocks; none if it has no buttons."""
    buttons = buttons_of(response.event)
    if not buttons:
        return []
    elements = [_button(button_id(response, nth), one) for nth, one in enumerate(buttons)]
    texts = map(_section, split(text, LONGEST_SECTION))
    return [*texts, {"type": "actions", "elements": elements}]


def _section(text: str) -> Payload:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def _button(id: str, button: Button) -> Mapping[str, object]:
    label = {"type": "plain_text", "text": button.label, "emoji": True}
    return {"type": "button", "action_id": id, "text": label}

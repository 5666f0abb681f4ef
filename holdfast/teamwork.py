"""What agents make of each other's help: the tags of a reply become messages, lines of a room, and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from holdfast.attachments import Attachments
from holdfast.budget import BUDGET, FURTHER
from holdfast.event import ChatMessage, NewEvent, Payload, Turn, written_of
from holdfast.room import copies
from holdfast.router import Route, Routing
from holdfast.tags import Tag, tags, without


@dataclass(frozen=True, slots=True)
class Shared:
    """A reply taken apart: what is left for whoever asked, and what goes elsewhere."""

    text: str
    files: tuple[str, ...] = ()
    emits: tuple[NewEvent, ...] = ()
    lines: tuple[ChatMessage, ...] = ()

    @property
    def is_for_others_alone(self) -> bool:
        return bool(self.emits or self.lines) and not self.text and not self.files


class Teamwork:
    """Reads the tags of replies; one that means nobody or nothing stays in the text."""

    def __init__(self, routing: Routing, attachments: Attachments) -> None:
        self._routing = routing
        self.attachments = attachments

    async def share(self, turn: Turn, text: str) -> Shared:
        """Take a reply apart; tags that mean nobody and nothing stay in its text."""
        if "[" not in text or not (found := tags(text)):
            return Shared(text)
        paths = await self.attachments.tagged(turn, text, found)
        taken = {tag: meant for tag in found if (meant := self._meant(turn, tag, paths))}
        if not taken:
            return Shared(text)
        rest = without(text, taken)
        files = tuple(name for tag, names in taken.items() if tag.kind == "file" for name in names)
        lines = tuple(
            ChatMessage(team_id=team, from_agent=turn.agent, message=tag.text)
            for tag, teams in taken.items()
            if tag.kind == "room"
            for team in teams
        )
        return Shared(rest, files, _within_budget(_named(turn, self._messages(turn, taken, rest))), lines)

    def _meant(self, turn: Turn, tag: Tag, paths: Mapping[Tag, str]) -> list[str]:
        """The ids of teammates or teams, or the path of a file, that a tag means."""
        if not tag.text:
            return []
        if tag.kind == "file":
            return [paths[tag]] if tag in paths else []
        teams = self._teams(turn)
        known = teams if tag.kind == "room" else [mate for id_ in teams for mate in self._routing.teams[id_].agents]
        ids = {id_.lower(): id_ for id_ in reversed(known) if tag.kind == "room" or id_ != turn.agent}
        return list(dict.fromkeys(ids[name.lower()] for name in tag.names if name.lower() in ids))

    def _teams(self, turn: Turn) -> list[str]:
        """The team by which the message came, else all that the agent belongs to."""
        mine = [id_ for id_, team in self._routing.teams.items() if turn.agent in team.agents]
        return [turn.team] if turn.team in mine else mine

    def _messages(self, turn: Turn, taken: dict[Tag, list[str]], rest: str) -> Iterator[NewEvent]:
        origin = origin_of(turn)
        for tag, meant in taken.items():
            for id_ in meant:
                if tag.kind == "room":
                    max_attempts = turn.primary.max_attempts
                    yield from copies(self._routing, id_, turn.agent, tag.text, origin, max_attempts)
                elif tag.kind == "mate":
                    yield self._to_mate(turn, id_, tag.text, rest, origin)

    def _to_mate(self, turn: Turn, mate: str, text: str, rest: str, origin: Payload) -> NewEvent:
        """The message is marked as from whom; its answer goes to the user who asked."""
        team = next(id_ for id_ in self._teams(turn) if mate in self._routing.teams[id_].agents)
        body = f"{rest}\n\nDirected to you:\n{text}" if rest else text
        message = f"[Message from teammate @{turn.agent}]\n{body}"
        return self._routing.event(
            {"kind": "message", **origin, "message": message, "from_agent": turn.agent},
            Route(mate, team),
            turn.conversation,
            message_id=None,
            max_attempts=turn.primary.max_attempts,
        )


def origin_of(turn: Turn) -> Payload:
    """Who asked, where and what: carried along, however often a message is handed on."""
    event = turn.event
    origin: Payload = {
        "channel": turn.channel,
        "sender": turn.sender,
        "sender_id": event.get("sender_id" if "kind" in event else "user"),
        "conversation": turn.conversation,
        "origin_id": event.get("origin_id") or turn.message_id,
        "origin_message": event.get("origin_message") or written_of(event),
    }
    if len(answers := turn.answers) > 1:
        origin["origin_ids"] = answers
    return origin | ({"origin_room": event["origin_room"]} if "origin_room" in event else {})


def _named(turn: Turn, messages: Iterator[NewEvent]) -> list[NewEvent]:
    """Ids from the parent's and the position, so that a repeated turn emits the same."""
    source = turn.message_id or turn.primary.id
    return [
        replace(new, message_id=f"{'internal' if new.event['kind'] == 'message' else 'chat'}_{source}/{nth}")
        for nth, new in enumerate(messages, 1)
    ]


def _within_budget(messages: list[NewEvent]) -> tuple[NewEvent, ...]:
    """No more than the budget and one, which will be stopped and say how many more there were."""
    if len(messages) <= BUDGET + 1:
        return tuple(messages)
    last = messages[BUDGET]
    further = len(messages) - BUDGET - 1
    return (*messages[:BUDGET], replace(last, event=last.event | {FURTHER: further}))

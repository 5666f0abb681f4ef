"""What agents make of each other's help: the tags of a reply become messages, lines of a room, and files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from holdfast.agents.base import Reply
from holdfast.agents.turn import HANDOFF, Handoff, Turn
from holdfast.message import Payload, own_workspace, subject_of, written_of
from holdfast.queue.event import NewEvent
from holdfast.queue.record import ChatMessage
from holdfast.queue.store import Store
from holdfast.routing.files import Attachments
from holdfast.routing.limits import BUDGET, FURTHER, STOPPED_TAGS, TAGS, used_budget
from holdfast.routing.rooms import copies
from holdfast.routing.router import Route, Routing
from holdfast.routing.tags import Tag, tags, without

LONG = 50_000
"""Characters from which on a reply is read in a thread."""
LONGEST_REST = 10_000
"""Characters that a dead letter keeps of the tags that were not followed."""

Meant = dict[Tag, list[str]]
"""The ids of teammates or teams, or the path of a file, that tags mean."""


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

    @property
    def spent(self) -> int:
        """Lines and files, which count towards the budget beside messages."""
        return len(self.lines) + len(self.files)


class Teamwork:
    """Reads the tags of replies; one that means nobody or nothing stays in the text."""

    def __init__(self, routing: Routing, attachments: Attachments, store: Store) -> None:
        self._routing = routing
        self._attachments = attachments
        self._store = store

    async def share(self, turn: Turn, reply: Reply) -> Shared:
        """Take a reply apart, within the budget of its root message."""
        text = reply.text
        # A long text may hold tens of thousands of tags, which must not hold up other turns.
        found = tags(text) if len(text) < LONG else await asyncio.to_thread(tags, text)
        if not found and not reply.files:
            return Shared(text)
        attached = await self._attachments.attached(turn, reply.files[:BUDGET])
        self._attachments.refuse(turn, reply.files[BUDGET:])
        meant = await self._meant(turn, text, found)
        if not meant and not attached:
            return Shared(text)
        used = await used_budget(self._store, turn.primary)
        files = attached[: max(BUDGET - used, 0)]
        self._attachments.refuse(turn, attached[len(files) :])
        return self._followed(turn, text, meant, files, used + len(files))

    def _followed(
        self, turn: Turn, text: str, meant: Meant, attached: tuple[str, ...], used: int
    ) -> Shared:
        """Follow tags until one too many; lines and files only as long as the budget lasts."""
        origin, rest = origin_of(turn), without(text, meant)
        files, lines, messages, stopped = (
            list(attached),
            list[ChatMessage](),
            list[NewEvent](),
            list[Tag](),
        )
        for nth, (tag, ids) in enumerate(meant.items()):
            if nth >= TAGS or (tag.kind != "mate" and used >= BUDGET):
                stopped.append(tag)
                continue
            new = list(self._messages(turn, tag, ids, rest, origin))
            posted = [_line(turn, tag, id_) for id_ in ids]
            messages += new
            lines += posted if tag.kind == "room" else ()
            files += ids if tag.kind == "file" else ()
            used += len(new) + (0 if tag.kind == "mate" else len(ids))
        emits = _within_budget(_named(turn, messages), len(stopped))
        if stopped and len(messages) <= BUDGET:
            emits += (self._rest(turn, text, stopped, origin),)
        return Shared(rest, tuple(files), emits, tuple(lines))

    def _rest(self, turn: Turn, text: str, stopped: Sequence[Tag], origin: Payload) -> NewEvent:
        """A message to the agent itself with the tags that were not followed; it ends as a dead letter."""
        over = "".join(text[tag.start : tag.end] for tag in stopped[:LONGEST_REST])[:LONGEST_REST]
        message = f"[{len(stopped)} tags of your reply were not followed]\n{over}"
        return self._routing.event(
            {
                "kind": "message",
                **origin,
                "message": message,
                "from_agent": turn.agent,
                STOPPED_TAGS: len(stopped),
            },
            Route(turn.agent, turn.team),
            turn.conversation,
            message_id=f"internal_{turn.message_id or turn.primary.id}/rest",
            max_attempts=turn.primary.max_attempts,
        )

    async def _meant(self, turn: Turn, text: str, found: Sequence[Tag]) -> Meant:
        """All tags that mean something. Of files only so many are looked for as can be sent; the rest counts, too."""
        named = [tag for tag in found if tag.kind == "file" and tag.text]
        paths = await self._attachments.tagged(turn, text, named[:TAGS])
        meant: Meant = {tag: [path] for tag, path in paths.items()} | {
            tag: [] for tag in named[TAGS:]
        }
        teams = self._teams(turn)
        rooms = {id_.lower(): id_ for id_ in reversed(teams)}
        mates = {
            mate.lower(): mate
            for id_ in reversed(teams)
            for mate in self._routing.teams[id_].agents
            if mate != turn.agent
        }
        for tag in found:
            if tag.kind != "file" and tag.text:
                known = rooms if tag.kind == "room" else mates
                if ids := list(
                    dict.fromkeys(
                        known[name.lower()] for name in tag.names if name.lower() in known
                    )
                ):
                    meant[tag] = ids
        return dict(sorted(meant.items(), key=lambda one: one[0].start))

    def _teams(self, turn: Turn) -> list[str]:
        """The team by which the message came, else all that the agent belongs to."""
        mine = [id_ for id_, team in self._routing.teams.items() if turn.agent in team.agents]
        return [turn.team] if turn.team in mine else mine

    def _messages(
        self, turn: Turn, tag: Tag, ids: Sequence[str], rest: str, origin: Payload
    ) -> Iterator[NewEvent]:
        for id_ in ids:
            if tag.kind == "room":
                line, max_attempts = _line(turn, tag, id_), turn.primary.max_attempts
                yield from copies(self._routing, line, origin, max_attempts, speaker=turn.agent)
            elif tag.kind == "mate":
                yield self._to_mate(turn, id_, tag.text, rest, origin)

    def _to_mate(self, turn: Turn, mate: str, text: str, rest: str, origin: Payload) -> NewEvent:
        """Build a teammate's message, marked as from whom; its answer goes to the user who asked."""
        team = next(id_ for id_ in self._teams(turn) if mate in self._routing.teams[id_].agents)
        payload: Payload = {
            "kind": "message",
            **origin,
            "message": Handoff(turn.agent, rest).frame(text),
            "from_agent": turn.agent,
            HANDOFF: {"shared": rest},
        }
        return self._routing.event(
            payload,
            Route(mate, team, text),
            turn.conversation,
            message_id=None,
            max_attempts=turn.primary.max_attempts,
        )


def _line(turn: Turn, tag: Tag, team: str) -> ChatMessage:
    """The line that a tag adds to a team's room; its key is the same in a repeated turn."""
    return ChatMessage(
        team_id=team,
        from_agent=turn.agent,
        message=tag.text,
        subject=subject_of(turn.event),
        key=f"line_{turn.message_id or turn.primary.id}/{tag.start}/{team}",
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
    further = {"origin_room": event["origin_room"]} if "origin_room" in event else {}
    return origin | further | own_workspace(event)


def _named(turn: Turn, messages: Sequence[NewEvent]) -> list[NewEvent]:
    """Ids from the parent's and the position, so that a repeated turn emits the same."""
    source = turn.message_id or turn.primary.id
    return [
        replace(
            new,
            message_id=f"{'internal' if new.event['kind'] == 'message' else 'chat'}_{source}/{nth}",
        )
        for nth, new in enumerate(messages, 1)
    ]


def _within_budget(messages: Sequence[NewEvent], stopped: int) -> tuple[NewEvent, ...]:
    """At most the budget and one message more, which will be stopped and says how many others are with it."""
    further = max(len(messages) - BUDGET - 1, 0) + stopped
    if len(messages) <= BUDGET or not further:
        return tuple(messages)
    last = messages[BUDGET]
    return (
        *messages[:BUDGET],
        replace(last, event=last.event | {FURTHER: further, STOPPED_TAGS: stopped}),
    )

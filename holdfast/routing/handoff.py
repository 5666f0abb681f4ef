"""Hand-offs between agents: the tags of a reply become messages, room lines and files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from holdfast.agents.base import Reply
from holdfast.agents.turn import HANDOFF, Handoff, Turn
from holdfast.chat import ChatMessage
from holdfast.message import ROOM, Payload, own_workspace, subject_of, text_of, written_of
from holdfast.queue.event import Event, NewEvent, payload_to_show
from holdfast.queue.store import Store
from holdfast.routing.files import Attachments
from holdfast.routing.limits import BUDGET, FURTHER, STOPPED_TAGS, TAGS, used_budget
from holdfast.routing.rooms import copies, line_text
from holdfast.routing.router import Route, Routing
from holdfast.routing.tags import Tag, length_before_tags, tags, without
from holdfast.routing.uploads import uploads_of

LONG = 50_000
"""Length in characters from which a reply is parsed in a thread."""
LONGEST_REST = 10_000
"""Characters that a dead letter keeps of tags that were not followed."""

Targets = dict[Tag, list[str]]
"""The teammates, the teams or the file path that each tag names."""


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A reply in parts: the text and files for the sender, and what goes to teammates and rooms."""

    text: str
    files: tuple[str, ...] = ()
    emits: tuple[NewEvent, ...] = ()
    lines: tuple[ChatMessage, ...] = ()

    @property
    def is_for_others_only(self) -> bool:
        return bool(self.emits or self.lines) and not self.text and not self.files

    @property
    def spent(self) -> int:
        """The number of lines and files, which count towards the budget as messages do."""
        return len(self.lines) + len(self.files)


class Teamwork:
    """Parses the tags of replies; a tag that names nobody or nothing stays in the text."""

    def __init__(self, routing: Routing, attachments: Attachments, store: Store) -> None:
        self._routing = routing
        self._attachments = attachments
        self._store = store

    async def parse(self, turn: Turn, reply: Reply) -> ParsedReply:
        """Parse a reply, within the budget of its root message."""
        text = reply.text
        # A long text may hold tens of thousands of tags, which would block other turns.
        found = tags(text) if len(text) < LONG else await asyncio.to_thread(tags, text)
        if not found and not reply.files:
            return ParsedReply(text)
        attached = await self._attachments.attach_files(turn, reply.files[:BUDGET])
        self._attachments.refuse(turn, reply.files[BUDGET:])
        targets = await self._find_targets(turn, text, found)
        if not targets and not attached:
            return ParsedReply(text)
        used = await used_budget(self._store, turn.primary)
        files = attached[: max(BUDGET - used, 0)]
        self._attachments.refuse(turn, attached[len(files) :])
        return self._follow_tags(turn, text, targets, files, used + len(files))

    def visible_length(self, agent: str) -> Callable[[str], int]:
        """Return a function that tells how much of an agent's unfinished text can be shown.

        A tag is not shown, nor the text behind it: both change when the tag is followed."""
        has_mates = any(agent in team.agents for team in self._routing.teams.values())
        return partial(length_before_tags, has_mates=has_mates)

    def _follow_tags(
        self, turn: Turn, text: str, targets: Targets, attached: tuple[str, ...], used: int
    ) -> ParsedReply:
        """Follow tags up to the limit; room lines and files only within the budget."""
        origin, rest = origin_of(turn), without(text, targets)
        files, lines, messages, stopped = (
            list(attached),
            list[ChatMessage](),
            list[NewEvent](),
            list[Tag](),
        )
        for nth, (tag, ids) in enumerate(targets.items()):
            if nth >= TAGS or (tag.kind != "mate" and used >= BUDGET):
                stopped.append(tag)
                continue
            new = list(self._messages(turn, tag, ids, rest, origin))
            posted = [_line(turn, tag, id_) for id_ in ids]
            messages += new
            lines += posted if tag.kind == "room" else ()
            files += ids if tag.kind == "file" else ()
            used += len(new) + (0 if tag.kind == "mate" else len(ids))
        emits = _within_budget(_with_ids(turn, messages), len(stopped))
        if stopped and len(messages) <= BUDGET:
            emits += (self._rest(turn, text, stopped, origin),)
        return ParsedReply(rest, tuple(files), emits, tuple(lines))

    def _rest(self, turn: Turn, text: str, stopped: Sequence[Tag], origin: Payload) -> NewEvent:
        """Build a message to the agent itself with the tags that were not followed.

        It ends as a dead letter, which a person can retry."""
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

    async def _find_targets(self, turn: Turn, text: str, found: Sequence[Tag]) -> Targets:
        """Return the targets of all tags that have one.

        Only as many files are looked up as can be sent; the rest still counts."""
        named = [tag for tag in found if tag.kind == "file" and tag.text]
        paths = await self._attachments.attach_tagged(turn, text, named[:TAGS])
        targets: Targets = {tag: [path] for tag, path in paths.items()} | {
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
                    targets[tag] = ids
        return dict(sorted(targets.items(), key=lambda one: one[0].start))

    def _teams(self, turn: Turn) -> list[str]:
        """Return the team that the message came by, else all teams of the agent."""
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
        """Build a teammate's message; its answer goes to the person who asked."""
        team = next(id_ for id_ in self._teams(turn) if mate in self._routing.teams[id_].agents)
        payload: Payload = {
            "kind": "message",
            **origin,
            "message": Handoff(turn.agent, rest).frame(text),
            "from_agent": turn.agent,
            HANDOFF: {"shared": rest},
        }
        route, attempts = Route(mate, team, text), turn.primary.max_attempts
        return self._routing.event(
            payload, route, turn.conversation, message_id=None, max_attempts=attempts
        )


def _line(turn: Turn, tag: Tag, team: str) -> ChatMessage:
    """Build the room line of a tag; a repeated turn gives it the same key."""
    return ChatMessage(
        team_id=team,
        from_agent=turn.agent,
        message=tag.text,
        subject=subject_of(turn.event),
        key=f"line_{turn.message_id or turn.primary.id}/{tag.start}/{team}",
    )


def shown_text(event: Event) -> str:
    """Return the text of a message for people: without the frame that its agent gets."""
    payload = payload_to_show(event)
    if HANDOFF in payload:
        return text_of(event)
    return line_text(payload) if payload.get("kind") == ROOM else written_of(payload)


def origin_of(turn: Turn) -> Payload:
    """Return the sender, conversation and text of the first message, kept over all hand-offs."""
    event = turn.event
    origin: Payload = {
        "channel": turn.channel,
        "sender": turn.sender,
        "sender_id": event.get("sender_id" if "kind" in event else "user"),
        "conversation": turn.conversation,
        "origin_id": event.get("origin_id") or turn.message_id,
        "origin_message": event.get("origin_message") or written_of(event),
    }
    further: Payload = {"origin_ids": answers} if len(answers := turn.answers) > 1 else {}
    further |= {"origin_room": event["origin_room"]} if "origin_room" in event else {}
    further |= {"files": uploads} if (uploads := uploads_of(event)) else {}
    return origin | further | own_workspace(event)


def _with_ids(turn: Turn, messages: Sequence[NewEvent]) -> list[NewEvent]:
    """Derive ids from the parent's id and the position, so that a repeated turn emits the same."""
    source = turn.message_id or turn.primary.id
    return [
        replace(
            new,
            message_id=f"{'internal' if new.event['kind'] == 'message' else 'chat'}_{source}/{nth}",
        )
        for nth, new in enumerate(messages, 1)
    ]


def _within_budget(messages: Sequence[NewEvent], stopped: int) -> tuple[NewEvent, ...]:
    """Keep as many messages as the budget allows, and one that is stopped in place of the rest."""
    further = max(len(messages) - BUDGET - 1, 0) + stopped
    if len(messages) <= BUDGET or not further:
        return tuple(messages)
    last = messages[BUDGET]
    return (
        *messages[:BUDGET],
        replace(last, event=last.event | {FURTHER: further, STOPPED_TAGS: stopped}),
    )

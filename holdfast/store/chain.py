"""A message and all that came of it: the messages handed on to teammates, and the responses.

The chain of a message is over when no live inbox or outbox event has its root. `read_chain` is the
one place that decides this; the API and `holdfast send --wait` both ask it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.message import channel_of, conversation_of
from holdfast.queue.event import Event, FinishedEvent, payload_to_show
from holdfast.queue.journal import Journal
from holdfast.queue.pages import PAGE_BYTES
from holdfast.queue.store import DEAD_OUTCOMES, Store
from holdfast.store.scoped import COLUMNS, FINISHED_COLUMNS, Dialect, dialect_of

MOST_RESPONSES = 1000
SEARCHED_RESPONSES = 1000
"""Finished responses that are searched for one that answers several messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A message with its status, its responses and the number of events that are still live."""

    message: Event
    status: str
    """pending, processing, waiting, completed or dead."""
    open: int
    """Live inbox and outbox events; 0 when the chain is over."""
    responses: Sequence[Event]
    """Responses of all agents in the chain, oldest first."""
    pending: frozenset[int]
    """Ids of the responses that are not delivered or acked yet."""
    journal: Journal = field(default_factory=Journal)
    """Steps and text of the message itself, without results."""

    @property
    def working(self) -> int:
        """Messages of the chain that agents still have to finish."""
        return self.open - len(self.pending)

    @property
    def is_over(self) -> bool:
        """Say whether nothing is live any more.

        The message is read before the rest of the chain: it may have ended in between, and then
        `open` is 0 while `status` is still that of a live message."""
        return self.open == 0 and self.status in ("completed", "dead")

    @property
    def own_responses(self) -> list[Event]:
        """Responses to the message itself, without those of teammates."""
        return [one for one in self.responses if _is_response_to(one, self.message)]


async def read_chain(store: Store, message_id: str) -> Chain | None:
    """Read a message of the inbox and all that came of it; None if it is unknown or discarded."""
    return await _ChainReader(store).read(message_id)


async def find_message(store: Store, message_id: str) -> Event | None:
    """Find a message of the inbox, live or finished; None if it is unknown or discarded."""
    return await _ChainReader(store).message(message_id)


async def read_related(store: Store, event: Event) -> tuple[list[int], list[int]]:
    """Return the ids of the messages of an event's chain, and of its responses, oldest first."""
    return await _ChainReader(store).related_ids(event)


@dataclass(frozen=True, slots=True)
class _Member:
    """A message of the chain."""

    id: int
    name: str
    is_live: bool


class _ChainReader:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._dialect: Dialect = dialect_of(store)

    async def read(self, message_id: str) -> Chain | None:
        message = await self.message(message_id)
        if message is None:
            return None
        # A message that was never claimed has no journal.
        journal = await self._store.journal(message.id, results=False) if message.claimed else None
        status = await self._status(message, journal)
        members, responses, pending = await self._of_root(message.root_id or message.id, message)
        if status == "completed" and not any(_is_response_to(one, message) for one in responses):
            # A turn that collected several messages answers them under the root of the first.
            root = await self._collected_root(message)
            if root is not None:
                members, responses, pending = await self._of_root(root, message)
        live = sum(member.is_live for member in members)
        return Chain(
            message=message,
            status=status,
            open=live + len(pending),
            responses=responses,
            pending=pending,
            journal=journal or Journal(),
        )

    async def related_ids(self, event: Event) -> tuple[list[int], list[int]]:
        root = event.root_id or event.id
        members = await self._members(root)
        responses = await self._response_ids(root, members, event)
        return sorted(member.id for member in members), responses

    async def message(self, message_id: str) -> Event | None:
        key = f"queue = 'inbox' and message_id = {self._mark('message_id')}"
        of_key = f"id = (select event_id from {self._table('message_key')} where {key})"
        live = await self._rows(
            f"select {COLUMNS} from {self._table('event')} where {of_key}", message_id=message_id
        )
        if live:
            return self._dialect.event(live[0])
        ended = await self._rows(
            f"select {FINISHED_COLUMNS} from {self._table('event_hist')}"
            f" where outcome <> 'discarded' and {of_key}",
            message_id=message_id,
        )
        return self._dialect.finished(ended[0]) if ended else None

    async def _status(self, message: Event, journal: Journal | None) -> str:
        return status_of(message, journal, await self._store.now())

    async def _of_root(
        self, root: int, message: Event
    ) -> tuple[list[_Member], list[Event], frozenset[int]]:
        members = await self._members(root)
        ids = await self._response_ids(root, members, message)
        live = await self._responses("event", ids)
        ended = await self._responses("event_hist", ids)
        # An ack between the two queries moves a response to history: it is in both, and acked.
        by_id = {event.id: event for event in (*live, *ended)}
        pending = {event.id for event in live} - {event.id for event in ended}
        return members, [by_id[id_] for id_ in sorted(by_id)], frozenset(pending)

    async def _members(self, root: int) -> list[_Member]:
        """Return the root message and the messages handed on from it, at any depth."""
        is_member = (
            f"id = {self._mark('root')} and queue = 'inbox'",
            f"root_id = {self._mark('root')} and queue = 'inbox' and hops > 0",
        )
        selects = [
            f"select id, message_id, {live} from {self._table(table)} where {condition}"
            for table, live in (("event", "true"), ("event_hist", "false"))
            for condition in is_member
        ]
        rows = await self._rows(" union all ".join(selects), root=root)
        found = {id_: _Member(id_, name or str(id_), bool(live)) for id_, name, live in rows}
        return list(found.values())

    async def _response_ids(
        self, root: int, members: Sequence[_Member], message: Event
    ) -> list[int]:
        """Return the ids of the members' responses: their keys begin with the keys of the members.

        Live ones are also found by their lane: an agent may have given a response another key."""
        keyed = await self._rows(
            f"select k.event_id, k.parent_id from {self._dialect.each.format('names')}"
            f" join {self._table('message_key')} as k on k.queue = 'outbox'"
            " and k.message_id >= names.value || '/' and k.message_id < names.value || '0'",
            names=self._dialect.array([member.name for member in members]),
        )
        parents = {member.id for member in members}
        ids = {id_ for id_, parent in keyed if parent in parents}
        in_lane = await self._rows(
            f"select id from {self._table('event')} where queue = 'outbox'"
            f" and lane = {self._mark('lane')} and root_id = {self._mark('root')}",
            lane=_lane(message),
            root=root,
        )
        return sorted(ids | {id_ for (id_,) in in_lane})

    async def _responses(self, table: str, ids: Sequence[int]) -> list[Event]:
        statement = f"select {COLUMNS} from {self._table(table)} where {self._dialect.ids}"
        page = await self._dialect.page(
            f"{statement} order by id",
            {"ids": self._dialect.array(ids)},
            MOST_RESPONSES,
            PAGE_BYTES,
        )
        return [self._dialect.event(row) for row in page]

    async def _collected_root(self, message: Event) -> int | None:
        """Return the root id of a response that lists this message among those it answers."""
        answers = self._dialect.answers
        rows = await self._rows(
            f"select root_id from {self._table('event')} where queue = 'outbox'"
            f" and lane = {self._mark('lane')} and {answers}"
            " union all"
            " select root_id from"
            f" (select root_id, event from {self._table('event_hist')} where queue = 'outbox'"
            f" and target = {self._mark('target')} and id > {self._mark('id')}"
            f" order by id limit {SEARCHED_RESPONSES}) as later where {answers}",
            lane=_lane(message),
            target=channel_of(payload_to_show(message)),
            id=message.id,
            message_id=message.message_id,
        )
        return next((root for (root,) in rows if root is not None), None)

    def _table(self, name: str) -> str:
        return f"{self._dialect.schema}{name}"

    def _mark(self, name: str) -> str:
        return self._dialect.mark.format(name)

    async def _rows(self, statement: str, **params: Any) -> Sequence[Any]:
        return await self._dialect.rows(statement, params)


def status_of(message: Event, journal: Journal | None, now: datetime) -> str:
    """Return pending, processing, waiting, completed or dead."""
    if isinstance(message, FinishedEvent):
        return "dead" if message.outcome in DEAD_OUTCOMES else "completed"
    is_due = message.vt <= now
    if message.fence > 0 and not is_due:
        return "processing"
    return "waiting" if journal is not None and journal.waits and not is_due else "pending"


def _lane(message: Event) -> str:
    """The lane of responses in the conversation of a message."""
    payload = payload_to_show(message)
    return f"{channel_of(payload)}/{conversation_of(payload)}"


def _is_response_to(response: Event, message: Event) -> bool:
    if response.parent_id == message.id:
        return True
    answered = payload_to_show(response).get("message_ids")
    return isinstance(answered, list) and message.message_id in answered

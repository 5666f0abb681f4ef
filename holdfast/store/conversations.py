"""Conversations that were begun by HTTP: their list, and their messages over all agents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from holdfast.chat import NewConversation
from holdfast.message import conversation_of, written_of
from holdfast.queue.event import Event, FinishedEvent, payload_to_show
from holdfast.queue.pages import Page
from holdfast.queue.store import DEAD_OUTCOMES, Store
from holdfast.store.scoped import (
    COLUMNS,
    FINISHED_COLUMNS,
    GREATEST_ID,
    Dialect,
    Scope,
    dialect_of,
)

MOST_UNREAD = 100
"""Unread answers that are counted."""
COLUMNS_OF_LIST = (
    "id", "conversation", "owner", "channel", "sender", "title", "pinned", "archived", "unread",
    "created_at", "updated_at",
)  # fmt: skip
ORIGIN = "case when line.origin = '' then line.message_id else line.origin end"
CURRENT = (
    "not exists (select 1 from {} as version"
    f" where version.message_id = {ORIGIN} and version.superseded)"
)
"""SQL condition that no later version replaced the message of a line; format it with a table."""
SEARCHED_EVENTS = 1000
"""Live events and dead letters that are searched for those of one conversation."""
HANDED_ON = ("internal_", "chat_")
"""Prefixes of the ids of messages that an agent wrote to another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A conversation in the list. `id` grows with every use."""

    id: int
    conversation: str
    owner: str
    channel: str
    sender: str
    title: str
    pinned: bool
    archived: bool
    unread: int
    """Answers after the newest line that its owner has seen, at most MOST_UNREAD."""
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationChange:
    """Changes of a conversation; None leaves a field as it is."""

    title: str | None = None
    pinned: bool | None = None
    archived: bool | None = None
    read_to: int | None = None
    """The newest line that its owner has seen. It never goes back."""


@dataclass(slots=True, kw_only=True)
class Line:
    """A message or an answer. `id` is None while a message is not in an agent's history yet."""

    id: int | None
    message_id: str
    role: str
    agent: str
    sender: str
    content: str
    created_at: datetime
    status: str = "completed"
    """pending, processing, completed or dead; answers are always completed."""
    event_id: int | None = None
    error: str | None = None
    origin: str = ""
    """Id of the person's message that led to it; its own id unless an agent wrote the message."""
    is_handoff: bool = field(init=False)

    def __post_init__(self) -> None:
        self.origin = self.origin or self.message_id
        self.is_handoff = self.role == "user" and self.message_id.startswith(HANDED_ON)


class Conversations:
    """The conversations in a store's database."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._dialect: Dialect = dialect_of(store)

    async def recent(
        self,
        scope: Scope,
        *,
        reader: str = "",
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
        **wanted: str | bool | None,
    ) -> Page[Conversation]:
        """List the conversations of a scope, latest first.

        `reader` is the owner for whom unread answers are counted. `wanted` are values that columns
        must have: channel, conversation, pinned or archived."""
        where, params = self._limits(scope)
        for name, value in wanted.items():
            if value is not None:
                where += f" and c.{name} = {self._mark(name)}"
                params[name] = value
        params |= {"before_id": _or(before_id, GREATEST_ID), "since_id": _or(since_id, 0)}
        params |= {"reader": reader, "known": self._dialect.array(list(await self.known_agents()))}
        columns = ", ".join(f"c.{name}" for name in COLUMNS_OF_LIST).replace(
            "c.unread", self._unread
        )
        found = await self._dialect.page(
            f"select {columns} from {self._table('conversation')} as c where {where}"
            f" and id < {self._mark('before_id')} and id > {self._mark('since_id')}"
            f" order by id desc limit {self._mark('limit')}",
            params | {"limit": limit},
            limit,
            most_bytes,
        )
        return found.map(self._conversation)

    async def find(
        self, conversation: str, scope: Scope, *, reader: str = ""
    ) -> Conversation | None:
        """Return a conversation as the reader sees it: the reader's row, else the latest row."""
        found = await self.recent(scope, reader=reader, limit=1000, conversation=conversation)
        own = [one for one in found if one.owner == reader]
        return next(iter(own or found), None)

    async def change(
        self, conversation: str, scope: Scope, change: ConversationChange, *, reader: str = ""
    ) -> None:
        """Change a conversation for its owners within a scope; `read_to` only for the reader."""
        where, params = self._limits(scope)
        read_to = f"cast({self._mark('read_to')} as bigint)"
        await self._dialect.write(
            f"update {self._table('conversation')} as c set"
            f" title = coalesce(cast({self._mark('title')} as text), title),"
            f" pinned = coalesce(cast({self._mark('pinned')} as bool), pinned),"
            f" archived = coalesce(cast({self._mark('archived')} as bool), archived),"
            f" read_to = case when owner = {self._mark('reader')} and {read_to} > read_to"
            f" then {read_to} else read_to end"
            f" where {where} and conversation = {self._mark('conversation')} returning id",
            params | asdict(change) | {"conversation": conversation, "reader": reader},
        )

    async def owners(self, conversation: str) -> dict[str, str]:
        """Return the channel of a conversation by each of its owners; empty if it is unknown."""
        rows = await self._dialect.rows(
            f"select owner, channel from {self._table('conversation')}"
            f" where conversation = {self._mark('conversation')}",
            {"conversation": conversation},
        )
        return dict(rows)

    async def has_line(self, scope: Scope, conversation: str, message_id: str) -> bool:
        """Say whether a message of a conversation is within the channels and agents of a scope."""
        owners = await self.owners(conversation)
        if scope.channels is not None and not set(owners.values()) <= set(scope.channels):
            return False
        agents = await self.known_agents() if scope.agents is None else scope.agents
        rows = await self._dialect.rows(
            f"select 1 from {self._table('agent_message')}"
            f" where agent_id in (select value from {self._dialect.each.format('agents')})"
            f" and conversation = {self._mark('conversation')}"
            f" and message_id = {self._mark('message_id')} limit 1",
            {
                "agents": self._dialect.array(list(agents)),
                "conversation": conversation,
                "message_id": message_id,
            },
        )
        return bool(owners) and bool(rows)

    async def lines(
        self,
        conversation: str,
        *,
        agents: Sequence[str] | None = None,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
        message_ids: Sequence[str] | None = None,
        oldest_first: bool = False,
    ) -> Page[Line]:
        """List the messages and answers in a conversation, newest first; `agents` limits them.

        Messages that are in no history yet are missing: `merge_unfinished` adds them. Superseded
        messages are left out, unless `message_ids` names the messages to list."""
        known = await self.known_agents() if agents is None else agents
        found = await self._dialect.page(
            "select id, message_id, role, agent_id, sender, content, created_at, origin"
            f" from {self._table('agent_message')} as line"
            f" where conversation = {self._mark('conversation')}"
            f" and {self._current if message_ids is None else self._among}"
            f" and agent_id in (select value from {self._dialect.each.format('agents')})"
            f" and id < {self._mark('before_id')} and id > {self._mark('since_id')}"
            f" order by id {'' if oldest_first else 'desc'} limit {self._mark('limit')}",
            {
                "conversation": conversation,
                "agents": self._dialect.array(list(known)),
                "before_id": _or(before_id, GREATEST_ID),
                "since_id": _or(since_id, 0),
                "limit": limit,
                **({} if message_ids is None else {"names": self._dialect.array(message_ids)}),
            },
            limit,
            most_bytes,
        )
        return found.map(self._line)

    async def versions(self, message_ids: Sequence[str]) -> dict[str, list[str]]:
        """Return all versions of each message that has several, oldest first."""
        table = self._table("message_version")
        rows = await self._dialect.rows(
            f"select message_id, original from {table} where original in"
            f" (select original from {table} where message_id in"
            f" (select value from {self._dialect.each.format('names')}))"
            " order by case when message_id = original then 0 else 1 end, created_at,"
            " case when superseded then 0 else 1 end",
            {"names": self._dialect.array(list(dict.fromkeys(message_ids)))},
        )
        groups: dict[str, list[str]] = {}
        for message_id, original in rows:
            groups.setdefault(original, []).append(message_id)
        return {one: group for group in groups.values() for one in group}

    async def unfinished_lines(self, conversation: str, lanes: Iterable[str]) -> list[Line]:
        """List messages of a conversation that wait, are being worked, or are dead, newest first.

        Live ones are looked for in these lanes, the newest of them if there are many."""
        ids = await self._dialect.rows(
            self._dialect.newest_in_lanes,
            {"lanes": self._dialect.array(list(dict.fromkeys(lanes))), "most": SEARCHED_EVENTS},
        )
        newest = sorted((id_ for (id_,) in ids), reverse=True)[:SEARCHED_EVENTS]
        live = await self._dialect.rows(
            f"select {COLUMNS} from {self._table('event')} where {self._dialect.ids}",
            {"ids": self._dialect.array(newest)},
        )
        outcomes = ", ".join(f"'{outcome}'" for outcome in DEAD_OUTCOMES)
        dead = await self._dialect.rows(
            f"select {FINISHED_COLUMNS} from {self._table('event_hist')} where queue = 'inbox'"
            f" and outcome in ({outcomes}) order by id desc limit {SEARCHED_EVENTS}",
            {},
        )
        events = [*map(self._dialect.event, live), *map(self._dialect.finished, dead)]
        now = await self._store.now()
        lines = [
            _unfinished_line(event, now)
            for event in events
            if conversation_of(payload_to_show(event)) == conversation
        ]
        return sorted(lines, key=lambda line: line.event_id or 0, reverse=True)

    async def forget(self, subject: str) -> int:
        """Delete the conversations of a person. Returns how many."""
        rows = await self._dialect.write(
            f"delete from {self._table('conversation')}"
            f" where subject = {self._mark('subject')} returning id",
            {"subject": subject},
        )
        return len(rows)

    async def known_agents(self) -> Sequence[str]:
        """Return every agent that has a history, by one index probe per agent."""
        table = self._table("agent_message")
        rows = await self._dialect.rows(
            "with recursive one (agent_id) as"
            f" ( select min(agent_id) from {table}"
            f" union all select (select min(m.agent_id) from {table} as m"
            " where m.agent_id > one.agent_id) from one where one.agent_id is not null )"
            " select agent_id from one where agent_id is not null",
            {},
        )
        return [agent for (agent,) in rows]

    def _limits(self, scope: Scope) -> tuple[str, dict[str, Any]]:
        where, params = "true", dict[str, Any]()
        if scope.sent_by is not None:
            where += f" and owner = {self._mark('owner')}"
            params["owner"] = scope.sent_by
        if scope.channels is not None:
            where += f" and channel in (select value from {self._dialect.each.format('channels')})"
            params["channels"] = self._dialect.array(scope.channels)
        if scope.agents is not None:
            agents = f"(select value from {self._dialect.each.format('agents')})"
            where += (
                f" and exists (select 1 from {self._table('agent_message')} as m"
                f" where m.agent_id in {agents} and m.conversation = c.conversation)"
            )
            params["agents"] = self._dialect.array(scope.agents)
        return where, params

    def _conversation(self, row: Sequence[Any]) -> Conversation:
        values = dict(zip(COLUMNS_OF_LIST, row, strict=True))
        for name in ("created_at", "updated_at"):
            values[name] = self._dialect.to_datetime(values[name])
        for name in ("pinned", "archived"):
            values[name] = bool(values[name])
        return Conversation(**values)

    @property
    def _unread(self) -> str:
        """SQL expression for the number of answers after the newest line that the reader has seen.

        It names the known agents, so that the index over agents and conversations can be used."""
        return (
            f"case when c.owner <> {self._mark('reader')} then 0 else (select count(*) from"
            f" (select 1 from {self._table('agent_message')} as m"
            f" where m.agent_id in (select value from {self._dialect.each.format('known')})"
            " and m.conversation = c.conversation and m.id > c.read_to and m.role = 'assistant'"
            f" limit {MOST_UNREAD}) as behind) end as unread"
        )

    def _line(self, row: Sequence[Any]) -> Line:
        id_, message_id, role, agent, sender, content, created_at, origin = row
        return Line(
            id=id_,
            message_id=message_id,
            role=role,
            agent=agent,
            sender=sender,
            content=content,
            created_at=self._dialect.to_datetime(created_at),
            origin=origin,
        )

    @property
    def _current(self) -> str:
        return CURRENT.format(self._table("message_version"))

    @property
    def _among(self) -> str:
        each = self._dialect.each.format("names")
        return f"{ORIGIN} in (select value from {each})"

    def _table(self, name: str) -> str:
        return f"{self._dialect.schema}{name}"

    def _mark(self, name: str) -> str:
        return self._dialect.mark.format(name)


def merge_unfinished(
    page: Page[Line], unfinished_lines: Sequence[Line], *, is_first: bool
) -> Page[Line]:
    """Mark the lines of a page whose messages are not completed.

    The first page also begins with the messages that wait or are being worked. Dead letters are
    in the history already."""
    by_id = {line.message_id: line for line in unfinished_lines}
    for line in page:
        if line.role == "user" and (found := by_id.get(line.message_id)) is not None:
            line.status, line.event_id, line.error = found.status, found.event_id, found.error
    if not is_first:
        return page
    merged: Page[Line] = Page([line for line in unfinished_lines if line.status != "dead"])
    merged += page
    merged.has_more = page.has_more
    return merged


def _unfinished_line(event: Event, now: datetime) -> Line:
    payload = payload_to_show(event)
    is_leased = event.fence > 0 and event.vt > now
    is_dead = isinstance(event, FinishedEvent)
    return Line(
        id=None,
        message_id=event.message_id or str(event.id),
        role="user",
        agent=event.target,
        sender=str(payload.get("sender") or ""),
        content=written_of(payload),
        created_at=event.created_at,
        status="dead" if is_dead else "processing" if is_leased else "pending",
        event_id=event.id,
        error=event.last_error,
        origin=str(payload.get("origin_id") or ""),
    )


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


NOTED_FOR = timedelta(minutes=1)
MOST_NOTED = 10_000


class ConversationNotes:
    """Remembers which conversations this process listed, so that most messages cost no write."""

    def __init__(self, interval: timedelta = NOTED_FOR) -> None:
        self._interval = interval.total_seconds()
        self._noted_until: dict[tuple[str, str | None], float] = {}

    def is_due(self, conversation: str, owner: str | None, now: float) -> bool:
        """Whether this process has not listed a conversation within the last minute."""
        return now >= self._noted_until.get((conversation, owner), 0.0)

    def forget(self, conversation: str) -> None:
        """Have the next message of a conversation list it again."""
        for noted in [key for key in self._noted_until if key[0] == conversation]:
            del self._noted_until[noted]

    def add(self, new: NewConversation, now: float) -> None:
        """Remember a conversation whose message is stored."""
        if len(self._noted_until) >= MOST_NOTED:
            self._noted_until.clear()
        self._noted_until[new.conversation, new.owner] = now + self._interval

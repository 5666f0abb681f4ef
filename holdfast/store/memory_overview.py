"""Overview of memory: the people it knows, and the messages that observations came from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from holdfast.memory.observation import USER, Observation, parts_of, subject_key
from holdfast.queue.event import Event
from holdfast.queue.pages import PAGE_BYTES, Measure, Page
from holdfast.queue.store import Store
from holdfast.store.memory import open_people
from holdfast.store.payload import parse
from holdfast.store.readable import OBSERVATION, observation_of
from holdfast.store.scoped import COLUMNS, GREATEST_ID, Dialect, dialect_of

MOST_SOURCES = 200
"""Messages that are looked up for one page of observations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A person with all identities, and the number of observations about them."""

    key: str
    identities: Sequence[str] = field(default_factory=list)
    observations: int = 0


class MemoryOverview:
    """Reads about memory for operators."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._dialect: Dialect = dialect_of(store)

    async def people(
        self, *, part: str | None = None, after: tuple[str, str] | None = None, limit: int = 100
    ) -> tuple[list[Person], str | None]:
        """Return people, ordered by the key of their first identity, and the key to continue after.

        That key is None at the end. `part` is a part of an identity. Linked identities are one
        person."""
        rows = await self._subjects(part, after, limit)
        groups = {one: group for group in await open_people(self._store).groups() for one in group}
        people = []
        for workspace, id_, count in rows:
            key = subject_key(workspace, USER, id_)
            person = await self._person(key, count, groups.get(key), part)
            if person is not None:
                people.append(person)
        is_full = bool(rows) and len(rows) >= limit
        return people, subject_key(rows[-1][0], USER, rows[-1][1]) if is_full else None

    async def count_people(self) -> int:
        """Count identities that have observations."""
        [(count,)] = await self._dialect.rows(
            f"select count(*) from (select 1 from {self._table('observation')}"
            f" where subject_type = '{USER}' and deleted_at is null"
            " group by workspace_id, subject_id) as known",
            {},
        )
        return int(count)

    async def newest(
        self,
        keys: Iterable[str],
        *,
        before_version: int | None = None,
        limit: int = 100,
        most_bytes: int | None = None,
    ) -> Page[Observation]:
        """List the observations about several identities, the highest version first."""
        below = GREATEST_ID if before_version is None else before_version
        # If the page of an identity is full, then so is that of all, at or before its last row.
        rows = [row for key in keys for row in await self._newest(key, below, limit, most_bytes)]
        rows.sort(key=itemgetter(OBSERVATION.index("version")), reverse=True)
        return Measure(limit, most_bytes).page(rows).map(self._observation)

    async def _newest(
        self, key: str, below: int, limit: int, most_bytes: int | None
    ) -> Sequence[Any]:
        workspace, type_, id_ = parts_of(key)
        values = {"workspace_id": workspace, "subject_type": type_, "subject_id": id_}
        mark = self._dialect.mark.format
        where = " and ".join(f"{name} = {mark(name)}" for name in values)
        return await self._dialect.page(
            f"select {', '.join(OBSERVATION)} from {self._table('observation')}"
            f" where deleted_at is null and {where} and version < {mark('below')}"
            f" order by version desc limit {mark('limit')}",
            values | {"below": below, "limit": limit},
            limit,
            most_bytes,
        )

    def _observation(self, row: Sequence[Any]) -> Observation:
        values = dict(zip(OBSERVATION, row, strict=True))
        for name in ("created_at", "updated_at"):
            if values[name] is not None:
                values[name] = self._dialect.to_datetime(values[name])
        sources = values["source_message_ids"]
        if isinstance(sources, str):
            values["source_message_ids"] = parse(sources)
        return observation_of(values)

    async def sources(self, message_ids: Iterable[str]) -> dict[str, Event]:
        """Return the messages with these ids that are still stored, by id."""
        names = list(dict.fromkeys(message_ids))[:MOST_SOURCES]
        ids = await self._event_ids(names)
        events = [
            self._dialect.event(row)
            for table in ("event", "event_hist")
            for row in await self._events(table, ids)
        ]
        return {event.message_id: event for event in events if event.message_id is not None}

    async def _event_ids(self, names: Sequence[str]) -> list[int]:
        each = self._dialect.each.format("names")
        rows = await self._dialect.rows(
            f"select event_id from {self._table('message_key')}"
            f" where queue = 'inbox' and message_id in (select names.value from {each})",
            {"names": self._dialect.array(names)},
        )
        return [id_ for (id_,) in rows]

    async def _events(self, table: str, ids: Sequence[int]) -> Sequence[Any]:
        return await self._dialect.page(
            f"select {COLUMNS} from {self._table(table)} where {self._dialect.ids}",
            {"ids": self._dialect.array(ids)},
            MOST_SOURCES,
            PAGE_BYTES,
        )

    async def _subjects(
        self, part: str | None, after: tuple[str, str] | None, limit: int
    ) -> Sequence[tuple[str, str, int]]:
        conditions, params = self._conditions(part, after)
        return await self._dialect.rows(
            f"select workspace_id, subject_id, count(*) from {self._table('observation')}"
            f" where {' and '.join(conditions)} group by workspace_id, subject_id"
            f" order by workspace_id, subject_id limit {limit}",
            params,
        )

    def _conditions(
        self, part: str | None, after: tuple[str, str] | None
    ) -> tuple[list[str], dict[str, Any]]:
        mark, params = self._dialect.mark.format, dict[str, Any]()
        conditions = [f"subject_type = '{USER}'", "deleted_at is null"]
        if after is not None:
            conditions.append(f"(workspace_id, subject_id) > ({mark('workspace')}, {mark('id')})")
            params |= {"workspace": after[0], "id": after[1]}
        if part is not None:
            conditions.append(self._dialect.contains.format("subject_id", mark("part")))
            params["part"] = part
        return conditions, params

    async def _person(
        self, key: str, count: int, group: Sequence[str] | None, part: str | None
    ) -> Person | None:
        """Return the person of an identity; None if they are listed under an earlier identity.

        Only identities with `part` are listed."""
        if group is None:
            return Person(key=key, identities=[key], observations=count)
        counts = {one: count if one == key else await self._count(one) for one in sorted(group)}
        for one in (one for one, number in counts.items() if one < key and number):
            if part is None or await self._count(one, part):
                return None
        others = [one for one in counts if one != key]
        return Person(key=key, identities=[key, *others], observations=sum(counts.values()))

    async def _count(self, key: str, part: str | None = None) -> int:
        """Count the observations of an identity; none if it lacks `part`."""
        workspace, _, id_ = key.split(":", 2)
        mark, (conditions, params) = self._dialect.mark.format, self._conditions(part, None)
        conditions += [f"workspace_id = {mark('workspace')}", f"subject_id = {mark('id')}"]
        [(count,)] = await self._dialect.rows(
            f"select count(*) from {self._table('observation')} where {' and '.join(conditions)}",
            params | {"workspace": workspace, "id": id_},
        )
        return int(count)

    def _table(self, name: str) -> str:
        return f"{self._dialect.schema}{name}"

"""Links between identities on PostgreSQL."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter

from holdfast.memory.people import person_key, person_keys
from holdfast.store.postgres.store import PostgresStore


class PostgresPeople:
    """See holdfast.memory.people.People."""

    def __init__(self, store: PostgresStore) -> None:
        self._connections = store.connections

    async def link(self, one: str, other: str, *, actor: str | None = None) -> bool:
        first, second = person_keys(one, other)
        rows = await self._connections.rows(
            "select done, case when done"
            " then agent.add_audit(%s, 'people_linked', agent.pseudonym(%s)) end"
            " from agent.link_people(%s, %s) as done",
            (actor, first, first, second),
        )
        return bool(rows[0][0])

    async def unlink(self, subject: str, *, actor: str | None = None) -> bool:
        key = person_key(subject)
        rows = await self._connections.rows(
            "select done, case when done"
            " then agent.add_audit(%s, 'people_unlinked', agent.pseudonym(%s)) end"
            " from agent.unlink_person(%s) as done",
            (actor, key, key),
        )
        return bool(rows[0][0])

    async def identities(self, subject: str) -> list[str]:
        rows = await self._connections.rows("select agent.linked_subjects(%s)", (subject,))
        return [str(row[0]) for row in rows]

    async def known_as(self, subject: str) -> list[str]:
        rows = await self._connections.rows("select agent.known_as(%s)", (subject,))
        return [str(row[0]) for row in rows]

    async def groups(self) -> list[list[str]]:
        rows = await self._connections.rows(
            "select person, subject from agent.person_link order by person, subject", ()
        )
        return [[str(subject) for _, subject in group] for _, group in groupby(rows, itemgetter(0))]

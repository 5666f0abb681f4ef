"""People who are known under several identities, because somebody said so."""

from __future__ import annotations

from typing import Protocol, cast

from holdfast.errors import HoldfastError
from holdfast.memory.observation import USER, parts_of
from holdfast.queue.store import Store


class People(Protocol):
    """Links between memory subjects of type USER. Nothing is ever linked by itself."""

    async def link(self, one: str, other: str, *, actor: str | None = None) -> bool:
        """Say that two identities are one person. Returns False if they were linked already.

        An actor, here and below, is recorded in the audit log, the person there as a pseudonym."""

    async def unlink(self, subject: str, *, actor: str | None = None) -> bool:
        """Make an identity a person of its own again. Returns False if it was not linked."""

    async def identities(self, subject: str) -> list[str]:
        """Return all identities of a person, the given one first."""

    async def known_as(self, subject: str) -> list[str]:
        """Return the identities that a subject means, as far as rows tell.

        A subject without a channel, such as default:USER:ann, means everybody with that id or name."""

    async def groups(self) -> list[list[str]]:
        """Return the identities of every person who has several."""


def open_people(store: Store) -> People:
    """Return the links of a store."""
    # By what it can do: a store may be wrapped.
    if hasattr(store, "write"):
        from holdfast.store.sqlite.access import SqlitePeople
        from holdfast.store.sqlite.store import SqliteStore

        return SqlitePeople(cast(SqliteStore, store))
    from holdfast.store.postgres.people import PostgresPeople
    from holdfast.store.postgres.store import PostgresStore

    return PostgresPeople(cast(PostgresStore, store))


def checked(subject: str) -> str:
    """Return the key of a person in its stored form; refuse everything else."""
    workspace, type_, id_ = parts_of(subject)
    if type_ != USER:
        raise HoldfastError(
            f"only people can be linked: {subject!r} is of type {type_}, not {USER}"
        )
    return f"{workspace}:{type_}:{id_}"


def checked_pair(one: str, other: str) -> tuple[str, str]:
    """Return the keys of two different people in their stored form."""
    first, second = checked(one), checked(other)
    if first == second:
        raise HoldfastError(f"{first} cannot be linked to itself; name two identities")
    return first, second

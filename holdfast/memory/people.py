"""People who are known under several identities, because somebody linked them."""

from __future__ import annotations

from typing import Protocol

from holdfast.errors import HoldfastError
from holdfast.memory.observation import USER, parts_of


class People(Protocol):
    """Links between memory subjects of type USER. Holdfast never links two by itself.

    An actor, where one is given, is recorded in the audit log; the log names the person by a
    pseudonym."""

    async def link(self, one: str, other: str, *, actor: str | None = None) -> bool:
        """Link two identities of one person. Returns False if they were linked already."""

    async def unlink(self, subject: str, *, actor: str | None = None) -> bool:
        """Make an identity a person of its own again. Returns False if it was not linked."""

    async def identities(self, subject: str) -> list[str]:
        """Return all identities of a person, the given one first."""

    async def known_as(self, subject: str) -> list[str]:
        """Return the identities that match a subject, as far as stored rows show them.

        A subject without a channel, such as default:USER:ann, matches everybody with that id or
        name."""

    async def groups(self) -> list[list[str]]:
        """Return the identities of every person who has several."""


def person_key(subject: str) -> str:
    """Return the key of a person in its stored form. Other types of subjects are refused."""
    workspace, type_, id_ = parts_of(subject)
    if type_ != USER:
        raise HoldfastError(
            f"only people can be linked: {subject!r} is of type {type_}, not {USER}"
        )
    return f"{workspace}:{type_}:{id_}"


def person_keys(one: str, other: str) -> tuple[str, str]:
    """Return the keys of two people in their stored form. They must differ."""
    first, second = person_key(one), person_key(other)
    if first == second:
        raise HoldfastError(f"{first} cannot be linked to itself; name two identities")
    return first, second

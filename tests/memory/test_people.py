"""Linking identities: an explicit act, the same on every engine."""

from __future__ import annotations

import pytest

from holdfast.errors import HoldfastError
from holdfast.memory.people import People
from holdfast.queue.audit import AuditFilter
from holdfast.queue.store import Store
from holdfast.store.memory import open_people

ANN, SLACK, MAIL = (
    "default:USER:api:id:ann",
    "T1:USER:slack:id:U1",
    "default:USER:mail:id:ann@example.com",
)
BOB = "default:USER:api:id:bob"


@pytest.fixture
def people(store: Store) -> People:
    return open_people(store)


async def test_nobody_is_linked_automatically(people: People) -> None:
    assert await people.identities(ANN) == [ANN]
    assert await people.groups() == []


async def test_linked_identities_are_one_person(people: People) -> None:
    assert await people.link(ANN, SLACK)
    assert await people.identities(ANN) == [ANN, SLACK]
    assert await people.identities(SLACK) == [SLACK, ANN]
    assert await people.identities(BOB) == [BOB]
    assert not await people.link(SLACK, ANN)


async def test_two_people_who_are_linked_have_all_identities_of_both(people: People) -> None:
    await people.link(ANN, SLACK)
    await people.link(MAIL, BOB)
    assert await people.link(SLACK, MAIL)
    assert await people.groups() == [sorted([ANN, SLACK, MAIL, BOB])]


async def test_an_identity_that_is_unlinked_leaves_the_others_linked(people: People) -> None:
    await people.link(ANN, SLACK)
    await people.link(ANN, MAIL)
    assert await people.unlink(ANN)
    assert await people.identities(ANN) == [ANN]
    assert await people.identities(MAIL) == [MAIL, SLACK]
    # A new link to somebody else does not restore the former ones.
    await people.link(ANN, BOB)
    assert await people.identities(BOB) == [BOB, ANN]
    assert not await people.unlink("default:USER:nobody")
    await people.unlink(MAIL)
    assert await people.groups() == [sorted([ANN, BOB])]


@pytest.mark.parametrize(
    ("one", "other"), [(ANN, ANN), (ANN, "default:AGENT:coder"), (ANN, "ann"), ("", ANN)]
)
async def test_only_two_different_people_can_be_linked(
    people: People, one: str, other: str
) -> None:
    with pytest.raises(HoldfastError):
        await people.link(one, other)


async def test_links_are_in_the_audit_log_without_names(people: People, store: Store) -> None:
    await people.link(ANN, SLACK, actor="cli:root")
    await people.unlink(SLACK, actor="cli:root")
    await people.unlink(SLACK, actor="cli:root")
    entries = await store.audit_log(AuditFilter(), limit=10)
    assert [(entry.actor, entry.action) for entry in entries] == [
        ("cli:root", "people_unlinked"),
        ("cli:root", "people_linked"),
    ]
    assert all(entry.subject.startswith("person:") and "ann" not in str(entry) for entry in entries)

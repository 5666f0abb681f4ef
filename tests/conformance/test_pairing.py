"""Pairing of strangers, on every store alike."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.queue.audit import AuditFilter
from holdfast.queue.store import Store
from holdfast.store import pairing
from holdfast.store.forget import forget
from holdfast.store.memory import open_knowledge, open_observations
from holdfast.store.pairing import (
    CODE_LENGTH,
    CODE_SIGNS,
    EXPIRES_AFTER,
    MOST_REQUESTS,
    NAME_LENGTH,
    Pairing,
    PairingRequest,
    open_pairings,
    request_pairing,
)
from holdfast.testing.clock import Clock
from holdfast.testing.fixtures import StoreFactory


async def ask(store: Store, sender_id: str, name: str = "Ada", channel: str = "post") -> Pairing:
    found = await request_pairing(open_pairings(store), channel, sender_id, name)
    assert found is not None
    return found


async def test_a_stranger_has_one_code_that_is_easy_to_read(store: Store, clock: Clock) -> None:
    first = await ask(store, "1")
    clock.tick(minutes=59)
    assert await ask(store, "1", "another name") == first
    assert first.code is not None
    assert len(first.code) == CODE_LENGTH
    assert set(first.code) <= set(CODE_SIGNS)
    assert not set("01ILO") & set(CODE_SIGNS)
    assert first.expires_at == first.requested_at + timedelta(hours=1)
    assert await open_pairings(store).requests() == [first]
    assert (await ask(store, "1", channel="mail")).code != first.code


async def test_a_code_expires_and_the_next_message_gets_another(store: Store, clock: Clock) -> None:
    pairings = open_pairings(store)
    first = await ask(store, "1")
    clock.tick(hours=1)
    assert await pairings.requests() == []
    assert await pairings.find("post", "1") is None
    assert first.code is not None
    assert await pairings.approve(first.code) is None
    assert (await ask(store, "1")).code != first.code


async def test_an_approved_person_stays_until_revoked(store: Store, clock: Clock) -> None:
    pairings = open_pairings(store)
    request = await ask(store, "1")
    assert request.code is not None
    clock.tick(minutes=1)
    person = await pairings.approve(request.code, actor="cli:ann")
    assert person is not None
    assert (person.code, person.expires_at, person.approved_by) == (None, None, "cli:ann")
    assert person.approved_at == clock()
    assert await pairings.approve(request.code) is None, "a code is used once"
    clock.tick(days=400)
    assert await pairings.find("post", "1") == person
    assert (await pairings.requests(), await pairings.list_approved()) == ([], [person])
    assert not await pairings.revoke("mail", "1")
    assert await pairings.revoke("post", "1", actor="cli:ann")
    assert await pairings.find("post", "1") is None
    assert not await pairings.revoke("post", "1")


async def test_an_approval_and_a_revocation_are_audited_by_a_pseudonym(store: Store) -> None:
    pairings = open_pairings(store)
    request = await ask(store, "4711")
    assert request.code is not None
    await pairings.approve(request.code, actor="cli:ann")
    await pairings.revoke("post", "4711", actor="cli:bob")
    entries = await store.audit_log(AuditFilter())
    assert [(one.actor, one.action, one.details) for one in entries] == [
        ("cli:bob", "revoked", {"channel": "post"}),
        ("cli:ann", "approved", {"channel": "post"}),
    ]
    person = await store.pseudonym("default:USER:post:id:4711")
    assert [one.subject for one in entries] == [person, person]


async def test_open_requests_of_a_channel_are_limited(
    another_store: StoreFactory, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sqlite.access", "postgres.pairing"):
        monkeypatch.setattr(f"holdfast.store.{module}.MOST_REQUESTS", 5)
    stores = [await another_store() for _ in range(2)]
    found = await asyncio.gather(
        *(
            request_pairing(open_pairings(stores[number % 2]), "post", str(number), "")
            for number in range(12)
        )
    )
    assert sum(one is not None for one in found) == 5
    # Another channel has its own limit, and expired requests do not count.
    await ask(stores[0], "1", channel="mail")
    clock.tick(hours=1)
    await ask(stores[0], "new")
    assert MOST_REQUESTS == 100


async def test_of_two_strangers_with_one_code_one_gets_it(store: Store) -> None:
    pairings = open_pairings(store)
    one = PairingRequest(channel="post", sender_id="1", sender="", subject="s1", code="ABCDEFGH")
    assert await pairings.request(one) is not None
    assert await pairings.request(replace(one, sender_id="2", subject="s2")) is None


async def test_a_code_that_is_taken_is_drawn_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = iter(["AAAAAAAA", "AAAAAAAA", "BBBBBBBB"])
    monkeypatch.setattr(pairing, "new_code", lambda: next(codes))
    assert (await ask(store, "1")).code == "AAAAAAAA"
    assert (await ask(store, "2")).code == "BBBBBBBB"


async def test_a_hostile_name_is_kept_short_printable_and_without_secrets(store: Store) -> None:
    name = "Eve\x1b[2J\n\u202exoxb-123456789012-abcdefghijklmnop " + "x" * 10_000
    kept = (await ask(store, "1", name)).sender
    assert len(kept) <= NAME_LENGTH
    assert "\x1b" not in kept
    assert "\n" not in kept
    assert "\u202e" not in kept
    assert "abcdefghijklmnop" not in kept


async def test_forgetting_a_person_removes_their_pairing(store: Store) -> None:
    request = await ask(store, "4711")
    assert request.code is not None
    await open_pairings(store).approve(request.code)
    await ask(store, "4712")
    removed = await forget(
        open_observations(store), open_knowledge(store), "default", "USER", "4711"
    )
    assert removed["pairings"] == 1
    assert await open_pairings(store).list_approved() == []
    assert len(await open_pairings(store).requests()) == 1


async def test_codes_live_as_long_as_the_notice_says() -> None:
    assert timedelta(hours=1) == EXPIRES_AFTER

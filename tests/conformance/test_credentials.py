"""Tokens, sessions and login codes, on every store alike."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.api.security.bootstrap_tokens import digest_of
from holdfast.api.security.credentials import Grant, issue
from holdfast.errors import HoldfastError
from holdfast.queue.store import Store
from holdfast.store.credentials import open_credentials
from holdfast.testing.clock import Clock

HOUR = timedelta(hours=1)


async def test_a_code_is_taken_by_one_of_many(store: Store) -> None:
    secret, code = await issue(store, "code", Grant(name="ada", role="admin"), HOUR)
    credentials = open_credentials(store)
    taken = await asyncio.gather(*(credentials.take(digest_of(secret)) for _ in range(8)))
    assert [one.id for one in taken if one is not None] == [code.id]


async def test_what_has_expired_is_not_found(store: Store, clock: Clock) -> None:
    credentials = open_credentials(store)
    session, _ = await issue(store, "session", Grant(name="ada", role="read"), HOUR)
    code, _ = await issue(store, "code", Grant(name="ada", role="read"), HOUR)
    clock.tick(hours=1)
    assert await credentials.find("session", digest_of(session)) is None
    assert await credentials.take(digest_of(code)) is None


async def test_a_credential_is_found_as_it_was_given_and_its_use_is_noted(
    store: Store, clock: Clock
) -> None:
    grant = Grant(name="ci", role="send", channels=("api", "web"), agents=("coder",), sender="CI")
    secret, token = await issue(store, "token", grant, None)
    credentials = open_credentials(store)
    found = await credentials.find("token", digest_of(secret))
    assert found == token
    assert token.owner == token.id
    assert await credentials.find("session", digest_of(secret)) is None
    [listed] = await credentials.tokens()
    first_use = listed.used_at
    assert first_use == await store.now()
    clock.tick(seconds=30)
    await credentials.find("token", digest_of(secret))
    assert (await credentials.tokens())[0].used_at == first_use, "not written at every use"
    clock.tick(minutes=2)
    await credentials.find("token", digest_of(secret))
    assert (await credentials.tokens())[0].used_at == await store.now()


async def test_a_token_has_a_name_of_its_own_and_goes_with_its_sessions(store: Store) -> None:
    credentials = open_credentials(store)
    secret, token = await issue(store, "token", Grant(name="ci", role="send"), HOUR)
    with pytest.raises(HoldfastError, match="already a token named 'ci'"):
        await issue(store, "token", Grant(name="ci", role="read"), HOUR)
    session, _ = await issue(store, "session", Grant.of(token), HOUR)
    other, _ = await issue(store, "session", Grant(name="ci", role="send"), HOUR)
    revoked = await credentials.revoke("ci")
    assert revoked is not None
    assert revoked.id == token.id
    assert await credentials.revoke("ci") is None
    assert await credentials.find("token", digest_of(secret)) is None
    assert await credentials.find("session", digest_of(session)) is None
    assert await credentials.find("session", digest_of(other)) is not None


async def test_the_sessions_of_a_bootstrap_token_end_together(store: Store) -> None:
    credentials = open_credentials(store)
    admin, _ = await issue(store, "session", Grant(name="ada", role="admin"), HOUR)
    code, _ = await issue(store, "code", Grant(name="ada", role="admin"), HOUR)
    reader, _ = await issue(store, "session", Grant(name="bob", role="read"), HOUR)
    _, token = await issue(store, "token", Grant(name="ci", role="admin"), HOUR)
    of_token, _ = await issue(store, "session", Grant.of(token), HOUR)
    assert await credentials.end_all("admin") == 1
    assert await credentials.find("session", digest_of(admin)) is None
    assert await credentials.take(digest_of(code)) is None
    for kept in (reader, of_token):
        assert await credentials.find("session", digest_of(kept)) is not None


async def test_expired_sessions_and_codes_are_dropped_and_tokens_are_kept(
    store: Store, clock: Clock
) -> None:
    await issue(store, "session", Grant(name="ada", role="read"), HOUR)
    await issue(store, "token", Grant(name="ci", role="read"), HOUR)
    clock.tick(hours=2)
    await issue(store, "code", Grant(name="bob", role="read"), HOUR)
    assert [token.name for token in await open_credentials(store).tokens()] == ["ci"]

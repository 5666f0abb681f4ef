"""In chats, `@agent` alone sets the conversation's default for all processes.

`@default` clears it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import AgentHarness
from holdfast.agents.echo import echo
from holdfast.queue.event import OUTBOX
from holdfast.queue.store import Store
from holdfast.routing.router import PLATFORMS, Address, Route, put_message
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.testing.clock import Clock
from holdfast.testing.fixtures import StoreFactory
from tests.routing.test_router import ROUTING
from tests.steps import running, until

CHAT = Address(channel="telegram", sender="Ada", sender_id="7")


async def say(
    store: Store, text: str, address: Address = CHAT, **options: Any
) -> tuple[str, int | None]:
    return await put_message(store, ROUTING, text, address, max_attempts=5, **options)


async def route_of(store: Store, text: str, address: Address = CHAT) -> Route:
    _, id_ = await say(store, text, address)
    event = await store.live(id_ or 0)
    assert event is not None
    assert event.queue == "inbox"
    return Route(event.target, event.routed_team, event.routed_text)


async def confirmations(store: Store, channel: str = "telegram") -> list[str]:
    return [event.event["message"] for event in await store.waiting(OUTBOX, channel)]


async def test_an_agent_alone_becomes_the_default_of_that_conversation(
    store: Store, another_store: StoreFactory
) -> None:
    await say(store, "@CODER")
    other = await another_store()
    assert await route_of(other, "hi") == Route("coder")
    assert await route_of(other, "@writer hi") == Route("writer", None, "hi")
    assert (
        await route_of(other, "hi", Address(channel="telegram", sender="Bo", sender_id="8"))
        == Route()
    )
    assert await confirmations(store) == ["@coder answers here from now on; @default ends it."]


async def test_no_agent_gets_the_choice_as_a_message(store: Store) -> None:
    id_, stored = await say(store, "@coder \n")
    [response] = await store.waiting(OUTBOX, "telegram")
    assert (response.id, response.message_id, response.lane) == (
        stored,
        f"{id_}/1",
        "telegram/telegram:7",
    )
    assert response.event["original_message"] == "@coder \n"
    assert [count.queue for count in await store.counts()] == [OUTBOX]


async def test_a_team_can_be_the_default(store: Store) -> None:
    await say(store, "@devs")
    assert await route_of(store, "hi") == Route("coder", "dev")


async def test_default_clears_the_choice(store: Store) -> None:
    await say(store, "@writer")
    await say(store, "@Default")
    assert await route_of(store, "hi") == Route()
    assert (await confirmations(store))[1] == "@host answers here again."
    assert await store.setting("default/telegram:7") is None


@pytest.mark.parametrize("text", ["@nobody", " @coder", "@coder:", "hi @coder", "@"])
async def test_anything_else_is_a_message(store: Store, text: str) -> None:
    assert await route_of(store, text) == Route()


@pytest.mark.parametrize("channel", ["api", "slack"])
async def test_the_api_and_slack_do_not_set_a_default(store: Store, channel: str) -> None:
    address = Address(channel=channel, sender="Ada")
    assert await route_of(store, "@coder", address) == Route()
    assert await route_of(store, "hi", address) == Route()
    assert await confirmations(store, channel) == []


async def test_an_agent_given_beside_the_text_wins(store: Store) -> None:
    _, id_ = await say(store, "@coder", agent="writer")
    event = await store.live(id_ or 0)
    assert event is not None
    assert (event.target, event.event["message"]) == ("writer", "@coder")


async def test_a_message_that_is_delivered_again_changes_nothing(store: Store) -> None:
    await say(store, "@coder", message_id="telegram_1")
    await say(store, "@default", message_id="telegram_2")
    assert await say(store, "@coder", message_id="telegram_1") == ("telegram_1", None)
    assert await route_of(store, "hi") == Route()
    assert len(await confirmations(store)) == 2


async def test_an_agent_that_is_gone_is_no_default(store: Store) -> None:
    await store.set_setting("default/telegram:7", {"agent": "gone", "team": None})
    assert await route_of(store, "hi") == Route()


class _Undo(Exception):
    """Rolls a transaction back."""


async def test_the_choice_joins_the_caller_s_transaction(store: Store) -> None:
    async def undone() -> None:
        async with store.transaction() as tx:
            await say(store, "@coder", tx=tx)
            raise _Undo

    with pytest.raises(_Undo):
        await undone()
    assert await route_of(store, "hi") == Route()
    assert await confirmations(store) == []


def chat(number: int, channel: str = "telegram") -> Address:
    return Address(channel=channel, sender="x", sender_id=str(number))


async def have_choice(store: Store, *addresses: Address) -> list[bool]:
    return [await store.setting(f"default/{one.conversation}") is not None for one in addresses]


async def test_an_unused_choice_is_removed_and_a_used_one_stays(store: Store, clock: Clock) -> None:
    used, unused = chat(1), chat(2)
    for address in (used, unused):
        await say(store, "@coder", address)
    assert await store.prune_choices(timedelta(days=90), 10, PLATFORMS) == 0
    clock.tick(days=89)
    assert await route_of(store, "hi", used) == Route("coder")
    assert await store.prune_choices(timedelta(days=90), 10, PLATFORMS) == 0
    clock.tick(days=2)
    assert await store.prune_choices(timedelta(days=90), 10, PLATFORMS) == 1
    assert await have_choice(store, used, unused) == [True, False]
    assert await route_of(store, "hi", used) == Route("coder")


async def test_a_choice_is_used_in_the_caller_s_transaction(store: Store) -> None:
    await say(store, "@coder")
    await store.prune_choices(None, 10, PLATFORMS)
    async with store.transaction() as tx:
        await say(store, "hi", tx=tx)
    assert await store.setting("default/telegram:7") == {"agent": "coder", "team": None}


async def test_invented_senders_and_channels_leave_no_more_choices_than_the_limit(
    store: Store, clock: Clock
) -> None:
    platform = [chat(number) for number in range(3)]
    invented = [chat(number, f"invented{number}") for number in range(4)]
    for address in (*platform, *invented):
        await say(store, "@coder", address)
        await store.prune_choices(None, 10, PLATFORMS)
        clock.tick(seconds=1)
    await store.set_setting("routing", {"agent": "no choice"})
    assert await store.prune_choices(None, 2, PLATFORMS) == 3
    assert await have_choice(store, *platform) == [False, True, True]
    assert await have_choice(store, *invented) == [False, False, True, True]
    assert await store.setting("routing") == {"agent": "no choice"}


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
async def test_a_running_process_removes_old_choices(database_url: str) -> None:
    settings = Settings(database=database_url, keep_choices=timedelta(0))
    async with open_store(database_url) as store:
        await say(store, "@coder")
        async with running(AgentHarness(echo), settings):
            await until(lambda: _is_gone(store))


async def _is_gone(store: Store) -> bool:
    return await store.setting("default/telegram:7") is None

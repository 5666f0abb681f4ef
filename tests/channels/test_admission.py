"""Admission: lists, groups and bots decide whose messages a channel stores."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from holdfast.channels.admission import Admission, Rules, Sender, rules_of
from holdfast.queue.store import Store
from holdfast.settings.channels.table import ChannelTable
from holdfast.store.bot_counts import MOST_ANSWERS, WINDOW, BotCounts
from holdfast.store.pairing import open_pairings
from holdfast.testing.clock import Clock
from holdfast.testing.fixtures import StoreFactory
from tests.steps import both_engines


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    return getattr(request, "param", "sqlite")


class Table(ChannelTable):
    """A channel with the common keys alone."""


async def is_admitted(store: Store, sender: Sender, **keys: Any) -> bool:
    rules = rules_of(Table(**keys), "code")
    return (await Admission(store, "post", rules).decide(sender)).is_admitted


ADA = Sender(id="ada", conversation="post:ada", domain="Example.org")
IN_GROUP = Sender(
    id="ada", conversation="post:g", is_direct=False, group="g", is_mentioned=True, domain="b.net"
)


@pytest.mark.parametrize(
    ("keys", "admitted"),
    [
        ({}, False),
        ({"pairing": "closed"}, False),
        ({"pairing": "open"}, True),
        ({"allow": ("ada",)}, True),
        ({"allow": ("ADA",)}, False),
        ({"allow": ("*@EXAMPLE.org",)}, True),
        ({"allow": ("*:example.org",)}, True),
        ({"allow": ("*@ample.org",)}, False),
        ({"pairing": "closed", "allow": ("ada",)}, True),
        ({"pairing": "open", "allow": ("bob",)}, False),
        ({"pairing": "open", "deny": ("ada",)}, False),
        ({"pairing": "open", "deny": ("*@example.org",)}, False),
        ({"allow": ("ada",), "deny": ("ada",)}, False),
        ({"allow": ("ada",), "allow_groups": ("g",)}, True),
    ],
)
async def test_lists_decide_about_people_and_domains(
    store: Store, keys: dict[str, Any], admitted: bool
) -> None:
    assert await is_admitted(store, ADA, **keys) is admitted


@pytest.mark.parametrize(
    ("keys", "admitted"),
    [
        ({}, False),
        ({"pairing": "open"}, True),
        ({"allow": ("ada",)}, True),
        ({"allow_groups": ("g",)}, True),
        ({"allow_groups": ("g",), "deny": ("ada",)}, False),
        ({"allow": ("ada",), "allow_groups": ("other",)}, False),
        ({"allow": ("ada",), "deny_groups": ("g",)}, False),
    ],
)
async def test_lists_decide_about_groups(
    store: Store, keys: dict[str, Any], admitted: bool
) -> None:
    assert await is_admitted(store, IN_GROUP, **keys) is admitted


@pytest.mark.parametrize(("groups", "admitted"), [("mention", False), ("all", True)])
async def test_without_a_mention_a_group_is_answered_only_if_set_so(
    store: Store, groups: str, admitted: bool
) -> None:
    sender = Sender(id="ada", is_direct=False, group="g")
    assert await is_admitted(store, sender, allow=("ada",), groups=groups) is admitted


@pytest.mark.parametrize(
    ("keys", "admitted"),
    [
        ({"pairing": "open"}, False),
        ({"pairing": "open", "bots": True}, True),
        ({"bots": True}, True),
        ({"pairing": "closed", "bots": True}, False),
        ({"allow": ("robot",)}, True),
        ({"bots": True, "deny": ("robot",)}, False),
    ],
)
async def test_bots_are_ignored_unless_allowed(
    store: Store, keys: dict[str, Any], admitted: bool
) -> None:
    assert await is_admitted(store, Sender(id="robot", is_bot=True), **keys) is admitted


async def admitted(admission: Admission, count: int, **about: Any) -> int:
    """Return how many of `count` messages in a group are admitted."""
    sender = Sender(conversation="post:g", is_mentioned=True, is_direct=False, **about)
    return sum([(await admission.decide(sender)).is_admitted for _ in range(count)])


@both_engines
async def test_bots_that_answer_each_other_are_stopped_until_a_person_writes(
    store: Store, clock: Clock
) -> None:
    admission = Admission(store, "post", Rules(pairing="open", bots=True))
    robot: dict[str, Any] = {"id": "robot", "is_bot": True}
    assert await admitted(admission, MOST_ANSWERS + 5, **robot) == MOST_ANSWERS
    assert await admitted(admission, 1, id="ada") == 1
    assert await admitted(admission, MOST_ANSWERS + 5, **robot) == MOST_ANSWERS
    clock.tick(seconds=WINDOW.total_seconds() + 1)
    assert await admitted(admission, 1, **robot) == 1


@both_engines
async def test_the_limit_of_bots_holds_over_all_processes(another_store: StoreFactory) -> None:
    rules = Rules(pairing="open", bots=True)
    admissions = [Admission(await another_store(), "post", rules) for _ in range(2)]
    robot: dict[str, Any] = {"id": "robot", "is_bot": True}
    both = await asyncio.gather(*(admitted(one, MOST_ANSWERS, **robot) for one in admissions))
    assert sum(both) == MOST_ANSWERS
    await admitted(admissions[0], 1, id="ada")
    assert await admitted(admissions[1], 1, **robot) == 1


async def test_the_counts_of_bots_are_bounded_and_name_nobody(store: Store, clock: Clock) -> None:
    counts = BotCounts(store, "post", most_conversations=2)
    for number in range(3):
        clock.tick(seconds=1)
        await counts.count(f"post:ada{number}")
    assert len(await store.setting("bots/post")) == 2
    assert "ada" not in str(await store.setting("bots/post"))
    clock.tick(seconds=WINDOW.total_seconds() + 1)
    await counts.count("post:ada1")
    assert len(await store.setting("bots/post")) == 1


async def open_responses(store: Store) -> list[tuple[str | None, str, str]]:
    waiting = await store.waiting("outbox", "post")
    return [(one.message_id, one.event["conversation"], one.event["message"]) for one in waiting]


async def code_of(store: Store) -> str:
    [request] = await open_pairings(store).requests()
    return str(request.code)


@both_engines
async def test_a_stranger_is_sent_a_code_once_over_all_processes(
    another_store: StoreFactory,
) -> None:
    stores = [await another_store(), await another_store()]
    for store in [*stores, *stores]:
        admission = Admission(store, "post", Rules())
        for _ in range(2):
            decision = await admission.decide(replace(ADA, name="Ada"))
            assert not decision.is_admitted
            await admission.announce(decision, {"kind": "message", "conversation": "post:ada"})
    code = await code_of(stores[0])
    [(id_, conversation, text)] = await open_responses(stores[0])
    assert (id_, conversation) == (f"pairing_post_{code}", "post:ada")
    assert code in text
    assert await stores[0].waiting("inbox", "") == []


@both_engines
async def test_only_what_is_sent_after_the_approval_is_answered(store: Store, clock: Clock) -> None:
    admission = Admission(store, "post", Rules())
    early = replace(ADA, sent_at=clock())
    await admission.decide(early)
    clock.tick(minutes=1)
    await open_pairings(store).approve(await code_of(store))
    assert (await admission.decide(early)).reason == "sent before the sender was approved"
    assert (await admission.decide(replace(ADA, sent_at=clock()))).is_admitted
    await open_pairings(store).revoke("post", "ada")
    assert not (await admission.decide(ADA)).is_admitted


async def test_without_codes_strangers_are_neither_stored_nor_told(store: Store) -> None:
    for sender, rules in [
        (ADA, Rules(pairing="closed")),
        (ADA, Rules(deny=frozenset({"ada"}))),
        (Sender(id="robot", is_bot=True), Rules()),
        (Sender(id="x" * 1000), Rules()),
        (Sender(id="a\0b"), Rules()),
        (Sender(id="ada", is_direct=False, group="g"), Rules()),
    ]:
        decision = await Admission(store, "post", rules).decide(sender)
        assert (decision.is_admitted, decision.notice) == (False, None)
    assert await open_pairings(store).requests() == []


async def test_a_flood_of_strangers_is_logged_once_and_gets_no_further_codes(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("holdfast.store.sqlite.access.MOST_REQUESTS", 2)
    admission = Admission(store, "post", Rules())
    decisions = [await admission.decide(Sender(id=str(number))) for number in range(5)]
    assert [one.notice is not None for one in decisions] == [True, True, False, False, False]
    assert caplog.text.count("too many strangers wait") == 1


async def test_a_sent_code_is_not_asked_of_the_store_again(store: Store) -> None:
    admission = Admission(store, "post", Rules())
    decision = await admission.decide(ADA)
    await admission.announce(decision, {"conversation": "post:ada"})
    assert (await admission.decide(ADA)).notice is None

"""Agents that mention each other for ever are stopped, and the dead letter says why."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import Reply, Retry
from holdfast.agents.base import Answer
from holdfast.agents.turn import Turn
from holdfast.chat import ChatStore
from holdfast.queue.event import INBOX
from holdfast.queue.store import Filter
from holdfast.queue.turn import LeasedTurn
from holdfast.testing.fixtures import StoreFactory
from holdfast.testing.trial import LEASE, Trial
from tests.routing.conftest import Stage


def ping_pong(turn: Turn) -> Answer:
    return f"[@{'writer' if turn.agent == 'coder' else 'coder'}: your turn]"


async def test_two_agents_that_mention_each_other_are_stopped_by_the_hop_limit(
    stage: Stage, play: Trial
) -> None:
    stage.scripts = {"coder": ping_pong, "writer": ping_pong}
    message_id = await play.say("@dev go")
    await play.work()
    assert len(stage.received) == 1 + 8
    [letter] = await play.store.dead(Filter())
    assert (letter.hops, letter.target, letter.error_class) == (9, "writer", "hop_limit")
    assert letter.last_error == (
        f"hop limit: 8 hand-offs from message {message_id}; stopped what @coder sent to @writer"
    )
    assert str(letter.message_id).startswith("internal_internal_")
    assert str(letter.message_id).endswith(f"{message_id}/1/1/1/1/1/1/1/1/1")


async def test_a_retry_by_a_person_lets_one_message_through(stage: Stage, play: Trial) -> None:
    stage.scripts = {"coder": ping_pong, "writer": ping_pong}
    await play.say("@dev go")
    await play.work()
    failures = [Retry("not yet")]
    stage.scripts["writer"] = lambda turn: failures.pop() if failures else ping_pong(turn)
    [letter] = await play.store.dead(Filter())
    await play.store.retry(Filter())
    await play.work()
    play.clock.tick(minutes=10)
    await play.work()
    assert stage.received[9:] == [("writer", "your turn")] * 2
    [further] = await play.store.dead(Filter())
    assert (further.parent_id, further.hops, further.error_class) == (letter.id, 10, "hop_limit")


async def test_a_root_message_has_a_budget(stage: Stage, play: Trial) -> None:
    stage.says("coder", "[@writer: x]" * 40)
    stage.scripts["writer"] = lambda turn: "[@tester: y]"
    message_id = await play.say("@dev go")
    await play.work()
    assert len(stage.received) == 1 + 64
    dead_letters = await play.store.dead(Filter(), limit=1000)
    assert {letter.error_class for letter in dead_letters} == {"budget"}
    assert dead_letters[0].last_error is not None
    assert dead_letters[0].last_error.startswith(
        f"budget: 64 messages from message {message_id}; stopped what @"
    )
    assert len(dead_letters) == 40 + 40 - 64


@pytest.mark.parametrize("posts", [1, 2])
async def test_all_messages_that_follow_from_one_post_share_one_budget(
    stage: Stage, play: Trial, posts: int
) -> None:
    for agent in ("writer", "tester"):
        stage.says(agent, "[@coder: x]" * 40)
    for _ in range(posts):
        await play.post("dev", "go")
    await play.work()
    assert len([text for agent, text in stage.received if (agent, text) == ("coder", "x")]) == 64
    assert [letter.error_class for letter in await play.store.dead(Filter(), limit=1000)] == [
        "budget"
    ] * 16


async def test_another_message_has_a_budget_of_its_own(stage: Stage, play: Trial) -> None:
    stage.says("coder", "[@writer: x]" * 64, "[@writer: y]")
    for _ in range(2):
        await play.say("@dev go")
        await play.work()
    assert len(stage.received) == 2 + 64 + 1
    assert await play.store.dead(Filter()) == []


async def test_a_reply_of_a_thousand_tags_is_cut_with_one_dead_letter_for_the_rest(
    stage: Stage, play: Trial
) -> None:
    stage.says("coder", "[@writer: x]" * 1000)
    await play.say("@dev go")
    await play.work()
    assert len(stage.received) == 1 + 64
    [letter] = await play.store.dead(Filter())
    assert str(letter.last_error).endswith(
        "; stopped what @coder sent to @writer, with 935 more of the same reply"
    )


async def test_room_lines_count_towards_the_budget_and_the_rest_is_a_dead_letter(
    stage: Stage, play: Trial
) -> None:
    stage.add("hermit")
    stage.app.team("solo", agents=["hermit"], leader="hermit")
    stage.says("hermit", "[#solo: a]" * 50_000 + " done")
    message_id = await play.say("@hermit go")
    await play.work()
    assert len(await play.store.chat_messages("solo", limit=1000)) == 64
    [letter] = await play.store.dead(Filter())
    assert (letter.error_class, letter.target) == ("budget", "hermit")
    assert letter.last_error == (
        "budget: at most 100 tags in a reply, 64 messages, lines and files"
        f" from message {message_id};"
        f" stopped {50_000 - 64} tags of a reply of @hermit"
    )
    assert len(letter.event["message"]) < 11_000
    [response] = await play.responses()
    assert response.event["message"] == "done"


async def test_room_lines_beyond_the_budget_are_not_stored(stage: Stage, play: Trial) -> None:
    """A reply of 450 kB of room tags once led to 50,000 rows."""
    stage.says("coder", "[#dev: a]" * 50_000)
    message_id = await play.say("@dev go")
    await play.work()
    assert len(await play.store.chat_messages("dev", limit=1000)) <= 64 / 3 + 1
    dead_letters = await play.store.dead(Filter())
    assert all(letter.error_class == "budget" for letter in dead_letters)
    cut = [
        letter.last_error
        for letter in dead_letters
        if "at most 100 tags in a reply" in str(letter.last_error)
    ]
    assert cut, [letter.last_error for letter in dead_letters]
    assert message_id in str(cut[0])


async def test_issue_13_16_at_most_100_tags_of_a_reply_are_followed(
    stage: Stage, play: Trial
) -> None:
    """Tags of all kinds count. Teammates of one tag are messages, which have their own limit."""
    play.files.mkdir()
    (play.files / "a.txt").write_text("x")
    stage.says("coder", "[send_file: a.txt]" * 60 + "[@writer: x]" * 30 + "[#dev: y]" * 30)
    await play.say("@dev go")
    await play.work()
    [response] = await play.responses()
    assert len(response.event["files"]) == 60
    assert (
        len([agent for agent, text in stage.received if agent == "writer" and text.endswith("x")])
        == 30
    )
    assert await play.store.chat_messages("dev", limit=1000) == []
    [letter] = await play.store.dead(Filter())
    assert str(letter.last_error).endswith("; stopped 30 tags of a reply of @coder")


async def test_files_count_towards_the_budget_of_the_root(stage: Stage, play: Trial) -> None:
    """Files of all turns count, together with messages."""
    names = tuple(f"{number}.txt" for number in range(40))
    stage.says("coder", Reply("[@writer: and you]", files=names))
    stage.says("writer", Reply("here", files=names))
    await play.say("@dev go")
    await play.work()
    first, second = await play.responses()
    assert (first.event["files"], second.event["files"]) == (
        list(names),
        list(names[: 64 - 40 - 1]),
    )
    assert second.event["metadata"]["files_refused"] == list(names[23:])


async def test_a_retry_by_a_person_gives_the_unfollowed_tags_to_the_agent(
    stage: Stage, play: Trial
) -> None:
    stage.app.team("solo", agents=["writer"], leader="writer")
    stage.says("writer", "[#solo: a]" * 70)
    await play.say("@solo go")
    await play.work()
    [letter] = await play.store.dead(Filter())
    assert await play.store.retry(Filter()) == [letter.id]
    await play.work()
    assert stage.received[-1] == (
        "writer",
        "[6 tags of your reply were not followed]\n" + "[#solo: a]" * 6,
    )


async def test_a_batch_beyond_the_budget_is_worked_one_by_one(stage: Stage, play: Trial) -> None:
    stage.says("coder", "[@tester: x]" * 63 + "[#dev: one][#dev: two]")
    await play.say("@dev go")
    await play.work()
    texts = [text.split("\n")[-1] for agent, text in stage.received if agent == "writer"]
    assert texts == ["one"]
    assert len([text for agent, text in stage.received if agent == "tester"]) == 63
    assert {letter.error_class for letter in await play.store.dead(Filter())} == {"budget"}


async def test_racing_processes_do_not_exceed_one_budget(
    stage: Stage, play: Trial, another_store: StoreFactory
) -> None:
    stage.app.policies |= {
        agent: replace(stage.app.policies[agent], lane="none") for agent in ("writer", "tester")
    }
    stage.says("coder", "[@writer: x]" * 40)
    stage.scripts["writer"] = lambda turn: "[@tester: y][@tester: z]"
    message_id = await play.say("@dev go")
    stores = [play.store, *[await another_store() for _ in range(3)]]
    await asyncio.gather(*[drain(stage, store) for store in stores])
    assert len(stage.received) == 1 + 64
    dead_letters = await play.store.dead(Filter(), limit=1000)
    assert len(dead_letters) == 40 + 2 * 40 - 64
    assert all(
        str(one.last_error).startswith(f"budget: 64 messages from message {message_id}; ")
        for one in dead_letters
    )


async def drain(stage: Stage, store: ChatStore) -> None:
    """Work like a process: several turns at once, each settled alone, until none is left."""
    handle = stage.app.worker(store, Path("files")).handle

    async def work(turn: LeasedTurn) -> None:
        await store.settle([(turn, await handle(turn))])

    async with asyncio.timeout(60):
        while any(count.queue == INBOX for count in await store.counts()):
            turns = await store.claim(INBOX, list(stage.app.agents), limit=5, lease=LEASE)
            await asyncio.gather(*map(work, turns))

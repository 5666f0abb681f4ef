"""Observations: every change is stored with its event, or not at all."""

from __future__ import annotations

from contextlib import suppress

import pytest

from holdfast.chat import AgentMessage, ChatMessage, ChatStore
from holdfast.errors import HoldfastError
from holdfast.memory.observation import Observation, ObservationStore, ObservationType
from holdfast.queue.event import NewEvent
from holdfast.queue.outcome import Dead, Done
from holdfast.testing.clock import Clock
from tests.conformance.steps import claim_one
from tests.memory.steps import fact, outbox

COUNTED = (
    "events",
    "history",
    "agent_messages",
    "chat_messages",
    "activity",
    "settings",
    "pairings",
    "observations",
)
NOTHING = dict.fromkeys(COUNTED, 0)


async def test_a_saved_observation_is_found(observations: ObservationStore, clock: Clock) -> None:
    saved = fact(type=ObservationType.DEDUCTIVE, observer="coder", source_message_ids=("m1", "m2"))
    assert await observations.save(saved) > 0
    found = await observations.find_by_id("acme", "w")
    assert found is not None
    assert (found.content, found.type, found.observer, found.source_message_ids) == (
        saved.content,
        ObservationType.DEDUCTIVE,
        "coder",
        ("m1", "m2"),
    )
    assert (found.created_at, found.updated_at, found.deleted_at) == (clock.now, clock.now, None)
    assert await observations.find_by_subject("acme", "user", "ann") == [found]
    assert await observations.find_by_id("other", "w") is None


async def test_saving_again_replaces_and_increments_the_version(
    observations: ObservationStore,
) -> None:
    await observations.save(fact())
    [before] = await observations.find_by_subject("acme", "USER", "ann")
    await observations.save(fact("Ann likes black tea"))
    [found] = await observations.find_by_subject("acme", "USER", "ann")
    assert (found.content, await observations.count("acme")) == ("Ann likes black tea", 1)
    assert found.version > before.version


@pytest.mark.parametrize("named", [("W", "L"), (fact(id="W"), fact(id="L"))])
async def test_every_change_writes_its_event_in_order(
    store: ChatStore,
    observations: ObservationStore,
    named: tuple[Observation | str, Observation | str],
) -> None:
    await observations.save(fact(id="W"))
    await observations.save(fact(id="L"))
    await observations.merge(*named, fact("both", id="W"))
    assert await outbox(store) == [
        ("W", "UPSERT"),
        ("L", "UPSERT"),
        ("L", "DELETE"),
        ("W", "UPSERT"),
    ]
    assert await observations.find_by_id("acme", "L") is None


@pytest.mark.parametrize(
    ("winner", "loser", "merged", "why"),
    [
        ("W", "W", fact(id="W"), "with itself"),
        (fact(id="W"), "W", fact(id="W"), "with itself"),
        ("W", "nobody", fact(id="W"), "no observation 'nobody'"),
        ("nobody", "L", fact(id="nobody"), "no observation 'nobody'"),
        ("W", "gone", fact(id="W"), "no observation 'gone'"),
        ("W", "L", fact(id="L"), "keeps the winner's id 'W'"),
        ("W", "L", fact(id="foreign"), "keeps the winner's id 'W'"),
        ("W", "L", fact(id="W", workspace_id="other"), "no observation 'W' in workspace 'other'"),
        (
            fact(id="W"),
            "L",
            fact(id="W", workspace_id="other"),
            "acme:USER:ann, not other:USER:ann",
        ),
        ("W", "of-bob", fact(id="W"), "acme:USER:bob, not acme:USER:ann"),
        ("W", fact(id="L", subject="bob"), fact(id="W"), "acme:USER:bob, not acme:USER:ann"),
        ("W", "L", fact(id="W", subject="bob"), "acme:USER:ann, not acme:USER:bob"),
    ],
)
async def test_merge_refuses_the_same_id_a_foreign_id_another_workspace_and_another_subject(
    store: ChatStore,
    observations: ObservationStore,
    winner: Observation | str,
    loser: Observation | str,
    merged: Observation,
    why: str,
) -> None:
    for one in (fact(id="W"), fact(id="L"), fact(id="of-bob", subject="bob"), fact(id="gone")):
        await observations.save(one)
    await observations.soft_delete("acme", "gone")
    before = await outbox(store)
    with pytest.raises(HoldfastError, match=why):
        await observations.merge(winner, loser, merged)
    assert await outbox(store) == before
    assert await observations.count() == 3


async def test_a_merged_observation_without_an_id_gets_the_winners(
    observations: ObservationStore,
) -> None:
    await observations.save(fact(id="W"))
    await observations.save(fact(id="L"))
    merged = Observation(workspace_id="acme", subject_type="USER", subject_id="ann", content="both")
    await observations.merge("W", "L", merged)
    assert [
        (one.id, one.content) for one in await observations.find_by_subject("acme", "USER", "ann")
    ] == [("W", "both")]


@pytest.mark.parametrize("limit", [0, -1, 2**31, 2**80])
async def test_a_limit_outside_its_range_is_the_same_error_on_all_engines(
    observations: ObservationStore, limit: int
) -> None:
    await observations.save(fact())
    why = f"a limit must be a number from 1 to 2147483647, not {limit}"
    with pytest.raises(HoldfastError, match=why):
        await observations.find_by_subject("acme", "USER", "ann", limit=limit)
    with pytest.raises(HoldfastError, match=why):
        await observations.find_by_confidence_below("acme", 1, limit=limit)
    assert len(await observations.find_by_subject("acme", "USER", "ann", limit=2**31 - 1)) == 1
    assert len(await observations.find_by_confidence_below("acme", 1, limit=1)) == 1


async def test_a_rollback_leaves_neither_the_observation_nor_its_event(
    store: ChatStore, observations: ObservationStore
) -> None:
    with suppress(RuntimeError):
        async with store.transaction() as tx:
            await observations.save(fact(), tx=tx)
            raise RuntimeError
    assert (await outbox(store), await observations.count("acme")) == ([], 0)


async def test_a_change_joins_the_callers_transaction(
    store: ChatStore, observations: ObservationStore
) -> None:
    async with store.transaction() as tx:
        await observations.save(fact(), tx=tx)
        await observations.soft_delete("acme", "w", tx=tx)
    assert await outbox(store) == [("w", "UPSERT"), ("w", "DELETE")]


async def test_a_fact_that_moves_leaves_its_old_subject(
    store: ChatStore, observations: ObservationStore
) -> None:
    await observations.save(fact())
    await observations.save(fact("Bob likes green tea", subject="bob"))
    keys = [event.event["subject_key"] for event in await store.waiting("memory", "")]
    assert keys == ["acme:USER:ann", "acme:USER:ann", "acme:USER:bob"]
    assert [operation for _, operation in await outbox(store)] == ["UPSERT", "DELETE", "UPSERT"]


async def test_deleting_a_missing_observation_does_nothing(
    store: ChatStore, observations: ObservationStore
) -> None:
    assert await observations.delete("acme", "nobody") is None
    assert await observations.soft_delete("acme", "nobody") is None
    assert await outbox(store) == []


async def test_a_soft_deleted_observation_is_hidden_until_it_is_purged(
    observations: ObservationStore, clock: Clock
) -> None:
    await observations.save(fact())
    assert await observations.soft_delete("acme", "w") is not None
    assert await observations.soft_delete("acme", "w") is None
    assert (await observations.find_by_id("acme", "w"), await observations.count("acme")) == (
        None,
        0,
    )
    assert await observations.purge_soft_deleted_before(clock.now) == 0
    clock.tick(seconds=1)
    assert await observations.purge_soft_deleted_before(clock.now) == 1


async def test_saving_a_soft_deleted_observation_restores_it(
    observations: ObservationStore,
) -> None:
    await observations.save(fact())
    await observations.soft_delete("acme", "w")
    await observations.save(fact("again"))
    found = await observations.find_by_id("acme", "w")
    assert found is not None
    assert found.content == "again"


async def test_doubtful_observations_and_subjects_are_found(observations: ObservationStore) -> None:
    await observations.save(fact(id="sure"))
    await observations.save(fact(id="guess", subject="bob", type=ObservationType.ABDUCTIVE))
    doubtful = await observations.find_by_confidence_below("acme", 0.5)
    assert [observation.id for observation in doubtful] == ["guess"]
    assert [
        (subject.key, subject.observations) for subject in await observations.find_subjects("acme")
    ] == [
        ("acme:USER:ann", 1),
        ("acme:USER:bob", 1),
    ]


async def test_a_workspace_is_deleted_with_all_its_events(
    store: ChatStore, observations: ObservationStore
) -> None:
    await observations.save(fact(id="a"))
    await observations.save(fact(id="b", subject="bob"))
    await observations.save(fact(id="c", workspace_id="other"))
    assert await observations.delete_workspace("acme") == 2
    assert (await observations.count("acme"), await observations.count()) == (0, 1)
    assert (await outbox(store))[3:] == [("a", "DELETE"), ("b", "DELETE")]


async def test_secrets_are_redacted_in_observations(observations: ObservationStore) -> None:
    await observations.save(
        fact("the password is hunter2 and the key sk-proj-abcdefghijklmnop1234")
    )
    found = await observations.find_by_id("acme", "w")
    assert found is not None
    assert "hunter2" not in found.content
    assert "abcdefghijklmnop1234" not in found.content


LINE = AgentMessage(
    agent_id="a",
    role="user",
    channel="api",
    sender="ann",
    message_id="m1",
    content="hi",
    subject="default:USER:api:id:ann",
)


async def test_forgetting_a_person_removes_the_lines_of_waiting_and_dead_messages(
    store: ChatStore, observations: ObservationStore
) -> None:
    message = {"kind": "message", "channel": "api", "sender_id": "ann", "message": "hi"}
    await store.put([NewEvent(event=message, target="a")])
    await store.settle([(await claim_one(store, "a"), Dead("broken"))])
    await store.put([NewEvent(event=message, target="a")])
    assert len(await store.agent_messages("a")) == 2
    removed = await observations.forget("default", "user", "api:id:ann")
    assert removed == NOTHING | {"events": 1, "history": 1, "agent_messages": 1}
    assert await store.agent_messages("a") == []


async def test_forgetting_a_subject_removes_every_trace(
    store: ChatStore, observations: ObservationStore, clock: Clock
) -> None:
    await observations.save(fact())
    await observations.save(fact(id="b", subject="bob"))
    await store.set_setting("activity", True)
    message = {"kind": "message", "channel": "api", "sender_id": "ann", "message": "hi"}
    messages = [(message, "m1"), (message | {"sender_id": "bob"}, "m2")]
    await store.put([NewEvent(event=event, message_id=id_) for event, id_ in messages])
    turn = await claim_one(store)
    other = await claim_one(store)
    mine = turn if turn.primary.message_id == "m1" else other
    answer = NewEvent(event={"kind": "response", "message": "hello"}, queue="outbox", target="api")
    by_itself = {"kind": "response", "channel": "api", "sender_id": "ann", "message": "and you?"}
    await store.put([NewEvent(event=by_itself, queue="outbox", target="api")])
    await store.settle([(mine, Done((answer,), (LINE,)))])
    await store.set_setting("default/api:ann", {"agent": "writer"})
    await store.set_setting("default/api:joann", {"agent": "writer"})
    removed = await observations.forget("acme", "user", "ann")
    assert removed == NOTHING | {"events": 1, "observations": 1}
    removed = await observations.forget("default", "user", "api:id:ann")
    kept = {"history": 1, "agent_messages": 1, "activity": 1, "settings": 1}
    assert removed == NOTHING | {"events": 2} | kept
    assert await observations.count("acme") == 1
    assert await store.agent_messages("a") == []
    assert await store.setting("default/api:ann") is None
    assert await store.setting("default/api:joann") == {"agent": "writer"}
    stored_frames = [
        (frame["type"], frame.get("messageId"))
        for row in await store.activity(0)
        for frame in row.frames
    ]
    blank = ("forgotten", None)
    assert stored_frames == [
        blank,
        blank,
        ("message_received", "m2"),
        ("agent_routed", "m2"),
        blank,
    ]


async def test_forgetting_a_person_removes_copies_that_others_got(
    store: ChatStore, observations: ObservationStore
) -> None:
    message = NewEvent(
        event={"kind": "message", "channel": "api", "sender_id": "ann", "message": "hi"},
        message_id="m1",
    )
    await store.put([message])
    turn = await claim_one(store)
    handoff = {
        "kind": "room",
        "message": "a member said: Ann says hi",
        "from_agent": "a",
        "line": "line_1",
    }
    line = ChatMessage(team_id="dev", from_agent="a", message="Ann says hi", key="line_1")
    other = ChatMessage(team_id="dev", from_agent="a", message="Bob says hi")
    await store.settle([(turn, Done((NewEvent(event=handoff),), (line, other)))])
    about = {"workspace_id": "default", "subject_type": "AGENT", "subject": "a"}
    await observations.save(fact(id="of-ann", source_message_ids=("m1",), **about))
    await observations.save(fact(id="of-both", source_message_ids=("m1", "m2"), **about))
    removed = await observations.forget("default", "USER", "api:id:ann")
    assert (removed["chat_messages"], removed["observations"]) == (1, 1)
    assert [line.message for line in await store.chat_messages("dev")] == ["Bob says hi"]
    assert [known.id for known in await observations.find_by_subject("default", "AGENT", "a")] == [
        "of-both"
    ]
    assert (await outbox(store))[-1] == ("of-ann", "DELETE")


def test_confidence_follows_from_type_and_sources() -> None:
    once = fact(type=ObservationType.INDUCTIVE, source_message_ids=("m1",))
    often = fact(type=ObservationType.INDUCTIVE, source_message_ids=("m1", "m2", "m3", "m3"))
    assert once.confidence == 0.5
    assert often.confidence == 0.875
    assert fact(source_message_ids=tuple(str(n) for n in range(50))).confidence == 0.99


@pytest.mark.parametrize(
    "wrong",
    [
        {"workspace_id": "a:b"},
        {"subject_type": ""},
        {"subject_id": " "},
        {"content": " "},
        {"id": ""},
    ],
)
def test_an_observation_that_could_not_be_found_again_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(HoldfastError):
        fact(**wrong)


def test_a_subject_has_a_key_in_capitals() -> None:
    assert (
        Observation(
            workspace_id="w", subject_type="user", subject_id="U:1", content="x"
        ).subject_key
        == "w:USER:U:1"
    )

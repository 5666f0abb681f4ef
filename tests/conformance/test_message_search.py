"""The search over messages finds the same on every store, live and finished, in bounded steps."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast.queue.event import OUTBOX, NewEvent
from holdfast.queue.journal import JournalEntry, Step
from holdfast.queue.outcome import Dead, Done, Snooze
from holdfast.queue.store import Filter, Store
from holdfast.store.messages import MessageFilter, MessageSearch, State
from holdfast.store.scoped import Scope
from holdfast.testing.clock import Clock
from holdfast.testing.history import GeneratedHistory, fill_history

from .steps import claim_one, end


async def say(store: Store, text: str, target: str = "coder", **fields: Any) -> int:
    own = {key: fields.pop(key) for key in ("channel", "sender", "sender_id") if key in fields}
    payload = {"kind": "message", "channel": "web", "sender": "Ada", "message": text} | own
    [id_] = await store.put([NewEvent(event=payload, target=target, **fields)])
    assert id_ is not None
    return id_


async def ids(store: Store, scope: Scope | None = None, **which: Any) -> list[int]:
    found = await MessageSearch(store, scope).find(MessageFilter(**which))
    assert found.next_before_id is None
    return [event.id for event, _ in found.messages]


async def test_live_and_finished_messages_are_one_list_newest_first(store: Store) -> None:
    first = await say(store, "one")
    await end(store, await claim_one(store, "coder"))
    second = await say(store, "two")
    await end(store, await claim_one(store, "coder"), Dead("no"))
    third = await say(store, "three")
    await store.put([NewEvent(event={"kind": "response"}, queue=OUTBOX, target="web")])

    found = await MessageSearch(store).find(MessageFilter())

    assert [(event.id, state) for event, state in found.messages] == [
        (third, "pending"),
        (second, "dead"),
        (first, "completed"),
    ]


async def test_each_filter_selects_and_all_must_match(store: Store) -> None:
    one = await say(store, "What BROKE the build?", "coder", sender="Ada", channel="web")
    two = await say(store, "what broke?", "writer", sender="Bob", sender_id="U7", channel="api")
    slack = NewEvent(event={"type": "app_mention", "text": "broke", "user": "U7"}, target="coder")
    [three] = await store.put([slack])

    assert await ids(store, agents=["coder"]) == [three, one]
    assert await ids(store, channel="web") == [one]
    assert await ids(store, channel="slack") == [three]
    assert await ids(store, sender="ADA") == [one]
    assert await ids(store, sender="U7") == [three, two]
    assert await ids(store, text="broke the") == [one]
    assert await ids(store, text="100%") == []
    assert await ids(store, agents=["writer"], text="BROKE") == [two]
    assert await ids(store, agents=["writer"], channel="web") == []


async def test_states_are_told_apart(store: Store, clock: Clock) -> None:
    done, dead = await say(store, "1"), await say(store, "2")
    await end(store, await claim_one(store, "coder"), Done())
    await end(store, await claim_one(store, "coder"), Dead("no"))
    waiting = await say(store, "3")
    turn = await claim_one(store, "coder")
    step = Step(key="paid", state="started", attempt=1, kind="signal", signal="paid")
    await store.record(JournalEntry(turn=turn, steps=[step]))
    await end(store, turn, Snooze(timedelta(hours=1)))
    running = await say(store, "4")
    await claim_one(store, "coder")
    pending = await say(store, "5")

    states: dict[State, int] = {
        "completed": done,
        "dead": dead,
        "waiting": waiting,
        "processing": running,
        "pending": pending,
    }
    for state, id_ in states.items():
        found = await MessageSearch(store).find(MessageFilter(state=state))
        assert [(event.id, of) for event, of in found.messages] == [(id_, state)]
    assert await ids(store, outcome="dead") == [dead]
    assert await ids(store, outcome="cancelled") == []
    assert await ids(store, outcome="dead", state="completed") == []


async def test_discarded_messages_are_left_out(store: Store) -> None:
    id_ = await say(store, "secret")
    await end(store, await claim_one(store, "coder"), Dead("no"))
    await store.discard(Filter(ids=[id_]))

    assert await ids(store) == []


async def test_times_bound_the_list_exactly(store: Store, clock: Clock) -> None:
    found = []
    for _ in range(6):
        found.append((await say(store, "tick"), clock.now))
        clock.tick(hours=3)
    (first, _), (second, since), _, (fourth, until), *_ = found

    assert await ids(store, since=since, until=until) == [fourth, fourth - 1, second]
    assert await ids(store, until=found[0][1]) == [first]
    assert await ids(store, until=found[0][1] - timedelta(seconds=1)) == []
    assert await ids(store, since=clock.now) == []


async def test_pages_go_on_where_the_last_one_ended(store: Store) -> None:
    all_ids = [await say(store, str(number)) for number in range(25)]
    for _ in range(10):
        await end(store, await claim_one(store, "coder"))
    seen: list[int] = []
    before_id = None
    while True:
        found = await MessageSearch(store).find(MessageFilter(), limit=10, before_id=before_id)
        seen += [event.id for event, _ in found.messages]
        before_id = found.next_before_id
        if before_id is None:
            break

    assert seen == all_ids[::-1]


async def test_newer_messages_are_found_by_since_id(store: Store) -> None:
    await say(store, "old")
    last = await say(store, "seen")
    new = await say(store, "new")

    found = await MessageSearch(store).find(MessageFilter(), since_id=last)

    assert [event.id for event, _ in found.messages] == [new]


async def test_a_search_for_little_ends_and_says_where_to_go_on(store: Store) -> None:
    needle = await say(store, "needle")
    await store.put(
        [NewEvent(event={"kind": "message", "message": "hay"}, target="coder") for _ in range(120)]
    )
    search = MessageSearch(store, first_window=10, most_searched=40)
    which, pages, before_id, seen = MessageFilter(text="needle"), 0, None, list[int]()
    while True:
        found = await search.find(which, before_id=before_id)
        pages, before_id = pages + 1, found.next_before_id
        seen += [event.id for event, _ in found.messages]
        if before_id is None:
            break
        assert found.searched_to is not None

    assert seen == [needle]
    assert pages == 2


async def test_a_slow_search_ends_by_the_clock(store: Store) -> None:
    for number in range(30):
        await say(store, str(number))
    now = iter(range(100))
    search = MessageSearch(store, clock=lambda: next(now), first_window=10)

    found = await search.find(MessageFilter(text="none"))

    assert found.messages == []
    assert found.next_before_id is not None


async def test_a_page_ends_at_its_bytes_and_loses_nothing(store: Store) -> None:
    all_ids = [await say(store, f"{number} " + "x" * 1000) for number in range(12)]
    for _ in range(6):
        await end(store, await claim_one(store, "coder"))
    seen: list[int] = []
    before_id = None
    while True:
        found = await MessageSearch(store).find(
            MessageFilter(), before_id=before_id, most_bytes=2500
        )
        seen += [event.id for event, _ in found.messages]
        before_id = found.next_before_id
        if before_id is None:
            break

    assert seen == all_ids[::-1]


async def test_a_scope_shows_only_its_own(store: Store) -> None:
    own = await say(store, "mine", sent_by="token-1", channel="web")
    other = await say(store, "theirs", "writer", sent_by="token-2", channel="api")

    assert await ids(store, Scope(sent_by="token-1")) == [own]
    assert await ids(store, Scope(channels=("api",))) == [other]
    assert await ids(store, Scope(agents=("coder",))) == [own]
    assert await ids(store, Scope(agents=("coder",)), agents=["writer"]) == []


async def test_a_generated_history_is_searched_by_every_filter(
    store: Store, database_url: str, clock: Clock
) -> None:
    fill_history(database_url, GeneratedHistory(rows=2000, until=clock.now, needle_every=100))

    found = await MessageSearch(store).find(MessageFilter(text="needle"), limit=1000)
    dead = await MessageSearch(store).find(MessageFilter(state="dead"), limit=1000)
    half = clock.now - timedelta(days=3.5)
    late = await MessageSearch(store).find(MessageFilter(since=half), limit=1000)
    early = await MessageSearch(store).find(MessageFilter(until=half), limit=1000)

    assert len(found.messages) == 10
    assert len(dead.messages) == 20
    assert len(late.messages) + len(early.messages) in (1000, 1001)
    assert min(event.id for event, _ in late.messages) > 900

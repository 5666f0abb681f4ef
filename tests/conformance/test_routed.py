"""The payload stays as the platform sent it; routed text and team have columns."""

from __future__ import annotations

from datetime import timedelta

from holdfast.message import team_of, text_of
from holdfast.queue.event import INBOX, Event, NewEvent
from holdfast.queue.outcome import Dead, Done
from holdfast.queue.store import Filter, Store
from tests.conformance.by_hand import insert
from tests.conformance.peek import Seen, peek

SENT = {"kind": "message", "channel": "api", "message": "@coder fix it"}
ROUTED = NewEvent(event=SENT, routed_text="fix it", routed_team="dev")
LEASE = timedelta(minutes=1)


async def claim(store: Store) -> Event:
    [turn] = await store.claim(INBOX, [""], limit=1, lease=LEASE)
    assert (text_of(turn.primary), team_of(turn.primary)) == ("fix it", "dev")
    return turn.primary


def stored(url: str, table: str) -> list[tuple[object, object, object]]:
    with peek(url) as looking:
        rows: Seen = looking.rows(table)
    return [(row["event"], row["routed_text"], row["routed_team"]) for row in rows.values()]


async def test_what_routing_finds_goes_into_columns(store: Store, database_url: str) -> None:
    await store.put([ROUTED])
    await store.put([ROUTED, NewEvent(event=SENT)])
    assert stored(database_url, "event") == [(SENT, "fix it", "dev")] * 2 + [(SENT, None, None)]


async def test_many_at_once_keep_what_routing_found(store: Store, database_url: str) -> None:
    await store.put([ROUTED if number % 2 else NewEvent(event=SENT) for number in range(250)])
    assert stored(database_url, "event")[:2] == [(SENT, None, None), (SENT, "fix it", "dev")]


async def test_it_stays_with_the_event_in_history_by_retry_and_by_replay(
    store: Store, database_url: str
) -> None:
    [id_] = await store.put([ROUTED])
    assert id_ is not None
    for again in ("retry", "replay"):
        await claim(store)
        [event] = await store.leased(INBOX)
        assert text_of(event) == "fix it"
        assert await store.cancel(event.id, "no")
        assert stored(database_url, "event_hist") == [(SENT, "fix it", "dev")]
        await (store.retry(Filter()) if again == "retry" else store.replay([id_]))
    await claim(store)
    assert {text_of(event) for event in await store.recent(INBOX)} == {"fix it"}


async def test_what_a_turn_emits_keeps_what_routing_found(store: Store, database_url: str) -> None:
    await store.put([NewEvent(event=SENT)])
    [turn] = await store.claim(INBOX, [""], limit=1, lease=LEASE)
    await store.settle([(turn, Done(emits=(ROUTED,)))])
    assert stored(database_url, "event") == [(SENT, "fix it", "dev")]
    await claim(store)


async def test_a_discarded_event_keeps_nothing_of_it(store: Store, database_url: str) -> None:
    await store.put([ROUTED])
    [turn] = await store.claim(INBOX, [""], limit=1, lease=LEASE)
    await store.settle([(turn, Dead("no"))])
    await store.discard(Filter())
    assert stored(database_url, "event_hist") == [({}, None, None)]


async def test_an_event_of_the_release_before_is_read_as_it_was(
    store: Store, database_url: str
) -> None:
    long_ago = "0" if database_url.startswith("sqlite") else "'1970-01-01Z'"
    event = """'{"text": "@coder fix it", "routed_text": "fix it", "routed_team": "dev"}'"""
    insert(database_url, {"vt": long_ago, "event": event})
    await claim(store)

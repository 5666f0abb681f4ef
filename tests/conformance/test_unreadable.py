"""An unreadable row is refused or becomes a dead letter; all others go on."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from holdfast.chat import ChatStore
from holdfast.errors import Unreadable
from holdfast.memory.observation import Observation
from holdfast.message import text_of
from holdfast.queue.event import INBOX, NewEvent
from holdfast.queue.outcome import Dead, Done, Retry, Snooze
from holdfast.queue.policy import outcome_of
from holdfast.queue.store import Filter, SweepPolicy
from holdfast.queue.turn import LeasedTurn
from holdfast.store import open_store
from holdfast.store.memory import open_observations
from tests.conformance.by_hand import (
    BROKEN_SQLITE_ROWS,
    GOOD,
    ODD_PAYLOADS,
    POSTGRES_ROWS,
    SQLITE_ROWS,
    execute,
    insert,
)

LEASE = timedelta(minutes=1)
NEVER_ENDS = timedelta.max


def refused_rows(url: str) -> dict[str, dict[str, str]]:
    return SQLITE_ROWS if url.startswith("sqlite") else POSTGRES_ROWS


def rows_from_before(url: str) -> dict[str, dict[str, str]]:
    return SQLITE_ROWS | BROKEN_SQLITE_ROWS if url.startswith("sqlite") else POSTGRES_ROWS


async def work_off(store: ChatStore) -> list[int]:
    """Claim and settle as a consumer does, until nothing is ready; the ids of what was done."""
    done: list[int] = []
    while turns := await store.claim(INBOX, [""], limit=5, lease=LEASE, collect_limit=3):
        for turn in turns:
            done += await _worked(store, turn)
    return done


async def _worked(store: ChatStore, turn: LeasedTurn) -> list[int]:
    try:
        assert turn.primary.event["text"]
    except Unreadable as error:
        await store.settle([(turn, outcome_of(error))])
        return []
    await store.settle([(turn, Done())])
    return turn.ids


async def read_everything(store: ChatStore) -> None:
    """Every reader that people, pages and processes use."""
    await store.counts()
    await store.next_due(INBOX, [""])
    await store.leased(INBOX)
    await store.waiting(INBOX, "")
    await store.recent(INBOX)
    await store.finished(Filter())
    await store.dead(Filter())
    await store.died(INBOX, (datetime(1, 1, 3, tzinfo=UTC), 0), limit=10)
    await store.outcomes(INBOX)
    await store.processes()
    await store.activity(0)
    await store.agent_messages("coder")
    await store.chat_messages("dev")
    for event in await store.recent(INBOX):
        assert await store.live(event.id) or await store.finished(Filter(ids=[event.id]))


async def test_a_row_that_no_client_could_read_is_refused(database_url: str) -> None:
    for columns in refused_rows(database_url).values():
        with pytest.raises((psycopg.errors.CheckViolation, sqlite3.IntegrityError)):
            insert(database_url, columns)


async def test_one_unreadable_row_from_before_stops_no_reader(database_url: str) -> None:
    for name, columns in rows_from_before(database_url).items():
        insert(database_url, {"message_id": f"'{name}'", **columns}, checked=False)
    good = insert(database_url, GOOD)
    async with open_store(database_url) as store:
        await read_everything(store)
        assert good in await work_off(store)
        await read_everything(store)


async def test_every_unreadable_row_becomes_a_dead_letter(database_url: str) -> None:
    names = {}
    for name, columns in rows_from_before(database_url).items():
        names[insert(database_url, {"lane": "'one'", **columns}, checked=False)] = name
        insert(database_url, GOOD)
    async with open_store(database_url) as store:
        await work_off(store)
        await store.sweep(SweepPolicy())
        await work_off(store)
        live = [
            names[event.id]
            for event in await store.waiting(INBOX, "", limit=100)
            if event.id in names
        ]
        # SQLite does not check changes; a moment that never comes is readable.
        assert [name for name in live if not name.startswith("vt")] == []
        for letter in await store.dead(Filter(ids=list(names)), limit=100):
            assert letter.error_class == "Unreadable", names[letter.id]


async def test_an_event_that_is_no_object_becomes_a_dead_letter(database_url: str) -> None:
    ids = [insert(database_url, {"lane": "'one'", **columns}) for columns in ODD_PAYLOADS.values()]
    good = insert(database_url, GOOD)
    async with open_store(database_url) as store:
        assert await work_off(store) == [good]
        dead_letters = await store.dead(Filter(), limit=100)
        assert sorted(letter.id for letter in dead_letters) == ids
        assert {letter.error_class for letter in dead_letters} == {"Unreadable"}
        shown = [text_of(letter) for letter in dead_letters if letter.id != ids[-1]]
        assert all("be read" in text or "not a JSON object" in text for text in shown)


async def test_an_unreadable_dead_letter_is_retried_replayed_and_discarded_as_any(
    database_url: str,
) -> None:
    ids = [insert(database_url, columns) for columns in ODD_PAYLOADS.values() if "event" in columns]
    async with open_store(database_url) as store:
        await work_off(store)
        assert await store.retry(Filter(ids=ids)) == ids
        await work_off(store)
        assert len(await store.replay(ids)) == len(ids)
        await work_off(store)
        assert len(await store.dead(Filter(), limit=100)) == 2 * len(ids)
        await store.discard(Filter())
        await read_everything(store)


async def test_history_with_moments_out_of_range_can_be_listed_and_retried(
    database_url: str,
) -> None:
    async with open_store(database_url) as store:
        [id_] = await store.put([NewEvent(event={"text": "old"})])
        [turn] = await store.claim(INBOX, [""], limit=1, lease=LEASE)
        await store.settle([(turn, Dead("boom"))])
        execute(
            database_url,
            "update event_hist set created_at = 9223372036854775807, claimed = '[null]'",
            "update agent.event_hist set created_at = 'infinity', claimed = '{infinity}'",
        )
        [letter] = await store.dead(Filter())
        assert letter.created_at.year == 9999
        assert await store.retry(Filter()) == [id_]
        assert await work_off(store) == [id_]


async def test_a_turn_put_off_for_ever_stays_readable(database_url: str) -> None:
    async with open_store(database_url) as store:
        await store.put([NewEvent(event={"text": str(number)}) for number in range(3)])
        turns = await store.claim(INBOX, [""], limit=3, lease=LEASE)
        snooze, retry, done = Snooze(NEVER_ENDS), Retry("later", NEVER_ENDS), Done()
        ends = await store.settle(list(zip(turns, (snooze, retry, done), strict=True)))
        ended = [end.ended for end in ends]  # type: ignore[union-attr]
        assert ended == ["back", "back", "completed"]
        due = await store.next_due(INBOX, [""])
        assert due is not None
        assert due.year > 3000
        await read_everything(store)


async def test_odd_rows_beside_the_events_stop_no_reader(database_url: str) -> None:
    execute(
        database_url,
        "insert into process (id, host, started_at, seen_at)"
        f" values ('p', 'h', {2**63 - 1}, {-(2**63)})",
        "insert into agent.process (id, host, started_at, seen_at)"
        " values ('p', 'h', 'infinity', '-infinity')",
    )
    for frames in ("[1]", "{}", '"x"', '[{"no": "type"}]', "[null]"):
        execute(
            database_url,
            f"insert into activity (frames) values ('{frames}')",
            f"insert into agent.activity (frames) values ('{frames}')",
        )
    execute(
        database_url,
        f"insert into setting (key, value) values ('deep', '{'[' * 300 + ']' * 300}')",
        f"insert into agent.setting (key, value) values ('deep', '{'[' * 300 + ']' * 300}')",
    )
    async with open_store(database_url) as store:
        await read_everything(store)
        assert await store.setting("deep") is None
        assert [frame["type"] for row in await store.activity(0) for frame in row.frames] == [
            "unreadable"
        ] * 5
        await store.reap()


async def test_an_odd_observation_stops_no_reader(database_url: str) -> None:
    async with open_store(database_url) as store:
        observations = open_observations(store)
        await observations.save(
            Observation(
                workspace_id="w", subject_type="USER", subject_id="u", content="tea", id="o"
            )
        )
        execute(
            database_url,
            "update observation set type = 'RUMOUR', created_at = 9223372036854775807,"
            " source_message_ids = '5'",
            "update agent.observation set type = 'RUMOUR', created_at = 'infinity',"
            " source_message_ids = '{NULL}'",
        )
        [found] = await observations.find_by_subject("w", "USER", "u")
        assert (found.content, found.source_message_ids) == ("tea", ())

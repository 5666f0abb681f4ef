"""The checker finds what is wrong with doctored histories, and nothing in a sound one."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.queue.event import Event, NewEvent
from holdfast.queue.outcome import Done, Lost, Retry, Settled
from holdfast.queue.store import Store
from holdfast.queue.turn import LeasedTurn
from tests.checker import Report, check
from tests.conformance.steps import claim_one, end, put_lane
from tests.journal import Journal, Row, Run, read_journal, read_tables


def run(id: int, started_at: int, ended_at: int | None, **fields: object) -> Run:
    """Return a run that completed its event in lane a, unless `fields` say otherwise."""
    defaults: dict[str, object] = {
        "process": 1,
        "queue": "inbox",
        "lane": "a",
        "fence": started_at,
        "attempt": 1,
        "settles": ["completed"],
    }
    values: dict[str, Any] = {**defaults, **fields}
    return Run(id=id, started_at=started_at, ended_at=ended_at, **values)


RUNS = [
    run(1, 10, 20),
    run(2, 30, 40),
    run(3, 50, 60),
    run(4, 35, 45, lane="b"),
    run(5, 12, 58, lane=None),
]
ROWS = [Row(id=id, claims=1, outcome="completed") for id in (1, 2, 3, 4, 5)]
STORED = [1, 2, 3, 4, 5]


def violations(runs: list[Run] = RUNS, rows: list[Row] = ROWS, **options: Any) -> list[str]:
    ordered = sorted(runs, key=lambda run: run.started_at)
    return check(ordered, rows, STORED, **options).violations


def test_a_sound_history_has_no_violations() -> None:
    assert check(RUNS, ROWS, STORED) == Report([], len(RUNS), [])


def test_a_lost_event_is_found() -> None:
    assert "event 2 was stored and is lost: neither live nor in history" in violations(
        rows=[ROWS[0], *ROWS[2:]]
    )


def test_an_event_that_nobody_ran_yet_is_not_lost() -> None:
    assert violations(runs=RUNS[1:], rows=[Row(id=1), *ROWS[1:]]) == []


def test_an_event_in_both_tables_is_found() -> None:
    assert violations(rows=[*ROWS, Row(id=3, claims=1)]) == [
        "event 3 is there 2 times",
        "event 3 (fence 50, process 1) was settled as 'completed' and is live",
    ]


def test_swapped_events_of_a_lane_are_found() -> None:
    swapped = [run(2, 10, 20), run(1, 30, 40), *RUNS[2:]]
    assert violations(swapped) == [
        "lane a of inbox: event 1 (fence 30, process 1) ran after event 2 (fence 10, process 1)"
    ]


def test_an_event_that_a_person_retried_may_run_late() -> None:
    assert violations([run(2, 10, 20), run(1, 30, 40), *RUNS[2:]], unordered=[1]) == []


def test_overlapping_runs_of_a_lane_are_found() -> None:
    [fault] = violations([run(1, 10, 31), *RUNS[1:]])
    assert fault == (
        "lane a of inbox: event 2 (fence 30, process 1) "
        "started before event 1 (fence 10, process 1) was through"
    )


def test_a_long_run_overlaps_with_more_than_the_next() -> None:
    assert len(violations([run(1, 10, 55), *RUNS[1:]])) == 2


def test_one_event_in_two_hands_is_found() -> None:
    twice = run(1, 15, 25, process=2, settles=["lost"])
    faults = violations([*RUNS, twice], rows=[replace(ROWS[0], claims=2), *ROWS[1:]])
    assert any(
        "started before event 1 (fence 10, process 1) was through" in fault for fault in faults
    )
    assert (
        "event 1 (fence 15, process 2) was lost, though nobody died and no lease ran out" in faults
    )


def test_a_claim_settled_twice_is_found() -> None:
    twice = [run(1, 10, 20, settles=["completed", "completed"]), *RUNS[1:]]
    assert "event 1 (fence 10, process 1) was settled 2 times: completed, completed" in violations(
        twice
    )
    assert "event 1 ended 2 times" in violations(twice)


def test_an_event_that_ended_under_two_claims_is_found() -> None:
    again = [*RUNS[:2], RUNS[2], run(3, 70, 80, process=2), *RUNS[3:]]
    rows = [*ROWS[:2], replace(ROWS[2], claims=2), *ROWS[3:]]
    faults = [
        "event 3 ended 2 times",
        f"{again[2]} completed although the turn was that of {again[3]}",
    ]
    assert violations(again, rows) == faults
    assert violations(again, rows, leases_may_end=True) == faults


def test_a_claim_that_was_never_settled_is_found() -> None:
    unsettled = [run(1, 10, 20, settles=[]), *RUNS[1:]]
    assert violations(unsettled) == [
        "event 1 (fence 10, process 1) was never settled, though nobody died and no lease ran out"
    ]


def test_a_settle_that_the_tables_do_not_show_is_found() -> None:
    rows = [Row(id=1, claims=1), *ROWS[1:]]
    assert violations(rows=rows) == [
        "event 1 (fence 10, process 1) was settled as 'completed' and is live"
    ]
    dead = [replace(ROWS[0], outcome="dead"), *ROWS[1:]]
    assert violations(rows=dead) == [
        "event 1 (fence 10, process 1) was settled as 'completed' and is dead"
    ]


def test_a_run_that_no_claim_shows_is_found() -> None:
    rows = [replace(ROWS[0], claims=0), *ROWS[1:]]
    assert violations(rows=rows) == ["event 1 ran 1 times and was claimed 0 times"]


def test_a_claim_that_nobody_ran_is_found_unless_somebody_died() -> None:
    rows = [replace(ROWS[0], claims=2), *ROWS[1:]]
    assert violations(rows=rows) == ["event 1 ran 1 times and was claimed 2 times"]
    assert violations(rows=rows, may_die=True) == []


def test_a_retry_runs_again_before_what_follows() -> None:
    back = run(1, 5, 8, settles=["back"])
    rows = [replace(ROWS[0], claims=2), *ROWS[1:]]
    assert violations([back, *RUNS], rows) == []
    late = [run(1, 5, 8, settles=["back"]), run(2, 10, 20), run(1, 30, 40), *RUNS[2:]]
    assert len(violations(late, rows)) == 1


def test_a_crash_costs_a_run_and_is_reported() -> None:
    crashed = run(1, 5, None, settles=[])
    rows = [replace(ROWS[0], claims=2), *ROWS[1:]]
    report = check([crashed, *RUNS], rows, STORED, may_die=True)
    assert report.violations == []
    assert report.reruns == [
        "event 1 (fence 10, process 1) ran again: event 1 (fence 5, process 1) had no answer"
    ]


TWICE = [replace(ROWS[0], claims=2), *ROWS[1:]]


def test_a_zombie_that_lost_its_turn_may_overlap_where_leases_end() -> None:
    zombie = run(1, 5, 99, process=2, settles=["lost"])
    report = check([zombie, *RUNS], TWICE, STORED, leases_may_end=True)
    assert report.violations == []
    assert report.reruns == [
        "event 1 (fence 10, process 1) ran again: event 1 (fence 5, process 2) had lost its turn"
    ]


def test_two_handlers_of_one_event_at_once_are_found_where_processes_only_die() -> None:
    """A process that was taken for dead, and lived."""
    for settles in (["lost"], []):
        zombie = run(1, 5, 15, process=2, settles=settles)
        assert violations([zombie, *RUNS], TWICE, may_die=True) == [
            "lane a of inbox: event 1 (fence 10, process 1) "
            "started before event 1 (fence 5, process 2) was through"
        ]
        assert violations([zombie, *RUNS], TWICE, leases_may_end=True) == []


def test_one_that_lost_its_turn_was_alone_until_then() -> None:
    """Its event is taken over at 30: what of its lane ran before that ran beside it."""
    lost = run(1, 5, 99, process=2, settles=["lost"])
    runs = [lost, run(2, 10, 20), run(1, 30, 40), *RUNS[2:]]
    faults = violations(runs, TWICE, leases_may_end=True)
    assert f"lane a of inbox: {runs[1]} started before {lost} was through" in faults


def test_a_turn_that_is_lost_to_nobody_excuses_nothing() -> None:
    """As after an answer that was lost on the way: the end counted, and so does the run."""
    lost = run(1, 10, 35, settles=["lost"])
    assert violations([lost, *RUNS[1:]], leases_may_end=True) == [
        "lane a of inbox: event 2 (fence 30, process 1) "
        "started before event 1 (fence 10, process 1) was through"
    ]


def test_a_zombie_that_was_overtaken_before_it_started_is_no_fault_where_leases_end() -> None:
    """It stood still between claim and start."""
    late = run(1, 15, None, fence=5, process=2, settles=[])
    assert violations([*RUNS, late], TWICE, leases_may_end=True) == []
    assert violations([*RUNS, late], TWICE, may_die=True) != []
    newest = run(1, 15, None, fence=11, process=2, settles=[])
    assert violations([*RUNS, newest], TWICE, leases_may_end=True) != []


def test_events_that_were_collected_are_lost_together_where_leases_end() -> None:
    """The second event of a lost turn waits, although nobody has run it again yet."""
    lost: dict[str, object] = {"fence": 10, "settles": ["lost"]}
    again = [run(1, 10, 35, **lost), run(2, 10, 35, **lost), run(1, 30, 40), run(2, 41, 45)]
    rows = [Row(id=id, claims=2, outcome="completed") for id in (1, 2)] + ROWS[2:]
    assert violations([*again, *RUNS[2:]], rows, leases_may_end=True) == []


def test_a_zombie_whose_end_counted_is_never_excused() -> None:
    for ended in ("completed", "back", "dead"):
        late = run(1, 15, 25, fence=5, process=2, settles=[ended])
        assert violations([*RUNS, late], TWICE, leases_may_end=True) != []


def test_an_event_that_was_handled_and_never_answered_is_found() -> None:
    unanswered = [run(1, 10, 20, emits=1, settles=[]), *RUNS[1:]]
    assert violations(unanswered, leases_may_end=True) == ["event 1 emitted 0 events instead of 1"]
    live = [Row(id=1, claims=1), *ROWS[1:], Row(id=6, parent_id=1)]
    assert violations(unanswered, live, leases_may_end=True) == [
        "event 1 is live and emitted 1 events"
    ]


def test_what_was_collected_and_came_back_is_worked_one_by_one() -> None:
    together = [run(id, 5, 8, settles=["back"]) for id in (1, 2, 3)]
    rows = [replace(row, claims=1 + (row.id <= 3)) for row in ROWS]
    assert violations([*together, *RUNS], rows) == []
    swapped = [*together, run(2, 10, 20), run(1, 30, 40), *RUNS[2:]]
    assert len(violations(swapped, rows)) == 1


def test_an_end_under_a_fence_that_is_no_longer_the_latest_is_found() -> None:
    owner = run(1, 15, 25, process=2, settles=["lost"])
    faults = violations(
        [*RUNS, owner], [replace(ROWS[0], claims=2), *ROWS[1:]], leases_may_end=True
    )
    assert faults == [
        "event 1 (fence 10, process 1) completed although the turn was that of "
        "event 1 (fence 15, process 2)",
        "lane a of inbox: event 1 (fence 15, process 2) "
        "started before event 1 (fence 10, process 1) was through",
    ]


def test_emits_are_there_as_often_as_the_turn_said() -> None:
    emitting = [run(1, 10, 20, emits=1), *RUNS[1:]]
    child = Row(id=6, parent_id=1)
    assert violations(emitting, [*ROWS, child]) == []
    assert violations(emitting) == ["event 1 emitted 0 events instead of 1"]
    assert violations(emitting, [*ROWS, child, replace(child, id=7)]) == [
        "event 1 emitted 2 events instead of 1"
    ]
    assert violations(RUNS, [*ROWS, child]) == ["event 1 emitted 1 events instead of 0"]


def test_what_has_not_completed_emits_nothing() -> None:
    back = [run(1, 10, 20, emits=1, settles=["back"]), *RUNS[1:]]
    rows = [Row(id=1, claims=1), *ROWS[1:], Row(id=6, parent_id=1)]
    assert violations(back, rows) == ["event 1 is live and emitted 1 events"]


def test_the_answer_to_a_crash_after_the_commit_is_in_the_tables() -> None:
    unsettled = [run(1, 10, 20, emits=1, settles=[]), *RUNS[1:]]
    assert violations(unsettled, [*ROWS, Row(id=6, parent_id=1)], leases_may_end=True) == []
    assert violations(unsettled, leases_may_end=True) == ["event 1 emitted 0 events instead of 1"]


def turn_of(*ids: int, fence: int = 7) -> LeasedTurn:
    names = [field.name for field in dataclasses.fields(Event)]
    fields: dict[str, Any] = dict.fromkeys(names)
    fields |= {"queue": "inbox", "lane": "a", "attempts": 1}
    return LeasedTurn("inbox", fence, tuple(Event(**fields | {"id": id}) for id in ids))


def test_a_journal_reads_as_it_was_written(tmp_path: Path) -> None:
    turn = turn_of(1, 2)
    with Journal(tmp_path / "journal") as journal, Journal(tmp_path / "journal") as another:
        journal.start(turn)
        another.start(turn_of(3, fence=8))
        journal.end(turn, emits=2)
        journal.settle(turn, Settled(turn))
        another.end(turn_of(3, fence=8))
        another.settle(turn_of(3, fence=8), Lost(turn))
    runs, faults = read_journal(tmp_path / "journal")
    assert [(run.id, run.fence, run.emits, run.ended) for run in runs] == [
        (1, 7, 2, "completed"),
        (2, 7, 0, "completed"),
        (3, 8, 0, "lost"),
    ]
    assert all(run.ended_at is not None and run.started_at < run.ended_at for run in runs)
    assert faults == []


def test_a_fence_that_was_given_twice_is_found(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal") as journal:
        journal.start(turn_of(1))
        journal.start(turn_of(1))
        journal.end(turn_of(9))
    _, faults = read_journal(tmp_path / "journal")
    assert len(faults) == 2
    assert "was started under a fence" in faults[0]
    assert "without a start" in faults[1]


async def test_a_real_history_is_read_from_both_tables(
    store: Store, database_url: str, tmp_path: Path
) -> None:
    stored = await put_lane(store, 3)
    reply = NewEvent(event={}, queue="outbox")
    with Journal(tmp_path / "journal") as journal:
        for outcome in (Retry("again"), Done((reply,))):
            turn = await claim_one(store)
            journal.start(turn)
            journal.end(turn, emits=len(getattr(outcome, "emits", ())))
            journal.settle(turn, await end(store, turn, outcome))
    runs, faults = read_journal(tmp_path / "journal")
    rows = read_tables(database_url)
    assert check(runs, rows, stored) == Report([], 2, [])
    assert faults == []
    assert sorted((row.id, row.claims, row.outcome) for row in rows) == [
        (stored[0], 2, "completed"),
        (stored[1], 0, None),
        (stored[2], 0, None),
        (stored[2] + 1, 0, None),
    ]

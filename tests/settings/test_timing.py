"""Times of schedules: cron in time zones with both clock changes, intervals, and one moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from holdfast.settings.timing import parse_timing

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
SPRING = {BERLIN: datetime(2026, 3, 29), NEW_YORK: datetime(2026, 3, 8)}  # noqa: DTZ001
AUTUMN = {BERLIN: datetime(2026, 10, 25), NEW_YORK: datetime(2026, 11, 1)}  # noqa: DTZ001
REPEATED = {BERLIN: "02", NEW_YORK: "01"}
"""The hour that the clock shows twice in autumn."""
START = datetime(2026, 1, 1, tzinfo=UTC)


def local_runs(cron: str, zone: str, day: datetime) -> list[str]:
    """Return the runs of a day, as a clock on the wall and the offset show them."""
    tz = ZoneInfo(zone)
    begin = day.replace(tzinfo=tz).astimezone(UTC)
    timing, runs = parse_timing(cron, zone, START), list[datetime]()
    run = timing.after(begin - timedelta(seconds=1))
    while run is not None and run.astimezone(tz).date() == day.date():
        runs.append(run)
        run = timing.after(run)
    assert timing.between(begin, runs[-1], 1000) == runs, "both directions agree"
    return [run.astimezone(tz).strftime("%H:%M%z") for run in runs]


@pytest.mark.parametrize(("zone", "offset"), [(BERLIN, "+0200"), (NEW_YORK, "-0400")])
def test_a_fixed_time_in_the_spring_gap_runs_right_after_it(zone: str, offset: str) -> None:
    assert local_runs("30 2 * * *", zone, SPRING[zone]) == [f"03:00{offset}"]
    assert local_runs("0 9 * * *", zone, SPRING[zone]) == [f"09:00{offset}"]


@pytest.mark.parametrize(("zone", "offset"), [(BERLIN, "+0200"), (NEW_YORK, "-0400")])
def test_a_fixed_time_in_the_repeated_hour_runs_in_the_first_one(zone: str, offset: str) -> None:
    hour = REPEATED[zone]
    assert local_runs(f"30 {int(hour)} * * *", zone, AUTUMN[zone]) == [f"{hour}:30{offset}"]


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK])
def test_an_hourly_run_follows_the_clock_over_both_changes(zone: str) -> None:
    spring = [run[:5] for run in local_runs("0 * * * *", zone, SPRING[zone])]
    autumn = [run[:5] for run in local_runs("0 * * * *", zone, AUTUMN[zone])]
    assert (len(spring), len(autumn)) == (23, 25)
    assert "02:00" not in spring
    assert autumn.count(f"{REPEATED[zone]}:00") == 2


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK])
def test_no_run_is_computed_in_the_past_or_lost_inside_of_the_repeated_hour(zone: str) -> None:
    timing = parse_timing("15 1-3 * * *", zone, START)
    begin = AUTUMN[zone].replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    runs = timing.between(begin, begin + timedelta(hours=6), 1000)
    assert len(runs) == 3
    for minutes in range(0, 6 * 60, 7):
        now = begin + timedelta(minutes=minutes)
        following = [run for run in runs if run > now]
        assert timing.after(now) == following[0] if following else True
        assert timing.between(begin, now, 1000) == [run for run in runs if run <= now]


def test_weekdays_are_those_of_the_zone() -> None:
    timing = parse_timing("0 9 * * mon-fri", BERLIN, START)
    friday = datetime(2026, 3, 27, 8, tzinfo=UTC)
    monday = datetime(2026, 3, 30, 7, tzinfo=UTC)
    assert timing.after(friday - timedelta(seconds=1)) == friday
    assert timing.after(friday) == monday


def test_an_interval_counts_from_its_start_whatever_the_clocks_do() -> None:
    timing = parse_timing("every 10 min", BERLIN, START)
    assert timing.after(START) == START + timedelta(minutes=10)
    assert timing.after(START + timedelta(minutes=10)) == START + timedelta(minutes=20)
    assert timing.between(START, START + timedelta(minutes=35), 2) == [
        START + timedelta(minutes=20),
        START + timedelta(minutes=30),
    ]


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("2027-01-31T09:00", BERLIN, datetime(2027, 1, 31, 8, tzinfo=UTC)),
        ("2027-01-31 09:00-05:00", BERLIN, datetime(2027, 1, 31, 14, tzinfo=UTC)),
        ("2027-01-31T09:00", "UTC", datetime(2027, 1, 31, 9, tzinfo=UTC)),
    ],
)
def test_one_moment_is_in_its_own_zone_or_the_given_one(
    text: str, zone: str, expected: datetime
) -> None:
    timing = parse_timing(text, zone, START)
    assert timing.after(START) == expected
    assert timing.after(expected) is None
    assert timing.between(START, expected, 5) == [expected]


@pytest.mark.parametrize(
    ("text", "zone", "error"),
    [
        ("soon", "UTC", "a schedule is a cron expression like"),
        ("0 9 * * * *", "UTC", "a schedule is a cron expression like"),
        ("99 9 * * *", "UTC", "not a cron expression: Bad minute"),
        ("0 0 30 2 *", "UTC", "not a cron expression"),
        ("every now and then", "UTC", "a duration is a text like"),
        ("every 0s", "UTC", "longer than 0 s"),
        ("0 9 * * *", "Europe", "no time zone 'Europe'"),
        ("0 9 * * *", "../../etc/passwd", "no time zone"),
    ],
)
def test_times_that_cannot_be_are_refused_with_a_reason(text: str, zone: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        parse_timing(text, zone, START)

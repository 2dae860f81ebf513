"""When the occurrences of a schedule are due, and which of them are missed."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassq.errors import InvalidOptionError
from cassq.model.recurrence import GRACE, MISSED_MAX, Schedule, next_after, plan, to_ms

NOON = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)

#: From here on clocks in Berlin are set back, and forward.
AUTUMN = datetime(2026, 10, 24, 22, 0, tzinfo=UTC)
SPRING = datetime(2026, 3, 28, 22, 0, tzinfo=UTC)


def schedule(cron, next_due=NOON, timezone="UTC"):
    return Schedule("s", cron, timezone, b"body", {}, None, 0, None, next_due)


def planned(given, now, ahead=GRACE):
    return plan(given, to_ms(now), to_ms(now + ahead))


def told(cron, after, count, timezone="Europe/Berlin"):
    found = []
    for _ in range(count):
        after = next_after(cron, timezone, after)
        found.append(f"{after:%d %H:%M}")
    return found


@pytest.mark.parametrize(
    ("cron", "timezone", "expected"),
    [
        ("0 9 * * MON-FRI", "Europe/Berlin", datetime(2026, 11, 30, 8, 0, tzinfo=UTC)),
        ("*/15 * * * *", "UTC", NOON + timedelta(minutes=15)),
        ("* * * * * *", "UTC", NOON + SECOND),
        ("0 0 L * *", "UTC", datetime(2026, 11, 30, tzinfo=UTC)),
        ("0 0 29 2 *", "UTC", datetime(2028, 2, 29, tzinfo=UTC)),
    ],
)
def test_the_next_time_is_the_first_one_behind(cron, timezone, expected):
    assert next_after(cron, timezone, NOON) == expected


def test_what_is_daily_comes_once_on_the_days_when_clocks_are_set():
    assert told("30 2 * * *", AUTUMN, 2) == ["25 00:30", "26 01:30"]
    assert told("30 2 * * *", SPRING, 2) == ["29 01:00", "30 00:30"]


def test_what_comes_each_half_hour_comes_so_when_clocks_are_set():
    assert told("*/30 * * * *", AUTUMN, 6) == [
        *("24 22:30", "24 23:00", "24 23:30", "25 00:00", "25 00:30", "25 01:00")
    ]


@pytest.mark.parametrize(
    ("cron", "timezone", "words"),
    [
        ("daily", "UTC", "five fields"),
        ("61 * * * *", "UTC", "Bad minute"),
        ("0 0 30 2 *", "UTC", "day-of-month"),
        ("* " * 200, "UTC", "200 characters at most"),
        (None, "UTC", "must be a str"),
        (b"* * * * *", "UTC", "must be a str"),
        ("@daily", "UTC", "for once a day"),
        ("* * * * *", "localtime", "time-zone database"),
        ("* * * * *", "Europe/Atlantis", "time-zone database"),
        ("* * * * *", "../../etc/passwd", "time-zone database"),
        ("* * * * *", "", "time-zone database"),
        ("* * * * *", "a\0b", "time-zone database"),
        ("* * * * *", 3, "must be a str"),
        ("* * * * *", UTC, "must be a str"),
    ],
)
def test_what_tells_no_time_is_refused_by_name(cron, timezone, words):
    with pytest.raises(InvalidOptionError, match=words):
        next_after(cron, timezone, NOON)


def test_what_is_due_soon_is_planned_and_no_more():
    found = planned(schedule("*/5 * * * * *"), NOON)

    assert found.dues_ms == tuple(to_ms(NOON + n * SECOND) for n in (0, 5, 10, 15))
    assert (found.missed, found.next_due) == (0, NOON + 20 * SECOND)


def test_of_what_should_have_been_pushed_long_ago_the_last_is_pushed_and_the_others_are_missed():
    found = planned(schedule("0 * * * *"), NOON + timedelta(hours=5, minutes=30))

    assert found.dues_ms == (to_ms(NOON + timedelta(hours=5)),)
    assert (found.missed, found.next_due) == (5, NOON + timedelta(hours=6))


def test_what_is_a_little_late_is_pushed_whole():
    found = planned(schedule("* * * * * *"), NOON + GRACE, ahead=timedelta(0))

    assert len(found.dues_ms) == 1 + GRACE // SECOND
    assert found.missed == 0


def test_what_was_missed_for_long_is_counted_only_so_far():
    now = NOON + timedelta(days=365, microseconds=500)

    found = planned(schedule("* * * * * *"), now, ahead=timedelta(0))

    assert found.missed == MISSED_MAX
    assert found.dues_ms == (to_ms(NOON + timedelta(days=365)),)
    assert found.next_due == NOON + timedelta(days=365, seconds=1)


@given(
    every=st.integers(1, 59),
    late_s=st.lists(st.floats(0.0, 90.0), min_size=1, max_size=30),
)
def test_each_occurrence_is_planned_once_or_missed_whenever_somebody_looks(every, late_s):
    current, now = schedule(f"*/{every} * * * * *"), NOON
    dues, missed = [], 0
    for pause_s in late_s:
        now += timedelta(seconds=pause_s)
        if current.next_due > now + GRACE:
            continue
        found = planned(current, now)
        assert found.next_due > now + GRACE
        dues += found.dues_ms
        missed += found.missed
        current = schedule(current.cron, found.next_due)

    until = current.next_due
    expected, at = [NOON], NOON
    while (at := next_after(current.cron, "UTC", at)) < until:
        expected.append(at)
    assert dues == sorted(set(dues))
    assert set(dues) <= set(map(to_ms, expected))
    assert len(dues) + missed == len(expected) if dues or missed else until == NOON

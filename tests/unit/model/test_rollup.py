"""Figures of a rollup: what may stand in one, and which day it is of."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from cassq.model.rollup import NAMES, Rollup, day_of

NOON = round(datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp() * 1000)
AGES = ("oldest_age_ms", "age_p50_ms", "age_p90_ms", "age_p99_ms")
NO_AGES = dict.fromkeys(AGES)
ROLLUP = Rollup(NOON, NOON - 60_000, "pusher", "", 1, 2, 3, 4, 5, 600, 10, 20, 30, 40, 10, 20, 30)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("pusher", "holder")])
@pytest.mark.parametrize("value", ["7", 1.5, True, -1])
def test_a_figure_is_a_whole_number_from_0_on(name, value):
    with pytest.raises((TypeError, ValueError), match=name):
        replace(ROLLUP, **{name: value})


@pytest.mark.parametrize("name", ["pusher", "holder"])
def test_a_name_is_a_text(name):
    with pytest.raises(TypeError, match=name):
        replace(ROLLUP, **{name: None})


@pytest.mark.parametrize("name", AGES)
def test_ages_are_all_there_or_none(name):
    with pytest.raises(ValueError, match="ages"):
        replace(ROLLUP, **{name: None})


def test_ages_are_of_messages_that_have_not_ended():
    ended = {"waiting": 0, "pending": 0, "returned": 0}
    assert replace(ROLLUP, **ended, **NO_AGES).committed == 4
    with pytest.raises(ValueError, match="ages"):
        replace(ROLLUP, **ended)
    with pytest.raises(ValueError, match="ages"):
        replace(ROLLUP, **NO_AGES)


def test_it_is_told_in_json():
    told = ROLLUP.to_json()
    assert list(told) == ["rolled_up_at", "minute", *NAMES[2:]]
    assert datetime.fromisoformat(told["rolled_up_at"]) == ROLLUP.rolled_up_at
    assert datetime.fromisoformat(told["minute"]) == ROLLUP.rolled_up_at - timedelta(minutes=1)
    assert told["body_bytes"] == 600


@pytest.mark.parametrize("day", [date(1970, 1, 2), date(2026, 11, 22), date(2028, 2, 29), date.max])
def test_a_day_ends_where_the_next_one_begins(day):
    first, behind = day_of(day)
    assert day_of(day - timedelta(days=1))[1] == first
    for moment in (first, behind - 1):
        assert replace(ROLLUP, rolled_up_at_ms=moment).day == day

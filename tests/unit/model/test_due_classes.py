"""Classes of leads, and what a push may ask for."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from cassq.errors import InvalidOptionError
from cassq.model.ids import id_time_ms, new_pipe_id, time_key
from cassq.model.label import Label, to_delay, to_label
from cassq.model.queue_record import QueueRecord
from cassq.model.schedule import (
    AHEAD_MS,
    AT_ONCE,
    LEAD_MAX_S,
    NEAR_S,
    PILE_PART,
    SOON,
    SOON_S,
    STEP,
    class_left,
    class_of,
    is_pile,
    least_lead_s,
    open_max_s,
)
from cassq.model.settings import QueueSettings
from cassq.model.uses import uses_due, with_uses


@pytest.mark.parametrize("lead_s", [-5.0, 0.0, 0.001, SOON_S - 0.001])
def test_what_is_due_soon_or_late_is_in_no_pile(lead_s):
    assert class_of(lead_s) == SOON
    assert not is_pile(SOON)


@pytest.mark.parametrize("lead_s", [15.0, 59.9, 60.0, 239.0, 86_400.0, float(LEAD_MAX_S)])
def test_a_pile_has_leads_up_to_four_times_the_least(lead_s):
    due_class = class_of(lead_s)
    assert is_pile(due_class)
    assert least_lead_s(due_class) <= lead_s < 4 * least_lead_s(due_class)


def test_processes_of_other_versions_mean_the_same_by_a_class():
    """A class stands in the row of a pipe: by it others tell when its pusher is dead, and whether to hold."""
    assert (AT_ONCE, SOON) == (0, 1)
    assert (SOON_S, STEP, PILE_PART, NEAR_S, AHEAD_MS) == (15, 4, 3, 60, 2000)
    assert LEAD_MAX_S == 158_112_000
    least_s = [15, 60, 240, 960, 3840, 15_360, 61_440, 245_760, 983_040, 3_932_160, 15_728_640, 62_914_560]
    assert [least_lead_s(due_class) for due_class in range(2, 14)] == least_s
    assert [class_of(each) for each in least_s] == list(range(2, 14))
    assert [class_of(each - 0.001) for each in least_s] == list(range(1, 13))
    assert class_of(LEAD_MAX_S) == 13


def test_a_pile_is_sealed_long_before_the_first_of_it_is_due():
    settings = QueueSettings()
    for due_class in range(2, class_of(LEAD_MAX_S) + 1):
        assert open_max_s(due_class, settings) <= least_lead_s(due_class) / 3
    assert (
        open_max_s(SOON, settings) == open_max_s(AT_ONCE, settings) == settings.push_age_max.total_seconds()
    )


@pytest.mark.parametrize(
    ("due_class", "lead_s", "left"),
    [(2, 14.9, 2), (2, 7.5, 2), (2, 7.4, 1), (3, 31, 3), (3, 29, 2), (3, -1, 1)],
)
def test_what_waited_to_be_stored_stays_in_its_class_until_its_lead_has_halved(due_class, lead_s, left):
    assert class_left(due_class, lead_s) == left
    assert not is_pile(left) or lead_s > open_max_s(left, QueueSettings())  # it is sealed before


def test_a_due_time_is_taken_in_any_zone_and_rounded_up():
    due = datetime(2030, 1, 1, 12, 0, 0, 1, tzinfo=UTC)
    expected = Label(due_class=SOON, due_ms=int(due.timestamp() * 1000) + 1)
    assert to_label({"due": due}) == expected
    assert to_label({"due": due.astimezone(timezone(timedelta(hours=-7)))}) == expected


def test_no_delay_is_none():
    assert to_label({"delay": None, "due": None}) == Label()
    assert to_delay({"delay": timedelta(0)}) is None


@pytest.mark.parametrize(
    "options",
    [
        {"delay": 5},
        {"delay": timedelta(seconds=-1)},
        {"due": datetime(2030, 1, 1)},  # noqa: DTZ001 - it is to be refused
        {"due": 1_900_000_000},
        {"due": datetime(2030, 1, 1, tzinfo=UTC), "delay": timedelta(1)},
    ],
)
def test_what_is_no_due_time_is_refused_and_named(options):
    with pytest.raises(InvalidOptionError, match=r"delay|due"):
        to_label(options)


def test_what_steers_a_batch_and_a_pipe_leaves_out_what_differs():
    label = Label(ttl_ms=5, priority=1, type="a", due_class=3, due_ms=9)
    assert label.of_batch == Label(5, 1, "a", 3)
    assert label.of_pipe == Label(0, 1, "a", 3)
    assert Label().of_batch is Label().of_batch or Label().of_batch == Label()


def test_a_queue_tells_that_messages_have_due_times():
    record = QueueRecord("q", new_pipe_id(), QueueSettings(), new_pipe_id())
    assert not uses_due(record.settings)
    assert uses_due(with_uses(record, Label(due_class=SOON)).settings)


def test_an_id_may_be_of_another_time():
    at_ms = 1_900_000_000_123
    made = new_pipe_id(at_ms)
    assert made.version == 1
    assert id_time_ms(made) == at_ms
    assert time_key(new_pipe_id(at_ms - 1)) < time_key(made) < time_key(new_pipe_id(at_ms + 1))
    assert new_pipe_id(at_ms) != made

"""When the next message is worth a second look."""

from cassq.popping.arrival_rate import FINDS_MIN, GAP_MAX_S, GAPS_MAX, OVER_S, PAUSE_MIN_S, ArrivalRate


def a_flow(gap_s, count=50):
    pace = ArrivalRate()
    for place in range(count):
        pace.note_found(1, place * gap_s)
    return pace, (count - 1) * gap_s


def test_in_a_fast_flow_the_next_message_is_looked_for_soon():
    pace, now = a_flow(0.002)

    assert PAUSE_MIN_S <= pace.next_look_s(now) <= 0.002


def test_a_slow_flow_is_worth_no_second_look():
    pace, now = a_flow(2 * GAP_MAX_S)

    assert pace.next_look_s(now) is None


def test_a_flow_that_stopped_is_left_alone_after_a_moment():
    pace, now = a_flow(0.004)

    assert pace.next_look_s(now + OVER_S) is not None
    assert pace.next_look_s(now + GAPS_MAX * 0.004 + 0.001) is None


def test_messages_that_came_together_count_one_by_one():
    pace = ArrivalRate()
    for place in range(50):
        pace.note_found(100, place * 0.1)

    assert pace.next_look_s(49 * 0.1) is not None


def test_nothing_is_expected_before_anything_was_found():
    assert ArrivalRate().next_look_s(0.0) is None


def test_a_flow_is_fast_after_several_quick_finds_and_no_more_after_a_pause():
    pace = ArrivalRate()
    now = 100.0
    for _ in range(FINDS_MIN):
        pace.note_found(1, now)
        assert not pace.is_fast(now)
        now += 0.001
    pace.note_found(1, now)
    assert pace.is_fast(now)

    assert not pace.is_fast(now + 1.0)
    pace.note_found(1, now + 1.0)
    pace.note_found(1, now + 1.001)
    assert not pace.is_fast(now + 1.001)


def test_in_a_slow_flow_no_message_is_expected_at_once():
    pace, now = a_flow(0.1)

    assert 0.03 <= pace.next_find_s(now + 0.01) < 0.1
    assert pace.next_find_s(now + 0.09) == 0.0


def test_a_message_is_expected_at_any_time_where_they_come_fast_or_nothing_is_known():
    pace, now = a_flow(GAP_MAX_S / 2)

    assert pace.next_find_s(now) == 0.0
    assert ArrivalRate().next_find_s(0.0) == 0.0


def test_a_flow_that_begins_after_a_long_rest_is_soon_known():
    pace, now = a_flow(1000.0)
    pace.note_found(1, now + 0.001)

    assert pace.next_find_s(now + 0.001) == 0.0

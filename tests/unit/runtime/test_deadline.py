"""Until when the caller of a thread waits."""

import threading

import pytest

from cassq.runtime.deadline import Deadline, seconds_left, seconds_to_begin


class Clock:
    def now(self):
        return 100.0


def left(most=15.0):
    return seconds_left(Clock(), most)


def test_without_a_deadline_all_patience_is_left():
    assert left() == 15.0


@pytest.mark.parametrize(("until", "expected"), [(103.0, 3.0), (200.0, 15.0), (99.0, 0.0)])
def test_the_nearer_of_deadline_and_patience_counts(until, expected):
    with Deadline(until):
        assert left() == expected
    assert left() == 15.0


def test_a_deadline_inside_another_one_never_reaches_beyond_it():
    with Deadline(103.0):
        with Deadline(110.0):
            assert left() == 3.0
        with Deadline(101.0):
            assert left() == 1.0
        assert left() == 3.0


def test_one_that_is_brought_forward_holds_at_once_for_what_has_not_begun_also_inside_of_it():
    deadline = Deadline(float("inf"))
    with deadline, Deadline(110.0):
        assert seconds_to_begin(Clock(), 15.0) == 10.0
        deadline.bring_forward(103.0)
        deadline.bring_forward(105.0)
        assert seconds_to_begin(Clock(), 15.0) == 3.0
        assert left() == 10.0


def test_none_is_left_behind_by_an_error():
    with pytest.raises(KeyError), Deadline(103.0):
        raise KeyError
    assert left() == 15.0


def test_none_is_left_behind_by_ctrl_c_on_the_way_into_the_block():
    Deadline(103.0).__enter__()
    assert left() == 15.0


def test_other_threads_have_their_own():
    found = []
    with Deadline(103.0):
        thread = threading.Thread(target=lambda: found.append(left()))
        thread.start()
        thread.join()
    assert found == [15.0]

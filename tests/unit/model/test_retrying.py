"""When a message that failed comes back, and the words for why it failed."""

from datetime import timedelta
from uuid import uuid1

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassq.errors import InvalidOptionError
from cassq.limits import REASON_BYTES_MAX
from cassq.model.retrying import in_one_line, reason_of, rest_ms, to_delay_ms, to_reason
from cassq.model.settings import DELAY_MAX, QueueSettings

PIPE = uuid1()
STEADY = QueueSettings(
    retry_delay=timedelta(seconds=2), retry_factor_percent=300, retry_delay_max=timedelta(minutes=1)
).altered("q", {"retry_jitter_percent": 0})


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 2), (2, 6), (3, 18), (4, 54), (5, 60), (10**6, 60)])
def test_each_rest_is_longer_than_the_one_before_up_to_the_longest(attempt, seconds):
    assert rest_ms(STEADY, PIPE, 1, attempt) == seconds * 1000


def test_without_a_delay_it_comes_back_at_once_however_often_it_failed():
    none = STEADY.altered("q", {"retry_delay": timedelta(0)})

    assert {rest_ms(none, PIPE, 1, attempt) for attempt in (1, 2, 10**6)} == {0}


@given(seq=st.integers(1, 2**62), attempt=st.integers(1, 10**6), percent=st.integers(0, 100))
def test_a_rest_is_longer_or_shorter_by_no_more_than_the_jitter(seq, attempt, percent):
    plain = rest_ms(STEADY, PIPE, seq, attempt)

    rest = rest_ms(STEADY.altered("q", {"retry_jitter_percent": percent}), PIPE, seq, attempt)

    assert abs(rest - plain) <= plain * percent / 100 + 1


def test_what_failed_together_comes_back_spread_over_the_jitter():
    rests = [rest_ms(QueueSettings(), PIPE, seq, 1) for seq in range(1, 1001)]

    assert min(rests) < 850
    assert 950 < sum(rests) / len(rests) < 1050
    assert max(rests) > 1150


@pytest.mark.parametrize("delay", [timedelta(seconds=-1), DELAY_MAX + timedelta(milliseconds=1), 5, "1s"])
def test_a_delay_that_is_none_is_named_with_its_bounds(delay):
    with pytest.raises(InvalidOptionError, match=r"delay=.*from 0 to 604800s"):
        to_delay_ms(delay)


@pytest.mark.parametrize("reason", [None, 5, b"bytes", ValueError("no")])
def test_a_reason_is_a_text(reason):
    with pytest.raises(InvalidOptionError, match=r"reason=.*must be a text"):
        to_reason(reason)


@given(st.text(max_size=2000) | st.text(st.characters(categories=["Cs", "So"]), max_size=2000))
def test_a_reason_is_stored_as_a_beginning_that_every_store_takes(reason):
    stored = to_reason(reason)

    assert len(stored.encode()) <= REASON_BYTES_MAX
    whole = reason.encode("utf-8", "backslashreplace").decode()
    assert whole.startswith(stored)
    assert len(whole.encode()) - len(stored.encode()) < 4 or len(stored.encode()) > REASON_BYTES_MAX - 4


def test_a_reason_is_one_line_without_what_a_terminal_obeys():
    assert in_one_line("\n a\tb\r\n\x1b[2Jc\u202ed ") == "a b [2Jc d"


def test_an_error_is_told_by_class_text_and_notes():
    class UnspeakableError(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    class Notes:
        def __iter__(self):
            raise RuntimeError("no notes")

    spoilt = ValueError("bad json")
    spoilt.__notes__ = Notes()
    noted = ValueError("bad json")
    noted.add_note("line 7")

    assert reason_of(noted) == "ValueError: bad json\nline 7"
    assert reason_of(spoilt).startswith("ValueError")
    assert reason_of(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert "UnspeakableError" in reason_of(UnspeakableError())
    assert reason_of(InvalidOptionError("x")).startswith("cassq.errors.InvalidOptionError: x")

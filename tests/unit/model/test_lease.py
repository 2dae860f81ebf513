"""The text of a lease: as it was, or refused in words."""

import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassq.errors import InvalidOptionError
from cassq.limits import SEQ_MAX, TAKE_MESSAGES_MAX
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.lease import Lease

LEASE = Lease(b"abcd", UUID(int=1), 5, 7, UUID(int=2), 2)


@given(
    st.integers(1, SEQ_MAX - TAKE_MESSAGES_MAX),
    st.integers(1, TAKE_MESSAGES_MAX),
    st.integers(1, 2**32 - 1),
    st.binary(min_size=4, max_size=4),
)
def test_is_read_back_as_it_was(first, count, attempt, incarnation):
    lease = Lease(incarnation, new_pipe_id(), first, first + count - 1, new_token(), attempt)

    text = lease.to_text()

    assert Lease.parse(text) == lease
    assert len(text) == 76
    assert re.fullmatch(r"[A-Za-z0-9_=-]+", text)


@pytest.mark.parametrize("place", range(76))
def test_altered_in_any_character_is_refused(place):
    text = LEASE.to_text()
    altered = text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]

    with pytest.raises(InvalidOptionError, match="is not a lease as lease"):
        Lease.parse(altered)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it has 0 characters, not 76"),
        (LEASE.to_text()[:-1], "it has 75 characters, not 76"),
        ("*" * 76, "it has other characters"),
        ("ü" * 76, "it is no text of letters"),
        (None, "it is no text of letters"),
    ],
)
def test_anything_else_is_refused_and_says_why(text, words):
    with pytest.raises(InvalidOptionError, match=words):
        Lease.parse(text)


def test_is_told_without_its_id():
    lease = Lease(b"abcd", new_pipe_id(), 5, 7, new_token(), 2)
    assert lease.lease_id.hex not in repr(lease)
    assert str(lease.lease_id) not in repr(lease)
    assert str(LEASE) == f"lease {LEASE.to_text()[:12]}…"

"""Reads that Cassandra gives up for their tombstones, cut into parts."""

from datetime import UTC, datetime

import pytest
from cassandra import ReadFailure
from hypothesis import given
from hypothesis import strategies as st

from cassq.errors import StorageUnavailableError
from cassq.model.ids import id_time_ms, new_pipe_id
from cassq.storage.cassandra.errors_map import met_tombstones
from cassq.storage.cassandra.in_parts import BEGIN, END, place_in_time, place_of, read_in_parts, uuid_at

NOW = datetime(2026, 11, 28, 12, 0, 0)  # noqa: DTZ001 - as the driver returns it
NOW_MS = round(NOW.replace(tzinfo=UTC).timestamp() * 1000)
BEST = 3


class Session:
    """Knows what the time is."""

    def execute(self, statement):
        return [(NOW,)]


def too_many():
    cause = ReadFailure("too many", error_code_map={"127.0.0.1": 1})
    assert met_tombstones(cause)
    error = StorageUnavailableError("too many tombstones")
    error.__cause__ = cause
    return error


def reader(there, gone):
    """Return what reads places, and gives up where too many of those that are gone lie between two."""

    def read(low, high):
        if sum(low <= place < high for place in gone) > BEST:
            raise too_many()
        return [place for place in there if low <= place < high]

    return read


places = st.integers(NOW_MS - 86_400_000, NOW_MS + 1000).map(lambda ms: place_of(new_pipe_id(ms)))


@given(there=st.lists(places, max_size=20), gone=st.lists(places, max_size=40))
def test_what_is_there_is_found_in_its_order_whatever_is_gone(there, gone):
    there.sort()

    found = list(read_in_parts(Session(), reader(there, gone), BEGIN, END, place_in_time))

    assert [place for part in found for place in part] == there


def test_a_read_that_fails_for_another_reason_fails():
    def read(low, high):
        raise StorageUnavailableError("away")

    with pytest.raises(StorageUnavailableError, match="away"):
        list(read_in_parts(Session(), read, BEGIN, END, place_in_time))


def test_one_place_that_cannot_be_read_fails():
    def read(low, high):
        raise too_many()

    with pytest.raises(StorageUnavailableError, match="too many tombstones"):
        list(read_in_parts(Session(), read, BEGIN, BEGIN + 8, place_in_time))


@given(ms=st.integers(0, 2**42), other=st.integers(0, 2**42))
def test_places_are_in_the_order_of_times(ms, other):
    pipe = new_pipe_id(ms)

    assert uuid_at(place_of(pipe)) == pipe
    assert BEGIN <= place_in_time(ms) <= place_of(pipe) < place_in_time(ms + 1) <= END
    assert (place_in_time(ms) < place_in_time(other)) == (ms < other)
    assert id_time_ms(uuid_at(place_in_time(ms))) == ms

"""The ids of Queuey's messages: exact both ways, and in the order of time."""

from decimal import Decimal
from uuid import UUID, uuid1, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassq.errors import CorruptError
from cassq.http.queuey_forms import FieldsError
from cassq.http.queuey_ids import IDS_MAX, MessagePlace, Since, parse_ids, parse_since

PLACES = st.builds(
    MessagePlace,
    st.integers(0, 4_000_000_000_000),
    st.integers(0, 1023),
    st.integers(1, 2**52 - 1),
)


@given(PLACES)
def test_an_id_names_time_partition_and_offset_exactly(place):
    since = parse_since(place.hex)
    assert since.place == place
    assert parse_ids(f"{place.partition + 1}:{place.hex}") == [place]
    assert since.first_ms == since.last_ms == place.published_at_ms
    assert Decimal(place.timestamp) * 1000 == place.published_at_ms
    assert parse_since(place.timestamp).first_ms == place.published_at_ms


@given(PLACES)
def test_an_id_is_a_time_uuid_of_that_time(place):
    found = UUID(hex=place.hex)
    assert (found.version, found.variant) == (1, uuid1().variant)
    assert (found.time - uuid1_epoch()) == place.published_at_ms * 10_000


def uuid1_epoch():
    return 0x01B21DD213814000


@given(PLACES, PLACES)
def test_two_messages_have_two_ids(one, other):
    assert (one.hex == other.hex) == (one == other)


def test_an_offset_that_no_id_has_room_for_is_told():
    with pytest.raises(CorruptError, match="has no id"):
        assert MessagePlace(0, 0, 2**52).hex


def test_the_id_of_somebody_else_says_a_time_alone():
    foreign = UUID(fields=(0x12345, 0, 0x1000 | 0x1C0, 0x80, 1, 5))
    assert parse_since(foreign.hex) == Since(max(0, foreign.time - uuid1_epoch()))


@pytest.mark.parametrize(
    ("text", "first_ms", "last_ms"),
    [
        ("0", 0, 0),
        ("1323973966", 1323973966000, 1323973966000),
        ("1323973966.2826", 1323973966283, 1323973966282),
        ("1323973966.282", 1323973966282, 1323973966282),
        ("1323973966.282000000", 1323973966282, 1323973966282),
    ],
)
def test_seconds_with_decimals_are_read_exactly(text, first_ms, last_ms):
    since = parse_since(text)
    assert (since.first_ms, since.last_ms, since.place) == (first_ms, last_ms, None)


@pytest.mark.parametrize(
    "text", ["", "-1", "1e5", "1.", ".5", "x", "9" * 12, "0" * 31, UUID(int=4 << 76 | 2 << 62).hex, "1,5"]
)
def test_what_is_neither_time_nor_id_is_none(text):
    assert parse_since(text) is None


@pytest.mark.parametrize(
    "text", ["", "2:asdf", ":" + "0" * 32, "x:" + "0" * 32, "0" * 33, "1:" + "g" * 32, ","]
)
def test_ids_of_another_form_are_refused(text):
    with pytest.raises(FieldsError, match="InvalidMessageID"):
        parse_ids(text)


def test_an_id_under_the_partition_of_another_names_no_message():
    place = MessagePlace(1, 2, 3)
    assert parse_ids(f"3:{place.hex},2:{place.hex},{place.hex},{uuid4().hex}") == [place, None, None, None]


def test_more_ids_than_one_answer_has_are_refused():
    with pytest.raises(FieldsError, match="ask several times"):
        parse_ids(",".join([MessagePlace(1, 0, 1).hex] * (IDS_MAX + 1)))

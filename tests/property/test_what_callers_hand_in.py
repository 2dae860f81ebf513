"""Names, ids, messages and settings: whatever is handed in is taken as it is, or refused with words."""

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from odd_values import OBJECTS, TEXTS, Mute, names, refused

import cassq
from cassq.errors import DecodeError, InvalidNameError, InvalidOptionError, UsageError
from cassq.limits import SEQ_MAX, SLOTS_MAX
from cassq.model.arguments import check_count, tell_duration, to_duration, to_seconds
from cassq.model.ids import MessageId, check_name, new_pipe_id, shorten, to_message_id
from cassq.model.key import KEY_BYTES_MAX, check_key, slot_of
from cassq.model.label import Label
from cassq.model.message import check_body, check_headers
from cassq.model.settings import QueueSettings, settings_known
from cassq.storage.cassandra.values import to_ms
from cassq.urls import take_apart_cassandra

SETTINGS = settings_known()
PIPES = st.builds(new_pipe_id)

quietly = settings(derandomize=True, deadline=None, max_examples=200)


# -- names and ids -------------------------------------------------------------------------------------


@quietly
@given(OBJECTS)
@example("x" * 129)
@example("\U0010ffff" * 128)
def test_a_name_is_taken_as_it_is_or_refused_by_name(given_name):
    words = refused(InvalidNameError, lambda: check_name(given_name))

    if words is None:
        assert check_name(given_name) == given_name
        assert check_name(given_name).isascii()
    else:
        assert names(words, given_name)
        assert "str" in words or "letters, digits" in words or "at most 128" in words


@quietly
@given(PIPES, st.integers(1, SEQ_MAX - 1))
def test_a_message_id_reads_back_from_what_it_prints(pipe, seq):
    message_id = MessageId(pipe, seq)

    assert to_message_id(message_id) == to_message_id(str(message_id)) == message_id
    assert to_message_id(str(message_id).upper()) == message_id


@quietly
@given(
    OBJECTS
    | st.builds("{}:{}".format, PIPES | st.uuids(), st.integers() | TEXTS)
    | st.builds(MessageId, PIPES | OBJECTS, OBJECTS)
)
@example(f"{UUID(int=0)}:1")
@example(f"{uuid4()}:1")
@example(f"{new_pipe_id()}:1_7")
@example(f"{new_pipe_id()}: 17")
@example(f"{new_pipe_id()}:+17")
@example(f"{new_pipe_id()}:{'٣'}")
@example(f"urn:uuid:{new_pipe_id()}:17")
@example(MessageId(new_pipe_id(), True))
def test_what_is_no_message_id_is_refused_by_name(value):
    words = refused(InvalidOptionError, lambda: to_message_id(value))

    if words is None:
        found = to_message_id(value)
        assert str(found) == str(value).lower().replace(":0", ":").replace(":0", ":") or found == value
    else:
        assert "is not a message id" in words


# -- counts and times ----------------------------------------------------------------------------------


def _is_shown(value):
    """Tell whether a value has a short repr of its own."""
    try:
        return len(repr(value)) < 500
    except Exception:
        return False


@quietly
@given(OBJECTS.filter(_is_shown))
def test_a_count_or_a_timeout_is_taken_or_refused_by_name(value):
    for check, option in ((check_count, "count="), (to_seconds, "timeout=")):
        words = refused(InvalidOptionError, lambda check=check: check(value))
        assert words is None or option in words


@pytest.mark.parametrize("check", [check_count, to_seconds])
@pytest.mark.parametrize("value", ["x" * 5000, -(10**5000), Mute()], ids=["long", "huge", "mute"])
def test_a_count_or_a_timeout_that_cannot_be_shown_is_refused(check, value):
    assert refused(InvalidOptionError, lambda: check(value))


def test_a_timeout_longer_than_any_float_is_cut_like_every_long_one():
    assert to_seconds(10**400) == to_seconds(1e300)


# -- durations -----------------------------------------------------------------------------------------


@quietly
@given(OBJECTS.filter(_is_shown))
@example(True)
@example(float("nan"))
def test_a_duration_is_taken_or_refused_by_name(value):
    words = refused(InvalidOptionError, lambda: to_duration(value))

    assert words is None or shorten(value) in words


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *(("500ms", timedelta(milliseconds=500)), ("2m", timedelta(minutes=2)), ("1d", timedelta(days=1))),
        *(("30", timedelta(seconds=30)), ("0.1", timedelta(milliseconds=100)), (30, timedelta(seconds=30))),
        *((0.1, timedelta(milliseconds=100)), (timedelta(hours=1), timedelta(hours=1))),
    ],
)
def test_a_duration_is_a_number_with_its_unit_or_a_number_of_seconds(written, meant):
    assert to_duration(written) == meant
    assert to_duration(tell_duration(meant)) == meant


@pytest.mark.parametrize("written", ["1 h", "1min", "-1s", "1e3", "", "s", "٣s", "1h30m"])
def test_what_is_no_duration_is_told_how_one_is_written(written):
    with pytest.raises(InvalidOptionError, match="write 500ms, 30s, 2m, 1h or 1d"):
        to_duration(written)


@pytest.mark.parametrize(
    "url", ["cassandra://h/ks?timeout={}", "cassandra://h/ks?zookeeper=z&zookeeper_session={}"]
)
def test_options_of_a_url_are_durations_too(url):
    assert take_apart_cassandra(url.format("2m")) == take_apart_cassandra(url.format("120"))


@pytest.mark.parametrize("name", ["timeout", "zookeeper_session"])
@pytest.mark.parametrize("given", [90, 90.0, timedelta(seconds=90), "90s"])
def test_a_duration_beside_a_url_may_be_a_number_or_a_timedelta(name, given):
    url = "cassandra://h/ks?zookeeper=z"
    assert take_apart_cassandra(url, {name: given}) == take_apart_cassandra(f"{url}&{name}=90")


# -- messages ------------------------------------------------------------------------------------------


@quietly
@given(OBJECTS)
@example("x" * KEY_BYTES_MAX)
@example("\x7f")
def test_a_key_is_taken_as_it_is_and_has_a_slot_or_is_refused_by_name(key):
    words = refused(InvalidOptionError, lambda: check_key(key))

    if words is None:
        assert check_key(key) is key
        assert 1 <= len(key.encode()) <= KEY_BYTES_MAX
        assert 0 <= slot_of(key, SLOTS_MAX) < SLOTS_MAX
        assert Label(slot=3, key=key).of_batch == Label(slot=3)
    else:
        assert words.startswith("key=")


@quietly
@given(OBJECTS, st.integers(1, 100))
def test_a_body_is_taken_byte_for_byte_or_refused(body, body_bytes_max):
    words = refused(UsageError, lambda: check_body(body, body_bytes_max))

    if words is None:
        assert check_body(body, body_bytes_max) == body
        assert len(body) <= body_bytes_max
    elif isinstance(body, bytes):
        assert f"has {len(body)} bytes" in words
        assert str(body_bytes_max) in words
    else:
        assert f"not {type(body).__name__}" in words


@quietly
@given(st.binary(max_size=40))
def test_a_view_of_bytes_is_taken_byte_for_byte(body):
    assert check_body(bytearray(body), 100) == check_body(memoryview(body), 100) == body
    assert check_body(memoryview(body)[::2], 100) == body[::2]


def test_a_view_that_was_released_is_refused():
    view = memoryview(b"x")
    view.release()

    with pytest.raises(InvalidOptionError, match="cannot be read"):
        check_body(view, 100)


@quietly
@given(OBJECTS | st.dictionaries(TEXTS | st.integers(), TEXTS | OBJECTS, max_size=3))
@example({"\ud800": "x"})
@example({"x" * 100_000: 1})
@example({"b": "1", "a": "2"})
@example({"": "x"})
def test_headers_are_taken_as_they_are_or_refused_by_name(headers):
    words = refused(UsageError, lambda: check_headers(headers))

    if words is None:
        assert check_headers(headers) == (headers or {})
        assert list(check_headers(headers)) == sorted(headers or {})
        assert "" not in (headers or {})
        assert not any(set(text) & set("\0\r\n") for pair in (headers or {}).items() for text in pair)
    else:
        assert "header" in words


@pytest.mark.parametrize("end", ["\0", "\r", "\n", "\r\n"], ids=repr)
def test_a_header_of_more_than_one_line_is_refused_by_its_name_and_the_rule(end):
    for headers in ({f"ty{end}pe": "new"}, {"type": f"new{end}"}):
        with pytest.raises(InvalidOptionError, match="NUL, CR and LF are refused") as refusal:
            check_headers(headers)
        assert repr(next(iter(headers))) in str(refusal.value)


def test_a_header_without_a_name_is_refused():
    with pytest.raises(InvalidOptionError, match="header '': 'new' has no name"):
        check_headers({"": "new"})


def test_a_header_may_hold_what_cannot_be_printed():
    headers = {"tab": "a\tb", "separator": "a\u2028b", "escape": "\x1b[0m"}

    assert check_headers(headers) == headers


@pytest.mark.parametrize("headers", [{"x": Mute()}, {Mute(): "x"}], ids=["value", "name"])
def test_a_header_that_cannot_be_shown_is_refused(headers):
    with pytest.raises(InvalidOptionError, match="a value of type Mute"):
        check_headers(headers)


@settings(quietly, max_examples=60)
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n"), min_size=1),
        st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n")),
    ),
    st.binary(max_size=60),
)
def test_a_message_comes_back_out_of_a_store_as_it_went_in(headers, body):
    with cassq.connect("memory:") as store:
        queue = store.queue("q")
        queue.push(body, headers)
        queue.push_many([(body, headers), body])

        first, second, third = queue.peek(3)

    assert first.body == second.body == third.body == body
    assert first.headers == second.headers == headers
    assert list(first.headers) == list(second.headers) == sorted(headers)
    assert third.headers == {}


# -- settings ------------------------------------------------------------------------------------------


def _in_range(setting):
    if choices := setting.metadata.get("choices"):
        return st.sampled_from(choices)
    low, high = setting.metadata["low"], setting.metadata["high"]
    if isinstance(low, timedelta):
        millisecond = timedelta(milliseconds=1)
        return st.integers(low // millisecond, high // millisecond).map(lambda ms: ms * millisecond)
    return st.integers(low, high)


GOOD_SETTINGS = st.fixed_dictionaries({}, optional={each.name: _in_range(each) for each in SETTINGS})


@quietly
@given(GOOD_SETTINGS)
def test_settings_read_back_from_what_is_stored_and_are_the_same(options):
    try:
        chosen = QueueSettings.from_options(options)
    except InvalidOptionError as error:
        assert any(
            words in str(error) for words in ("raise pipe_bytes_max", "raise retry_delay_max", "never expire")
        )
        return

    again = QueueSettings.from_stored(chosen.to_stored())

    assert again == chosen
    again.check_same("q", options)


@quietly
@given(st.sampled_from(SETTINGS), OBJECTS | st.integers(-10, 10**10))
@example(SETTINGS[4], timedelta(seconds=1, microseconds=1))
def test_a_setting_is_stored_as_it_is_or_refused_by_name(setting, value):
    words = refused(InvalidOptionError, lambda: QueueSettings.from_options({setting.name: value}))

    if words is None:
        chosen = QueueSettings.from_options({setting.name: value})
        assert getattr(QueueSettings.from_stored(chosen.to_stored()), setting.name) == value
    else:
        assert setting.name in words
        others = "raise pipe_bytes_max", "raise retry_delay_max", "never expire"
        assert setting.metadata["meaning"] in words or any(each in words for each in others)


@quietly
@given(TEXTS)
def test_a_setting_that_there_is_not_is_refused_by_name(name):
    if name in {each.name for each in SETTINGS}:
        return
    words = refused(InvalidOptionError, lambda: QueueSettings.from_options({name: 1}))

    assert words
    assert names(words, name)
    assert "max_attempts" in words


_STORED_NAMES = sorted(QueueSettings().to_stored())


@quietly
@given(st.dictionaries(st.sampled_from(_STORED_NAMES), OBJECTS | st.integers(), max_size=4))
@example({"lease_ms": 2**63 - 1})
@example({"lease_ms": 10**30})
@example({"lease_ms": 30_000.5})
@example({"clock_skew_max_ms": True})
@example({"lease_ms": None})
@example({"max_attempts": None})
def test_stored_settings_are_read_as_they_are_or_refused(stored):
    words = refused(DecodeError, lambda: QueueSettings.from_stored(stored))

    if words is None:
        again = QueueSettings.from_stored(stored).to_stored()
        assert {name: again[name] for name in stored} == stored
    else:
        assert any(name in words or name.removesuffix("_ms") in words for name in stored)


def test_the_settings_of_a_newer_version_are_left_alone():
    assert QueueSettings.from_stored({"colour": 7}) == QueueSettings()


def test_a_time_that_no_clock_shows_is_no_time_of_a_row():
    with pytest.raises(TypeError, match="is not a time"):
        to_ms(None)


# -- what several messages are handed in as ------------------------------------------------------------


@pytest.fixture
def queue():
    with cassq.connect("memory:") as store:
        yield store.queue("q")


@pytest.mark.parametrize("bodies", [7, None, [(b"x",)], [(b"x", {}, 1)]], ids=repr)
def test_what_is_no_row_of_messages_is_refused(queue, bodies):
    with pytest.raises(InvalidOptionError):
        queue.push_many(bodies)


@pytest.mark.parametrize("headers", [0, "", []], ids=repr)
def test_headers_beside_a_body_are_held_to_the_same_rule_as_headers_of_a_push(queue, headers):
    with pytest.raises(InvalidOptionError, match="headers are a mapping"):
        queue.push(b"x", headers)
    with pytest.raises(InvalidOptionError, match="headers are a mapping"):
        queue.push_many([(b"x", headers)])


@pytest.mark.parametrize("which", [7, 2.5, True], ids=repr)
def test_what_is_no_row_of_ids_is_refused(queue, which):
    for deal in (queue.dead.put_back, queue.dead.discard):
        with pytest.raises(InvalidOptionError):
            deal(which)

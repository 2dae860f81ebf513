"""Keys, the slots that they have, and the labels that carry them."""

from datetime import UTC, datetime, timedelta

import pytest

from cassq.errors import InvalidOptionError
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.key import KEY_BYTES_MAX, NO_SLOT, check_key, slot_of
from cassq.model.label import UNLABELLED, Label, to_label
from cassq.model.message import Batch
from cassq.model.pipe import PipeEntry
from cassq.model.queue_record import QueueRecord
from cassq.model.settings import QueueSettings
from cassq.model.uses import is_told, uses_keys, with_uses


def test_processes_of_other_versions_mean_the_same_slot_by_a_key():
    """A key in two slots would have two consumers at a time."""
    keys = ("customer-42", "a", "ü", "日本", " ", "x" * KEY_BYTES_MAX)
    assert [slot_of(key, 16) for key in keys] == [5, 3, 5, 12, 5, 0]
    assert [slot_of(key, 256) for key in keys] == [21, 67, 213, 204, 69, 16]
    assert [slot_of(key, 10) for key in keys] == [5, 7, 9, 6, 7, 0]
    assert {slot_of(key, 1) for key in keys} == {0}


@pytest.mark.parametrize("key_slots", [2, 16, 100, 256])
def test_keys_that_are_alike_are_spread_over_all_slots(key_slots):
    counts = [0] * key_slots
    for number in range(100 * key_slots):
        counts[slot_of(f"customer-{number}", key_slots)] += 1
    assert min(counts) > 50
    assert max(counts) < 200


@pytest.mark.parametrize("key", ["a", " a b ", "ü" * 128, "x" * KEY_BYTES_MAX, "\U0010ffff", "a\u2028b"])
def test_a_key_is_taken_as_it_is(key):
    assert check_key(key) is key


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (7, r"key=7 must be a str, not int: write a number, or an id, as str\(number\), or leave it out"),
        (b"a", r"key=b'a' must be a str, not bytes: decode it, or write it as key.hex\(\), or leave it out"),
        (b"", r"key=b'' must be a str, not bytes: decode it"),
        (["a", 7], r"key=\['a', 7\] must be a str, not list: a message has one key, so join its parts"),
        ("", "key='' has 0 bytes of UTF-8, and a key has 1 to 256: leave it out"),
        ("x" * 257, "has 257 bytes of UTF-8, and a key has 1 to 256: take a hash of it"),
        ("ü" * 129, "has 258 bytes of UTF-8"),
        ("a\ud800", r"key='a\\ud800' cannot be written as UTF-8: leave surrogates out of it"),
        ("a\nb", r"key='a\\nb' has '\\n' in it, and a key has no control characters: encode it"),
        ("\0", "no control characters"),
        ("a\x7f", "no control characters"),
        ("a\x85", "no control characters"),
    ],
)
def test_what_is_no_key_is_told_with_the_rule_and_the_way_out(key, words):
    with pytest.raises(InvalidOptionError, match=words):
        check_key(key)
    if key != "":
        with pytest.raises(InvalidOptionError, match=words):
            to_label({"key": key})


def test_a_label_has_the_key_that_is_asked_for_and_its_slot_is_known_later():
    asked = to_label({"key": "customer-42", "priority": 3, "type": "a", "ttl": timedelta(seconds=5)})
    assert asked == Label(ttl_ms=asked.ttl_ms, priority=3, type="a", key="customer-42")
    assert asked.slot == NO_SLOT
    assert to_label({"key": None}) == UNLABELLED


@pytest.mark.parametrize("late", [{"delay": timedelta(seconds=1)}, {"due": datetime(2100, 1, 1, tzinfo=UTC)}])
def test_a_key_and_a_due_time_are_refused_together(late):
    with pytest.raises(InvalidOptionError, match=r"key='a' goes with no delay= and no due=.*: push it once"):
        to_label({"key": "a", **late})
    assert to_label({"key": "a", "delay": timedelta(0), "due": None}).key == "a"


def test_messages_of_one_slot_share_a_batch_and_a_pipe():
    label = Label(ttl_ms=5, priority=1, type="a", slot=3, key="k")
    assert label.of_batch == Label(5, 1, "a", slot=3)
    assert label.of_pipe == Label(0, 1, "a", slot=3)
    assert label.of_batch.of_pipe == label.of_pipe


def test_the_record_tells_of_keys_before_the_first_message_with_one():
    record = QueueRecord("q", new_token(), QueueSettings(), new_token())
    label = Label(slot=0, key="a")
    assert not uses_keys(record.settings)
    assert not is_told(record.settings, label)
    told = with_uses(record, label).settings
    assert uses_keys(told)
    assert is_told(told, Label(slot=7, key="b"))
    assert not uses_keys(with_uses(record, UNLABELLED, Label(priority=1)).settings)


def test_the_lanes_of_slots_are_sources_of_their_own():
    pipe = new_pipe_id()
    plain, keyed = PipeEntry(pipe, "me"), PipeEntry(pipe, "me", slot=0)
    assert plain.source != keyed.source != PipeEntry(pipe, "me", slot=1).source
    assert (plain.is_keyed, keyed.is_keyed) == (False, True)


def test_a_part_of_a_batch_and_its_outline_have_their_keys():
    batch = Batch(5, (b"1", b"2", b"3"), None, 3, keys=("a", "b", "c"))
    assert batch.part(6, 7).keys == ("b", "c")
    assert batch.part(6, 6).outline.keys == ("b",)
    assert batch.outline.part(5, 6).keys == ("a", "b")
    assert Batch(5, (b"1", b"2"), None, 2).part(5, 5).keys is None

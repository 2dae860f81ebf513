"""Names of queues, pipes and messages."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cassq.errors import InvalidNameError, InvalidOptionError
from cassq.model.ids import MessageId, check_name, from_time_key, just_before, new_pipe_id, time_key
from cassq.model.message import MessageIds

quietly = settings(derandomize=True, deadline=None)


def test_a_message_id_reads_back_what_it_says():
    message_id = MessageId(new_pipe_id(), 17)

    assert MessageId.parse(str(message_id)) == message_id


@pytest.mark.parametrize("text", ["", "17", "x:1", "5b0e4a1e-c6b5-11f0-8de9-0242ac120002:0", "a:b:c"])
def test_a_text_that_is_no_message_id_is_named(text):
    with pytest.raises(InvalidOptionError, match="is not a message id"):
        MessageId.parse(text)


def test_an_id_just_before_another_sorts_before_all_of_its_moment():
    pipe = new_pipe_id()
    before = just_before(pipe)

    assert before.version == 1
    assert before.time == pipe.time - 1
    assert time_key(before) < time_key(pipe)[:8]


def test_pipe_ids_are_unique_and_sort_by_time():
    pipes = [new_pipe_id() for _ in range(5000)]

    assert len(set(pipes)) == len(pipes)
    assert sorted(pipes, key=time_key) == pipes


@quietly
@given(st.uuids())
def test_a_time_key_gives_the_id_back(pipe):
    assert from_time_key(time_key(pipe)) == pipe


@pytest.mark.parametrize("name", ["orders", "Orders-2", "a", "a.b_c", "0", "x" * 128])
def test_good_names_are_taken(name):
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", " ", "a b", "ä", "-a", ".a", "a/b", "a\n", "x" * 129, None, 7, b"a"])
def test_a_bad_name_is_refused_with_the_rule(name):
    with pytest.raises(InvalidNameError) as raised:
        check_name(name)

    assert repr(name)[:20] in str(raised.value) or "characters" in str(raised.value)


def test_the_ids_of_many_messages_behave_like_a_sequence():
    first, second = new_pipe_id(), new_pipe_id()
    ids = MessageIds()
    ids.add(first, 1, 3)
    ids.add(first, 4, 4)
    ids.add(second, 1, 2)

    plain = [MessageId(first, seq) for seq in range(1, 5)] + [MessageId(second, 1), MessageId(second, 2)]
    assert list(ids) == plain
    assert len(ids) == 6
    assert ids[-1] == plain[-1]
    assert ids[1:5] == plain[1:5]
    with pytest.raises(IndexError):
        ids[6]

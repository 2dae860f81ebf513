"""What the owner of a pipe is shown of what waits, and how often the database is asked for it."""

from concurrent.futures import Future

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cassq.errors import DecodeError, StorageUnavailableError
from cassq.limits import TAKE_BYTES_MAX
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.message import Batch
from cassq.model.pipe import Run, RunState
from cassq.pipes.batch_reader import FIRST_LIMIT, LIMIT_MAX, BatchReader, check_disjoint

quietly = settings(derandomize=True, deadline=None)


class Waiting:
    """The waiting row of one pipe; counts who reads it."""

    def __init__(self, *sizes):
        self.batches = []
        self.reads = 0
        self.is_out = False
        for size in sizes:
            self.push(size)

    def push(self, count, body=b"body"):
        first = self.batches[-1].last + 1 if self.batches else 1
        self.batches.append(Batch(first, (body,) * count, None, count))

    def read_batches(self, _, query):
        self.reads += 1
        if self.is_out:
            raise StorageUnavailableError("out of reach")
        found = [batch for batch in self.batches if query.first <= batch.first <= query.last]
        return found[: query.limit]


class Beside:
    """Begins what it is given when it is told to."""

    def __init__(self):
        self.begun = []

    def submit(self, does, *args):
        future = Future()
        self.begun.append((future, does, args))
        return future

    def run(self):
        for future, does, args in self.begun:
            try:
                future.set_result(does(*args))
            except StorageUnavailableError as error:
                future.set_exception(error)


def reader_of(waiting, beside=None):
    return BatchReader(waiting, new_pipe_id(), beside)


def firsts(batches):
    return [batch.first for batch in batches]


def run_of(first, last, read_from):
    return Run(first, last, read_from, RunState.RETURNED, 1, new_token(), 0, 1000, 0, "somebody")


@quietly
@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), st.lists(st.integers(1, 9), min_size=1))
def test_whoever_takes_step_by_step_sees_every_message_once_and_in_order(sizes, takes):
    waiting = Waiting(*sizes)
    reader = reader_of(waiting)
    cursor, read_from = 0, 1
    for wanted in takes * len(sizes) * 4:
        found = reader.read(read_from, cursor, wanted)
        # What waits is shown from the message behind the cursor on, without a gap, and enough of it
        shown = [seq for batch in found for seq in range(batch.first, batch.last + 1) if seq > cursor]
        assert shown == list(range(cursor + 1, cursor + 1 + len(shown)))
        assert len(shown) >= min(wanted, waiting.batches[-1].last - cursor)
        cursor += min(wanted, len(shown))
        read_from = next((batch.first for batch in found if batch.last > cursor), cursor + 1)
    assert cursor == waiting.batches[-1].last


def test_what_was_read_already_is_not_read_again():
    waiting = Waiting(5, 5)
    reader = reader_of(waiting)
    assert firsts(reader.read(1, 0, 10)) == [1, 6]
    assert waiting.reads == 1
    # Exactly what is wanted is at hand, be it from the middle of a batch on
    assert firsts(reader.read(1, 3, 7)) == [1, 6]
    assert firsts(reader.read(6, 5, 5)) == [6]
    assert waiting.reads == 1
    # One more is not
    reader.read(6, 5, 6)
    assert waiting.reads == 2


def test_what_lands_behind_what_was_read_is_seen_by_the_next_read():
    waiting = Waiting(2)
    reader = reader_of(waiting)
    assert firsts(reader.read(1, 0, 5)) == [1]
    waiting.push(2)
    assert firsts(reader.read(1, 0, 5)) == [1, 3]


def test_a_gap_ends_what_is_shown_and_what_fills_it_is_seen_later():
    waiting = Waiting(1, 1, 1)
    late = waiting.batches.pop(1)
    reader = reader_of(waiting)
    assert firsts(reader.read(1, 0, 10)) == [1]
    assert firsts(reader.read(2, 1, 10)) == []
    waiting.batches.insert(1, late)
    assert firsts(reader.read(2, 1, 10)) == [2, 3]


def test_it_does_not_read_on_and_on_before_a_gap():
    # Given a gap behind which as many batches wait as one read may bring
    waiting = Waiting(*[1] * (FIRST_LIMIT + 2))
    del waiting.batches[0]
    # When it is read, then once
    assert firsts(reader_of(waiting).read(1, 0, 10)) == []
    assert waiting.reads == 1


def test_whoever_goes_back_behind_what_was_read_reads_anew():
    # As after another owner's window was cut further back than this reader had read
    waiting = Waiting(1, 1, 1)
    reader = reader_of(waiting)
    assert firsts(reader.read(1, 2, 5)) == [3]
    assert firsts(reader.read(1, 0, 5)) == [1, 2, 3]


def test_no_more_is_held_than_a_take_may_carry():
    waiting = Waiting()
    for _ in range(3 * FIRST_LIMIT):
        waiting.push(1, bytes(TAKE_BYTES_MAX // 2))
    assert len(reader_of(waiting).read(1, 0, 100)) == FIRST_LIMIT
    assert waiting.reads == 1


def test_whether_more_waits_is_known_by_where_the_last_read_stopped():
    waiting = Waiting(*[1] * FIRST_LIMIT)
    reader = reader_of(waiting)
    reader.read(1, 0, 1)
    # As many as it may bring: there may be more, though all that was seen is taken
    assert reader.may_have_more_behind(FIRST_LIMIT)
    assert not reader.is_at_end
    reader.read(FIRST_LIMIT + 1, FIRST_LIMIT, 1)
    assert not reader.may_have_more_behind(FIRST_LIMIT)
    assert reader.is_at_end


def test_what_was_read_and_not_taken_is_more():
    waiting = Waiting(2)
    reader = reader_of(waiting)
    reader.read(1, 0, 5)
    assert reader.may_have_more_behind(1)
    assert not reader.may_have_more_behind(2)


class TestIsDrained:
    @pytest.mark.parametrize(("cursor", "is_drained"), [(2, False), (3, False), (4, True)])
    def test_tells_by_a_read_whether_anything_waits_behind_the_cursor(self, cursor, is_drained):
        # The first of the two batches is read in any case: it begins before the cursor
        assert reader_of(Waiting(3, 1)).is_drained(1, cursor) is is_drained

    def test_sees_what_landed_since_the_last_read(self):
        waiting = Waiting(1)
        reader = reader_of(waiting)
        reader.read(1, 0, 5)
        reader.read(2, 1, 5)
        assert reader.is_drained(2, 1)
        waiting.push(1)
        assert not reader.is_drained(2, 1)


class TestReadingOn:
    """While the owner does something else, another thread reads what follows."""

    def test_takes_in_what_was_read_beside(self):
        waiting, beside = Waiting(*[1] * 3 * FIRST_LIMIT), Beside()
        reader = reader_of(waiting, beside)
        reader.read(1, 0, 1)
        reader.read_on(2, FIRST_LIMIT)
        beside.run()
        reads = waiting.reads
        assert firsts(reader.read(3, 2, 3)) == [3, 4, 5, 6]
        assert waiting.reads == reads

    def test_begins_only_where_less_is_left_than_will_be_wanted(self):
        beside = Beside()
        reader = reader_of(Waiting(*[1] * 3 * FIRST_LIMIT), beside)
        reader.read(1, 0, 1)
        reader.read_on(1, FIRST_LIMIT - 1)
        assert not beside.begun
        reader.read_on(1, FIRST_LIMIT)
        reader.read_on(1, FIRST_LIMIT)
        assert len(beside.begun) == 1

    def test_is_left_where_nothing_more_waits(self):
        beside = Beside()
        reader = reader_of(Waiting(1), beside)
        reader.read(1, 0, 1)
        reader.read(1, 0, 5)
        reader.read_on(1, 10)
        assert not beside.begun

    def test_what_failed_beside_is_read_again(self):
        waiting, beside = Waiting(*[1] * 3 * FIRST_LIMIT), Beside()
        reader = reader_of(waiting, beside)
        reader.read(1, 0, 1)
        waiting.is_out = True
        reader.read_on(0, 100)
        beside.run()
        waiting.is_out = False
        found = reader.read(1, 0, 2 * FIRST_LIMIT)
        assert firsts(found)[: 2 * FIRST_LIMIT] == list(range(1, 2 * FIRST_LIMIT + 1))


class TestARunThatWasHandedOutBefore:
    def test_is_read_whole_however_many_batches_it_lies_in(self):
        waiting = Waiting(*[1] * (LIMIT_MAX + 3))
        found = reader_of(waiting).read_run(run_of(1, LIMIT_MAX + 3, 1), LIMIT_MAX + 2)
        assert firsts(found) == list(range(1, LIMIT_MAX + 3))

    def test_begins_where_the_batch_of_its_first_message_does(self):
        found = reader_of(Waiting(1, 3, 3)).read_run(run_of(3, 5, 1), 5)
        assert firsts(found) == [2, 5]

    @pytest.mark.parametrize(("lost", "gone"), [(0, "1 to 2"), (1, "3 to 4"), (2, "5 to 6")])
    def test_is_damaged_where_a_batch_of_it_is_gone(self, lost, gone):
        waiting = Waiting(2, 2, 2)
        del waiting.batches[lost]
        with pytest.raises(DecodeError, match=f"messages {gone} were handed out"):
            reader_of(waiting).read_run(run_of(1, 6, 1), 6)


@pytest.fixture
def at_odds():
    """Three batches, of which the second names a message of the first once more."""
    waiting = Waiting(2, 1, 1)
    waiting.batches[1:] = [Batch(2, (b"again", b"3"), None, 2), Batch(4, (b"4",), None, 1)]
    return waiting


def test_nothing_is_shown_of_what_names_a_message_twice(at_odds):
    with pytest.raises(DecodeError, match="overlaps"):
        reader_of(at_odds).read(1, 0, 4)
    with pytest.raises(DecodeError, match="overlaps"):
        reader_of(at_odds).read_run(run_of(1, 4, 1), 4)


@pytest.mark.parametrize(("first", "is_wrong"), [(2, True), (3, True), (4, False)])
def test_batches_that_overlap_are_damage(first, is_wrong):
    batches = [Batch(1, (b"",) * 3, None, 3), Batch(first, (b"",), None, 1)]
    if not is_wrong:
        check_disjoint(new_pipe_id(), batches)
        return
    with pytest.raises(DecodeError, match="overlaps"):
        check_disjoint(new_pipe_id(), batches)

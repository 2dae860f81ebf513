"""How the event of a pipe follows from its rows, and how it is written and read."""

import json
from datetime import UTC, datetime
from itertools import pairwise
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cassq.errors import DecodeError
from cassq.limits import MIB, UNDECIDED
from cassq.model.fates import Stretch, stretches_of
from cassq.model.ids import MessageId, new_pipe_id, new_token
from cassq.model.journal import (
    PART_WEIGHT,
    STRETCHES_MAX,
    Origins,
    PipeEvent,
    PushedBatch,
    event_of,
    events_with_headers,
)
from cassq.model.message import Batch
from cassq.model.past import Attempt, grown, past_from_text, past_to_text
from cassq.model.pipe import BURIAL, End, Head, Mark, Phase, PipeEntry, PipeState, Run, RunState
from cassq.model.progress import Progress

PIPE = new_pipe_id()
LAST = 12


def run(first, last, attempt=1, reason=""):
    rest = new_token(), 0, 0, 0, "a popper"
    return Run(first, last, first, RunState.LEASED, attempt, *rest, reason=reason)


def state(marks, runs=(), last=LAST):
    head = Head(new_token(), last, last + 1, 0, Phase.RETIRED, last)
    return PipeState(head, tuple(runs), tuple(marks), 1_700_000_000_000)


def event(**changes):
    told = {
        "queue": "orders",
        "pipe": PIPE,
        "pusher": "a pusher",
        "messages": LAST,
        "retired_at": datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC),
        "stretches": (Stretch(1, LAST, End.COMMITTED, 1),),
    }
    return PipeEvent(**(told | changes))


RANGES = st.tuples(st.integers(1, LAST), st.integers(1, LAST)).map(sorted)
MARKS = st.lists(
    st.tuples(RANGES, st.sampled_from(End)).map(
        lambda each: Mark(*each[0], each[1], PIPE if each[1] is End.MOVED else None)
    ),
    max_size=8,
)
CUTS = st.sets(st.integers(2, LAST), max_size=4).map(lambda cuts: [1, *sorted(cuts), LAST + 1])


@given(MARKS, CUTS, st.sets(st.integers(0, 4)))
def test_of_each_message_it_tells_what_the_pipe_told(marks, cuts, left_out):
    runs = [
        run(first, after - 1, place + 1)
        for place, (first, after) in enumerate(pairwise(cuts))
        if place not in left_out
    ]
    progress = Progress(state(marks, runs))

    found = list(stretches_of(state(marks, runs)))

    assert [each.first for each in found] == sorted(each.first for each in found)
    told = [(seq, each) for each in found for seq in range(each.first, each.last + 1)]
    assert len({seq for seq, _ in told}) == len(told)
    for seq, each in told:
        assert each.end is progress.ending_of(seq)
        assert each.attempts == next((one.attempts for one in runs if one.first <= seq <= one.last), 0)
    assert {seq for seq, _ in told} == {seq for seq in range(1, LAST + 1) if progress.is_ended(seq)}
    for before, each in pairwise(found):
        assert before.last + 1 < each.first or before[2:] != each[2:]


def test_neighbours_with_one_fate_are_one_stretch():
    runs = [run(1, 4), run(5, 8), run(9, 12, attempt=2, reason="no route")]
    marks = [Mark(seq, seq, End.COMMITTED) for seq in range(1, LAST + 1)]

    assert list(stretches_of(state(marks, runs))) == [
        Stretch(1, 8, End.COMMITTED, 1, holder="a popper"),
        Stretch(9, 12, End.COMMITTED, 2, "no route", holder="a popper"),
    ]


def test_messages_that_ended_in_one_second_are_one_stretch():
    marks = [Mark(seq, seq, End.COMMITTED, ended_at_ms=10_000 + 250 * seq) for seq in range(1, LAST + 1)]

    told = [(each.first, each.last, each.ended_at_s) for each in stretches_of(state(marks))]

    assert told == [(1, 3, 10), (4, 7, 11), (8, 11, 12), (12, 12, 13)]


def batch(first, count, headers=None, keys=None):
    return Batch(first, (), headers, count, 1_700_000_000_000 + first, keys=keys)


class TestAPipeWithItsHeaders:
    ENTRY = PipeEntry(PIPE, "a pusher")

    def events(self, batches, last=LAST):
        marks = [Mark(1, 2, End.DEAD), Mark(3, last, End.COMMITTED)]
        return [*events_with_headers("orders", self.ENTRY, state(marks, [run(1, last)], last), batches)]

    def test_is_one_event_where_they_fit(self):
        headers = tuple({"n": str(number)} for number in range(LAST - 2))

        (told,) = self.events([batch(1, 2, keys=("a", "b")), batch(3, LAST - 2, headers)])

        assert (told.first, told.last, told.messages, told.is_last) == (1, LAST, LAST, True)
        assert [each.end for each in told.stretches] == [End.DEAD, End.COMMITTED]
        at = 1_700_000_000_000
        assert told.batches == (
            PushedBatch(1, 2, at + 1, None, ("a", "b")),
            PushedBatch(3, LAST - 2, at + 3, headers, None),
        )
        assert PipeEvent.from_body(told.to_body()) == told

    def test_is_cut_between_batches_and_each_part_tells_of_its_own(self):
        large = ({"text": "x" * (PART_WEIGHT // 2)},)

        told = self.events([batch(1, 1, large), batch(2, 1, large), batch(3, 1, large), batch(4, 9)])

        assert [(each.first, each.last) for each in told] == [(1, 1), (2, 2), (3, 12)]
        assert [[(one.first, one.last, one.end) for one in each.stretches] for each in told] == [
            [(1, 1, End.DEAD)],
            [(2, 2, End.DEAD)],
            [(3, 12, End.COMMITTED)],
        ]
        assert [each.is_last for each in told] == [False, False, True]
        assert [each.covers(3) for each in told] == [False, False, True]
        assert [PipeEvent.from_body(each.to_body()) for each in told] == told

    def test_ends_where_its_pipe_does_be_it_within_a_batch(self):
        headers = tuple({"n": str(number)} for number in range(LAST))

        (told,) = self.events([batch(1, LAST, headers)], last=5)

        assert (told.last, told.batches[0].size, len(told.batches[0].headers)) == (5, 5, 5)

    def test_which_had_no_message_is_one_event(self):
        (told,) = self.events([], last=0)

        assert (told.first, told.last, told.messages, told.is_last) == (1, 0, 0, True)

    @settings(max_examples=25)
    @given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=8))
    def test_is_told_whole_and_once_wherever_it_is_cut(self, shapes):
        batches, first = [], 1
        for count, weight in shapes:
            text = "x" * (weight * PART_WEIGHT // 4 // count)
            batches.append(batch(first, count, ({"text": text},) * count))
            first += count
        last = first - 1
        pipe = state([Mark(1, last, End.COMMITTED)], last=last)

        told = [*events_with_headers("orders", self.ENTRY, pipe, batches)]

        numbers = [seq for each in told for seq in range(each.first, each.last + 1)]
        assert numbers == [*range(1, last + 1)]
        assert [each for one in told for each in one.batches] == [
            PushedBatch(each.first, each.count, each.pushed_at_ms, each.headers) for each in batches
        ]
        assert all(each.stretches == (Stretch(each.first, each.last, End.COMMITTED),) for each in told)


def test_of_what_came_back_the_last_attempts_are_kept():
    past = ()
    for number in range(1, 21):
        past = grown(past, Attempt(number, "p", 0, "x" * 500))
    assert [each.attempt for each in past] == [*range(5, 21)]
    assert {len(each.reason) for each in past} == {100}
    assert grown(past, Attempt(20, "p", 0, "counted already")) == past
    assert grown((), Attempt(0, "p", 0, "nothing was handed out")) == ()
    assert past_from_text(past_to_text(past)) == past
    assert past_to_text(()) == ""


@pytest.mark.parametrize(
    "text", ["7", "null", "[7]", "[[1]]", '[[1,"p",0,null]]', '[["1","p",0,""]]', "[" * 100_000]
)
def test_what_is_no_text_of_earlier_attempts_is_told(text):
    with pytest.raises((ValueError, TypeError)):
        past_from_text(text)


def test_what_was_buried_tells_the_attempts_that_it_had():
    marks = [Mark(1, LAST, End.DEAD)]

    (told,) = stretches_of(state(marks, [run(1, LAST, BURIAL + 5, "no route")]))

    assert told == Stretch(1, LAST, End.DEAD, 5, "no route", holder="a popper")


def test_a_mark_that_reaches_behind_the_end_of_the_pipe_counts_up_to_there():
    assert list(stretches_of(state([Mark(2, UNDECIDED - 1, End.PURGED)], last=3))) == [
        Stretch(2, 3, End.PURGED)
    ]


@pytest.mark.parametrize(
    "stretch",
    [
        Stretch(1, 2, End.PURGED),
        Stretch(1, 2, End.COMMITTED, 7),
        Stretch(1, 2, End.DEAD, 5, "no route"),
        Stretch(1, 2, End.MOVED, target=uuid4()),
        Stretch(1, 2, End.MOVED, 3, "busy", uuid4()),
        Stretch(1, 2, End.COMMITTED, 1, ended_at_s=1_700_000_000),
        Stretch(1, 2, End.DEAD, 3, holder="p", past=(Attempt(1, "p", 0, "busy"), Attempt(2, "q", 1700, ""))),
    ],
)
def test_what_is_written_is_read_back(stretch):
    told = event(stretches=(stretch,), priority=-3, type="refund", origins=(Origins(1, 2, PIPE, 7),))

    assert PipeEvent.from_body(told.to_body()) == told


def test_what_a_newer_version_tells_besides_is_left_out():
    told = json.loads(event().to_body())

    assert PipeEvent.from_body(json.dumps(told | {"headers": []}).encode()) == event()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b"{}",
        event().to_body().replace(b"committed", b"melted"),
        event().to_body().replace(b'"messages":12', b'"messages":null'),
        event().to_body().replace(b"[[1,12", b"[[1"),
        event().to_body().replace(str(PIPE).encode(), b"no pipe"),
        event().to_body().replace(b'"ends":[[1,12,"committed",1]]', b'"ends":7'),
        event().to_body().replace(b'"held_by":[0]', b'"held_by":[7]'),
        event().to_body().replace(b'"held_by":[0]', b'"held_by":[]'),
        event().to_body().replace(b'"holders"', b'"past":{"0":[[1]]},"holders"'),
    ],
)
def test_what_is_no_event_is_told_with_what_it_is(body):
    with pytest.raises(DecodeError, match="no event"):
        PipeEvent.from_body(body)


def test_an_event_fits_into_one_write_whatever_became_of_its_pipe():
    last = 3 * STRETCHES_MAX
    runs = [run(seq, seq, seq, "\N{EURO SIGN}" * 5000) for seq in range(1, last + 1)]
    marks = [Mark(seq, seq, End.DEAD if seq % 2 else End.COMMITTED) for seq in range(1, last + 1)]

    told = event_of("orders", PipeEntry(PIPE, "a pusher"), state(marks, runs, last))

    assert len(told.to_body()) < 8 * MIB
    assert len(told.stretches) == STRETCHES_MAX
    assert told.find(STRETCHES_MAX).reason.endswith("\N{HORIZONTAL ELLIPSIS}")
    assert told.find(STRETCHES_MAX + 1) is None


def test_a_message_is_found_by_its_number():
    told = event(stretches=(Stretch(1, 3, End.COMMITTED, 1), Stretch(5, 9, End.DEAD, 5)))

    assert told.find(3) == told.stretches[0]
    assert told.find(5) == told.stretches[1]
    assert told.find(4) is None
    assert told.find(10) is None


def test_a_message_that_was_moved_here_is_found_by_its_first_id():
    source = new_pipe_id()
    told = event(origins=(Origins(1, 2, source, 7), Origins(3, 1, source, 3)))

    assert [told.number_of(MessageId(source, seq)) for seq in (7, 8, 3, 9, 1)] == [1, 2, 3, None, None]
    assert told.number_of(MessageId(PIPE, 7)) is None


def test_an_event_of_a_pipe_has_what_its_entry_and_its_rows_tell():
    entry = PipeEntry(PIPE, "a pusher", priority=2, type="refund")

    told = event_of("orders", entry, state([Mark(1, LAST, End.COMMITTED)], [run(1, LAST)]))

    stretches = (Stretch(1, LAST, End.COMMITTED, 1, holder="a popper"),)
    at = datetime.fromtimestamp(1_700_000_000, UTC)
    assert told == event(priority=2, type="refund", retired_at=at, stretches=stretches)

"""What the storage port says of the rows of slots, asked of every adapter."""

from dataclasses import replace

import pytest
from stored import check_one_winner, race, record

from cassq.errors import DecodeError
from cassq.limits import SLOTS_MAX
from cassq.model.ids import new_token
from cassq.model.queue_record import QueueState

#: A slot of each end, and one between.
SLOTS = [0, 7, SLOTS_MAX - 1]


@pytest.fixture
def incarnation(storage, queue):
    made = record(queue)
    assert storage.change_queue(None, made)
    return made.incarnation


@pytest.fixture(params=[True, False], ids=["settled", "unsettled"])
def read(storage, request):
    return lambda incarnation, slot: storage.read_slot(incarnation, slot, is_settled=request.param)


def test_a_slot_that_nobody_won_has_no_op(read, incarnation):
    assert [read(incarnation, slot) for slot in SLOTS] == [None] * 3


def test_a_slot_has_the_op_that_was_written_and_others_have_theirs(storage, read, incarnation):
    ops = {slot: new_token() for slot in SLOTS}

    for slot, op in ops.items():
        assert storage.change_slot(incarnation, slot, None, op)

    assert {slot: read(incarnation, slot) for slot in SLOTS} == ops
    assert read(incarnation, 1) is None


def test_a_slot_that_somebody_won_is_not_won_as_if_nobody_had(storage, read, incarnation):
    first = new_token()
    storage.change_slot(incarnation, 7, None, first)

    assert not storage.change_slot(incarnation, 7, None, new_token())

    assert read(incarnation, 7) == first


def test_a_slot_is_won_by_who_saw_its_op_and_by_nobody_who_saw_an_older_one(storage, read, incarnation):
    first, second = new_token(), new_token()
    storage.change_slot(incarnation, 7, None, first)

    assert storage.change_slot(incarnation, 7, first, second)
    assert not storage.change_slot(incarnation, 7, first, new_token())

    assert read(incarnation, 7) == second


def test_a_slot_that_is_not_there_is_not_won_by_an_op(storage, read, incarnation):
    assert not storage.change_slot(incarnation, 7, new_token(), new_token())

    assert read(incarnation, 7) is None


@pytest.mark.parametrize("is_there", [False, True], ids=["first", "later"])
def test_of_those_who_win_what_they_saw_one_does(storage, incarnation, is_there):
    seen = new_token() if is_there else None
    if seen:
        storage.change_slot(incarnation, 7, None, seen)

    applied, unknown = race(
        lambda mine: storage.change_slot(incarnation, 7, seen, mine), [new_token() for _ in range(4)]
    )

    check_one_winner(applied, unknown, storage.read_slot(incarnation, 7), seen)


def test_a_deletion_of_all_leaves_those_of_other_queues_and_lets_nothing_come_back(
    storage, queue, read, incarnation
):
    other, kept, first = record(f"{queue}-other"), new_token(), new_token()
    storage.change_queue(None, other)
    for slot in SLOTS:
        storage.change_slot(incarnation, slot, None, first)
        storage.change_slot(other.incarnation, slot, None, kept)
    stands = next(iter(storage.read_queues(queue)))
    storage.change_queue(stands, replace(stands, state=QueueState.DELETED, op=new_token()))

    storage.delete_slots(incarnation)
    storage.delete_slots(incarnation)
    assert not storage.change_slot(incarnation, 7, first, new_token())
    storage.change_slot(incarnation, 7, None, new_token())

    assert [read(incarnation, slot) for slot in SLOTS] == [None] * 3
    assert [read(other.incarnation, slot) for slot in SLOTS] == [kept] * 3


def test_a_row_that_is_not_ours_raises(storage, adapter, read, incarnation):
    storage.change_slot(incarnation, 7, None, new_token())

    adapter.plant(storage, "slot", incarnation)

    with pytest.raises(DecodeError):
        read(incarnation, 7)

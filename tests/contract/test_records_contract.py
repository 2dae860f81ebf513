"""What the storage port says of queues' records, asked of every adapter."""

from dataclasses import replace
from datetime import timedelta

from stored import EARLY_MS, check_one_winner, race, record

from cassq.model.ids import new_pipe_id, new_token
from cassq.model.queue_record import QueueState, Sample, Written
from cassq.model.settings import QueueSettings
from cassq.model.tally import Tally


class TestQueues:
    def test_a_record_reads_back_as_it_was_written(self, storage, queue):
        wanted = record(
            queue,
            settings=QueueSettings(lease=timedelta(milliseconds=1500), pop_width=3),
            state=QueueState.PAUSED,
            totals=Tally(7, 6, 5, 4, 3, 2, 1),
            counted=frozenset(new_pipe_id() for _ in range(3)),
            samples=(Sample(EARLY_MS, 1, 2, 3), Sample(EARLY_MS + 1, 4, 5, 6)),
            writers={"loader": Written(7, new_pipe_id()), "other": Written(0)},
        )

        assert storage.change_queue(None, wanted)

        assert list(storage.read_queues(queue)) == [wanted]
        assert storage.glance_queue(queue) == wanted

    def test_a_queue_that_was_never_made_reads_as_nothing(self, storage, queue):
        assert list(storage.read_queues(queue)) == []
        assert storage.glance_queue(queue) is None

    def test_all_queues_read_in_the_order_of_their_names(self, storage, queue):
        names = [f"{queue}-{place}" for place in (2, 0, 1)]
        for name in names:
            storage.change_queue(None, record(name))

        found = [read.name for read in storage.read_queues() if read.name in names]
        assert [each for each in storage.list_queues() if each in names] == found

        assert found == sorted(names)

    def test_a_second_creation_is_refused_and_changes_nothing(self, storage, queue):
        first = record(queue)
        storage.change_queue(None, first)

        assert not storage.change_queue(None, record(queue))

        assert list(storage.read_queues(queue)) == [first]

    def test_a_change_needs_the_op_that_was_seen(self, storage, queue):
        first = record(queue)
        second = replace(first, op=new_token(), totals=Tally(pushed=1))
        storage.change_queue(None, first)

        assert storage.change_queue(first, second)
        assert not storage.change_queue(first, replace(first, op=new_token(), totals=Tally(pushed=9)))

        assert list(storage.read_queues(queue)) == [second]
        assert storage.glance_queue(queue) == second

    def test_a_change_of_a_queue_that_is_not_there_is_refused(self, storage, queue):
        assert not storage.change_queue(record(queue), record(queue))
        assert list(storage.read_queues(queue)) == []

    def test_a_deleted_queue_stays_as_a_row_and_a_new_one_replaces_it(self, storage, queue):
        first = record(queue, totals=Tally(pushed=7))
        deleted = replace(first, op=new_token(), state=QueueState.DELETED)
        storage.change_queue(None, first)
        storage.change_queue(first, deleted)
        assert list(storage.read_queues(queue)) == [deleted]
        assert storage.glance_queue(queue) == deleted
        assert queue not in storage.list_queues()

        anew = record(queue)
        assert storage.change_queue(None, anew)

        assert list(storage.read_queues(queue)) == [anew]

    def test_of_eight_racing_changes_exactly_one_applies(self, storage, queue):
        seen = record(queue)
        storage.change_queue(None, seen)
        wanted = [replace(seen, op=new_token()) for _ in range(8)]

        applied, unknown = race(lambda mine: storage.change_queue(seen, mine), wanted)

        (left,) = storage.read_queues(queue)
        check_one_winner(applied, unknown, left, seen)

    def test_of_eight_racing_creations_exactly_one_applies(self, storage, queue):
        wanted = [record(queue) for _ in range(8)]

        applied, unknown = race(lambda mine: storage.change_queue(None, mine), wanted)

        left = next(iter(storage.read_queues(queue)), None)
        check_one_winner(applied, unknown, left, None)

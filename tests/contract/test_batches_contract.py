"""What the storage port says of batches, asked of every adapter."""

import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from stored import EARLY_MS, batch

from cassq.model.ids import MessageId, new_pipe_id
from cassq.model.message import Batch, Origin
from cassq.storage.forms import BatchQuery


def unstamped(batches):
    return [replace(found, pushed_at_ms=None) for found in batches]


class TestBatches:
    def test_a_batch_reads_back_with_the_databases_time(self, storage, pipe):
        pushed = batch(1, b"", b"\x00\xff", b"c" * 70_000, headers=({}, {"a": "b", "é": "ü"}, {}))

        storage.append(pipe, pushed)

        (found,) = storage.read_batches(pipe, BatchQuery())
        assert replace(found, pushed_at_ms=None) == pushed
        assert abs(found.pushed_at_ms - storage.load_pipe(pipe).now_ms) < 60_000

    def test_a_batch_without_headers_reads_back_without(self, storage, pipe):
        storage.append(pipe, batch(1, b"a"))

        (found,) = storage.read_batches(pipe, BatchQuery())

        assert found.headers is None

    def test_headers_are_read_without_bodies(self, storage, pipe):
        headers = ({"type": "new"}, {})
        pushed = [batch(1, b"a", b"b", headers=headers), replace(batch(3, b"c"), keys=("k",))]
        for each in pushed:
            storage.append(pipe, each)

        found = storage.read_batches(pipe, BatchQuery(limit=10, is_outline=True, has_headers=True))

        assert unstamped(found) == [replace(pushed[0].outline, headers=headers), pushed[1].outline]

    def test_a_batch_reads_back_with_its_time_to_live(self, storage, pipe):
        longest = 10**12
        storage.append(pipe, replace(batch(1, b"a"), ttl_ms=1_000))
        storage.append(pipe, batch(2, b"b"))
        storage.append(pipe, replace(batch(3, b"c"), ttl_ms=longest))

        for is_outline in (False, True):
            found = storage.read_batches(pipe, BatchQuery(limit=10, is_outline=is_outline))
            assert [read.ttl_ms for read in found] == [1_000, 0, longest]

    def test_a_batch_reads_back_with_due_times_keys_and_with_what_its_messages_were_first(
        self, storage, pipe
    ):
        dues = (0, EARLY_MS, 253_402_300_799_999)
        origins = tuple(Origin(MessageId(new_pipe_id(), seq), EARLY_MS + seq) for seq in (1, 2, 7))
        pushed = [
            replace(batch(1, b"a", b"b", b"c"), dues=dues),
            replace(batch(4, b"d", b"e", b"f"), dues=dues, origins=origins),
            replace(batch(7, b"g", b"h", b"i"), origins=origins),
            replace(batch(10, b"j", b"k", b"l"), keys=("a", "ü", "a")),
            batch(13, b"m"),
        ]
        for each in pushed:
            storage.append(pipe, each)

        assert unstamped(storage.read_batches(pipe, BatchQuery(limit=10))) == pushed
        outlines = storage.read_batches(pipe, BatchQuery(limit=10, is_outline=True))
        assert unstamped(outlines) == [each.outline for each in pushed]
        assert pushed[1].part(5, 6) == Batch(
            5, (b"e", b"f"), None, 2, None, 0, dues=dues[1:], origins=origins[1:]
        )

    def test_appending_the_same_batch_again_changes_nothing(self, storage, pipe):
        for _ in range(3):
            storage.append(pipe, batch(1, b"a", b"b"))

        found = storage.read_batches(pipe, BatchQuery(limit=10))

        assert unstamped(found) == [batch(1, b"a", b"b")]

    def test_a_gap_is_shown_as_a_gap(self, storage, pipe):
        storage.append(pipe, batch(1, b"a", b"b"))
        storage.append(pipe, batch(7, b"g"))

        found = storage.read_batches(pipe, BatchQuery(limit=10))

        assert [(read.first, read.last) for read in found] == [(1, 2), (7, 7)]

    def test_a_read_begins_and_ends_where_the_query_says(self, storage, pipe):
        for first in range(1, 10, 2):
            storage.append(pipe, batch(first, b"x", b"y"))

        within = storage.read_batches(pipe, BatchQuery(first=3, last=7, limit=10))
        limited = storage.read_batches(pipe, BatchQuery(first=2, limit=2))

        assert [read.first for read in within] == [3, 5, 7]
        assert [read.first for read in limited] == [3, 5]

    def test_newest_first_keeps_the_newest(self, storage, pipe):
        for first in range(1, 6):
            storage.append(pipe, batch(first, b"x"))

        found = storage.read_batches(pipe, BatchQuery(last=4, limit=2, is_newest_first=True))

        assert [read.first for read in found] == [4, 3]

    @pytest.mark.parametrize("is_newest_first", [False, True])
    def test_an_outline_counts_the_messages_and_leaves_them_out(self, storage, pipe, is_newest_first):
        storage.append(pipe, batch(1, b"a", b"b", b"c", headers=({}, {"a": "b"}, {})))

        (found,) = storage.read_batches(pipe, BatchQuery(is_outline=True, is_newest_first=is_newest_first))

        assert (found.first, found.last, found.count) == (1, 3, 3)
        assert found.bodies == ()
        assert found.headers is None
        assert found.pushed_at_ms > EARLY_MS

    def test_more_batches_than_one_page_come_all_and_in_order(self, storage, pipe):
        for first in range(1, 151):
            storage.append(pipe, batch(first, b"x"))

        found = storage.read_batches(pipe, BatchQuery(limit=1000))

        assert [read.first for read in found] == list(range(1, 151))

    def test_a_full_batch_of_a_thousand_bodies_goes_through(self, storage, pipe):
        pushed = batch(1, *(secrets.token_bytes(256) for _ in range(1000)))

        storage.append(pipe, pushed)

        assert unstamped(storage.read_batches(pipe, BatchQuery())) == [pushed]

    def test_what_one_thread_appended_another_reads(self, storage, pipe):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda first: storage.append(pipe, batch(first, b"x")), range(1, 41)))

        found = storage.read_batches(pipe, BatchQuery(limit=100, is_outline=True))

        assert [read.first for read in found] == list(range(1, 41))

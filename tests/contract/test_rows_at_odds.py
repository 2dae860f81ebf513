"""Rows of which each could be cassq's, and which cannot be true together.

Owns the damage that no single column shows: runs that overlap, marks beyond the cursor, batches that
are gone. The expectation is that of `test_corrupt_rows.py`. What is known not to hold yet is marked, with
the place.
"""

import contextlib
import sqlite3
from datetime import timedelta

import pytest
from spoilt import HEARERS, hear, make_scene

import cassq
from cassq.bulk.leased_run import read_leased
from cassq.model.ids import time_key
from cassq.pipes.batch_reader import BatchReader


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "store.db")


@pytest.fixture
def opened(path):
    with cassq.connect(f"sqlite:///{path}?durability=normal") as store:
        yield store


def spoil(path, statement, *values):
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        assert db.execute(statement, values).rowcount > 0


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("UPDATE runs SET last = 3 WHERE first = 2 AND pipe = ?", id="runs overlap"),
        pytest.param(
            "UPDATE runs SET last = 4 WHERE first = 3 AND pipe = ?", id="a run ends behind the cursor"
        ),
        pytest.param("UPDATE heads SET cursor = 1, read_from = 1 WHERE pipe = ?", id="the cursor fell back"),
        pytest.param("UPDATE heads SET cursor = 4 WHERE pipe = ?", id="the cursor stepped over a message"),
        pytest.param("DELETE FROM runs WHERE first = 2 AND pipe = ?", id="a run is gone"),
        pytest.param(
            "INSERT INTO marks (pipe, first, last, ending) VALUES (?, 4, 4, 'committed')",
            id="a commit of what was never out",
        ),
    ],
)
def test_a_pipe_whose_rows_contradict_each_other_is_heard_of(path, opened, statement):
    scene = make_scene(opened, "orders")
    spoil(path, statement, time_key(scene.spoilt))

    heard = hear(opened, scene, patience_s=1)

    assert heard >= HEARERS["heads"], f"only {sorted(heard)} heard of it"


def test_batches_that_overlap_are_heard_of(path, opened):
    queue = opened.queue("orders")
    queue.push_many([b"1", b"2", b"3", b"4"])
    queue.close()
    spoil(
        path,
        "INSERT INTO waiting (pipe, first, count, pushed_at_ms, lengths, headers, bodies)"
        " SELECT pipe, 3, count, pushed_at_ms, lengths, headers, bodies FROM waiting WHERE first = ?",
        1,
    )

    with opened.queue("orders").popper() as popper, pytest.raises(cassq.CorruptError):
        assert sorted(each.message_id.seq for each in popper.pop_many(10, timeout=5)) == [1, 2, 3, 4]


@pytest.fixture
def torn(path, opened):
    """A storage; a run of three batches, leased and as it was written down; the second is gone."""
    queue = opened.queue("orders")
    for body in (b"1", b"2", b"3"):
        queue.push(body)
    (leased,) = queue.run_reader("tests", lease=timedelta(minutes=1)).take(3)
    storage = queue._context.storage
    (run,) = storage.load_pipe(leased.pipe).runs
    spoil(path, "DELETE FROM waiting WHERE first = 2")
    return storage, run, leased


def test_a_batch_that_is_gone_from_the_middle_of_what_is_handed_out_again_is_heard_of(torn):
    storage, run, leased = torn
    with pytest.raises(
        cassq.DecodeError, match=f"{leased.pipe}: messages 2 to 2 were handed out, and are gone"
    ):
        BatchReader(storage, leased.pipe).read_run(run, run.last)


def test_a_batch_that_is_gone_from_the_middle_of_what_was_written_down_is_heard_of(torn):
    storage, _, leased = torn
    with pytest.raises(cassq.DecodeError, match=f"{leased.pipe}: messages 2 to 2 of a leased run are gone"):
        list(read_leased(storage, leased))


def test_a_batch_that_is_gone_from_a_sealed_pipe_is_heard_of(path, opened):
    queue = opened.queue("orders")
    queue.push_many([b"1", b"2"])
    queue.close()
    spoil(path, "DELETE FROM waiting WHERE first = ?", 1)
    queue = opened.queue("orders")
    assert queue.stats().waiting == 2

    with queue.popper() as popper, pytest.raises(cassq.CorruptError):
        popper.pop(timeout=0)


def test_a_batch_that_is_gone_holds_up_neither_what_came_before_it_nor_other_pipes(path, opened):
    queue = opened.queue("orders")
    first, gone = queue.push(b"1"), queue.push(b"2")
    queue.close()
    spoil(path, "DELETE FROM waiting WHERE first = ?", 2)
    queue = opened.queue("orders")
    other = queue.push(b"3")

    with queue.popper() as popper:
        came = [popper.pop(timeout=10) for _ in range(2)]
        with pytest.raises(cassq.DecodeError, match=f"pipe {gone.pipe}: messages 2 to 2 wait"):
            popper.pop(timeout=1)
        for delivery in came:
            assert delivery.rollback(timedelta(0))
        again = [popper.pop(timeout=10) for _ in range(2)]

        assert {each.message_id for each in came} == {each.message_id for each in again} == {first, other}


def test_a_retired_pipe_with_messages_that_are_out_is_not_deleted(path, opened):
    queue = opened.queue("orders")
    pushed = queue.push(b"1")
    with queue.popper() as popper:
        delivery = popper.pop(timeout=10)
        queue.close()
        spoil(path, "UPDATE heads SET phase = 'retired' WHERE pipe = ?", time_key(pushed.pipe))

        report = opened.queue("orders").reap()

        assert delivery.message_id == pushed
        assert (report.retired, len(report.failed)) == (0, 1)


@pytest.mark.xfail(
    strict=True, reason="list_pipes raises for the whole list, so one bad entry stops its queue"
)
def test_one_spoilt_entry_does_not_hold_up_the_other_pipes(path, opened):
    scene = make_scene(opened, "orders")
    spoil(path, "UPDATE pipes SET lane = -7 WHERE pipe = ?", time_key(scene.spoilt))

    heard = hear(opened, scene, patience_s=1)

    assert "pop" in heard
    assert "no pop at all" not in heard


def test_one_spoilt_record_does_not_keep_the_other_queues_from_being_reaped(path, opened):
    opened.queue("apples")
    make_scene(opened, "orders")
    spoil(path, "UPDATE queues SET state = 'melted' WHERE name = ?", "apples")

    report = opened.reap()

    assert report.examined == 2
    assert len(report.failed) == 1


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("queues", "settings"),
        ("pipes", "pusher"),
        ("waiting", "headers"),
        ("runs", "holder"),
        ("dead", "reason"),
    ],
)
def test_a_text_that_is_no_unicode_is_heard_of(path, opened, table, column):
    scene = make_scene(opened, "orders")
    spoil(path, f"UPDATE {table} SET {column} = CAST(? AS TEXT)", b"\xff\xfe")

    assert hear(opened, scene, patience_s=1)


def test_a_spoilt_clock_is_heard_of_when_the_store_is_opened(path):
    cassq.connect(f"sqlite:///{path}").close()
    spoil(path, "UPDATE clock SET offset_ms = ?", "melted")

    with pytest.raises(cassq.CorruptError):
        cassq.connect(f"sqlite:///{path}").close()

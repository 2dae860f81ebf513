"""What the record tells of writers, and which of them may be forgotten."""

from uuid import UUID, uuid1

from cassq.bulk import writers
from cassq.bulk.writers import ONCE
from cassq.model.ids import TICKS_BEFORE_1970, TICKS_PER_MS, new_pipe_id
from cassq.model.pipe import PipeEntry
from cassq.model.queue_record import QueueRecord, Written
from cassq.model.settings import QueueSettings


def record_of(**known):
    return QueueRecord("q", UUID(int=1), QueueSettings(), UUID(int=2), writers=known)


def test_a_batch_stays_decided_when_a_later_one_is():
    record = record_of(loader=Written(6, None))
    assert [writers.is_decided(record, "loader", batch) for batch in (5, 6, 7)] == [True, True, False]
    assert not writers.is_decided(record, "another", 1)


def test_a_batch_is_finished_once_no_manifest_is_left():
    manifest = new_pipe_id()
    record = writers.decide(record_of(), "loader", 7, manifest)
    assert (writers.is_decided(record, "loader", 7), writers.is_finished(record, "loader", 7)) == (
        True,
        False,
    )
    done = writers.finish(record, "loader", Written(7, manifest))
    assert writers.is_finished(done, "loader", 7)
    assert done.publications == record.publications + 1


def test_what_somebody_else_finished_is_left_as_it_is():
    record = record_of(loader=Written(8, None))
    assert writers.finish(record, "loader", Written(7, new_pipe_id())) is record


def test_whose_batch_is_not_published_is_never_forgotten():
    left, done = f"{ONCE}{uuid1()}", f"{ONCE}{uuid1()}"
    record = record_of(
        **{left: Written(0, new_pipe_id()), done: Written(0, None), "loader": Written(3, None)}
    )
    assert writers.ended(record) == {done}
    assert writers.born_before(record, float("inf")) == {done}
    assert set(writers.without(record, {done}).writers) == {left, "loader"}


def test_only_a_name_with_a_time_tells_when_its_writer_began():
    old, odd = f"{ONCE}{uuid1()}", f"{ONCE}of-somebody"
    record = record_of(**{old: Written(0, None), odd: Written(0, None)})
    born_ms = (UUID(old.removeprefix(ONCE)).time - TICKS_BEFORE_1970) / TICKS_PER_MS
    assert writers.born_before(record, born_ms) == set()
    assert writers.born_before(record, born_ms + 1) == {old}


def test_a_staged_pipe_tells_its_writer():
    entry = PipeEntry(new_pipe_id(), "loader/7/a task")
    assert writers.is_of(entry, {"loader"})
    assert not writers.is_of(entry, {"load"})

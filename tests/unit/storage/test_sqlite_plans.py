"""How SQLite finds what a statement asks for."""

from cassq.model.ids import new_pipe_id
from cassq.runtime.clock import SystemClock
from cassq.storage.sqlite.storage import SqliteStorage


def test_a_pipe_is_deleted_without_a_look_at_the_letters_that_stand():
    storage = SqliteStorage(None, is_synced=False, clock=SystemClock())
    said = []
    with storage._file.reading() as db:
        db.set_trace_callback(said.append)
    storage.delete_pipe("q", new_pipe_id())
    (statement,) = [each for each in said if each.startswith("DELETE FROM dead")]

    with storage._file.reading() as db:
        (plan, *_) = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}")]

    assert plan == "SEARCH dead USING INDEX dead_removed (died_at_ms<?)"
    storage.close()

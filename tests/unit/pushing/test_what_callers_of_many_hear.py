"""What `push_many` is told of each of its requests."""

from concurrent.futures import Future

import pytest

from cassq.errors import CassqError, OutcomeUnknownError, StorageUnavailableError
from cassq.model.ids import new_pipe_id
from cassq.model.message import MessageIds
from cassq.pushing.push_result import resolve


def ids_of(count):
    ids = MessageIds()
    if count:
        ids.add(new_pipe_id(), 1, count)
    return ids


def test_whoever_has_everything_stored_gets_the_ids():
    future, ids = Future(), ids_of(3)
    resolve(future, ids, None)
    assert future.result(0) is ids


@pytest.mark.parametrize(
    ("stored", "error", "told"),
    [
        # Nothing is stored, and that is known: it may be pushed again
        (0, StorageUnavailableError("out of reach"), StorageUnavailableError),
        # A part is stored: to push it again would be to push that part twice
        (2, StorageUnavailableError("out of reach"), OutcomeUnknownError),
        (0, OutcomeUnknownError("no answer"), OutcomeUnknownError),
        (2, OutcomeUnknownError("no answer"), OutcomeUnknownError),
    ],
)
def test_what_is_stored_in_part_is_never_told_as_not_stored(stored, error, told):
    future: Future[MessageIds] = Future()
    resolve(future, ids_of(stored), error)
    heard = future.exception(0)
    assert isinstance(heard, CassqError)
    assert type(heard) is told
    if stored and told is not type(error):
        assert f"{stored} messages are stored" in str(heard)

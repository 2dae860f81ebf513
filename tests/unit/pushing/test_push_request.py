"""What one call pushed: that it ends once, and with what."""

from cassq.errors import StorageUnavailableError
from cassq.model.ids import new_pipe_id
from cassq.model.message import NO_HEADERS
from cassq.pushing.push_request import PushRequest


def test_a_request_ends_once_with_what_was_stored_of_it():
    ends = []
    request = PushRequest(
        [b"x"] * 3, [NO_HEADERS] * 3, 1e12, lambda ids, error: ends.append((len(ids), error))
    )
    request.store(new_pipe_id(), 1, 2)
    assert (request.count, request.is_finished) == (1, False)
    request.fail(StorageUnavailableError("gone"))
    request.store(new_pipe_id(), 1, 1)
    ((stored, error),) = ends
    assert stored >= 2
    assert isinstance(error, StorageUnavailableError)


def test_what_is_stored_later_keeps_its_own_headers():
    headers = [{"of": str(number)} for number in range(3)]
    request = PushRequest([b"0", b"1", b"2"], headers, 1e12, lambda _ids, _error: None)
    request.store(new_pipe_id(), 1, 2)
    assert (list(request.bodies), list(request.headers)) == ([b"2"], [{"of": "2"}])

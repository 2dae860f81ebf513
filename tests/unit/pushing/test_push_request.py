"""What one call pushed: that it ends once, and with what."""

import sys

import pytest

from cassq.errors import StorageUnavailableError
from cassq.model.ids import new_pipe_id
from cassq.model.label import UNLABELLED
from cassq.model.message import NO_HEADERS
from cassq.pushing.push_request import PushRequest, Singles
from cassq.pushing.push_result import PushFuture

#: Of messages that are due some time, and that have keys.
LATER, KEYED = UNLABELLED._replace(due_class=1), UNLABELLED._replace(slot=3)


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


@pytest.mark.parametrize("label", [LATER, KEYED, UNLABELLED])
@pytest.mark.parametrize("second", range(1, 7))
@pytest.mark.parametrize("first", range(1, 8))
def test_a_message_has_its_own_headers_due_time_and_key_after_two_ctrl_c(first, second, label):
    single = Singles(1e12, label)
    _add(single, 0)

    _torn(first, Singles.add, single, 1)
    _torn(second, Singles.seal, single)
    _add(single, 2)

    single.seal()
    numbers = [int(body) for body in single.bodies]
    assert numbers in ([0, 2], [0, 1, 2])  # torn after its last step, it came in
    assert [headers["of"] for headers in single.headers] == [str(number) for number in numbers]
    assert list(single.dues) == [number for number in numbers if label.due_class]
    assert list(single.keys) == [str(number) for number in numbers if label.slot == 3]


def _add(single, number):
    end = PushFuture()
    end.label = single.label._replace(due_ms=number, key=str(number))
    single.add(b"%d" % number, {"of": str(number)}, 1, end)


def _torn(line, function, single, *numbers):
    """Let Ctrl-C come before the nth line of the function is run."""
    left = line

    def trace(frame, event, _argument):
        nonlocal left
        if frame.f_code is not function.__code__:
            return trace if event == "call" else None
        left -= event == "line"
        if left == 0:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        _add(single, *numbers) if numbers else single.seal()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)

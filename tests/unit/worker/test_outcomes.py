"""What a handler's end means for its message."""

from datetime import timedelta

import pytest

from cassq.errors import InvalidOptionError
from cassq.worker.outcomes import Reject, Retry, check_done, ending_of


class Bare(Retry):
    def __init__(self):
        pass


@pytest.mark.parametrize(
    ("error", "verb", "arguments", "is_failure"),
    [
        (None, "commit", {}, False),
        (ValueError("x"), "rollback", {"reason": "ValueError: x"}, True),
        (SystemExit(1), "rollback", {"reason": "SystemExit: 1"}, True),
        (Reject("no such customer"), "reject", {"reason": "no such customer"}, False),
        (Reject(ValueError("x")), "reject", {"reason": "x"}, False),
        (Reject(), "reject", {"reason": ""}, False),
        (Retry(), "rollback", {"delay": None, "reason": ""}, False),
        (Retry(30, "busy"), "rollback", {"delay": timedelta(seconds=30), "reason": "busy"}, False),
        (Retry(timedelta(hours=1)), "rollback", {"delay": timedelta(hours=1), "reason": ""}, False),
        (Bare(), "rollback", {"delay": None, "reason": ""}, False),
    ],
)
def test_only_a_return_commits(error, verb, arguments, is_failure):
    ending = ending_of(error)
    assert (ending.verb, ending.arguments, ending.is_failure) == (verb, arguments, is_failure)


def test_a_delay_that_is_none_is_refused_where_it_is_raised():
    with pytest.raises(InvalidOptionError):
        Retry("soon")


async def coroutine():
    pytest.fail("it ran")


def generator():
    yield 1


@pytest.mark.parametrize("result", [coroutine, generator], ids=["coroutine", "generator"])
def test_what_has_not_run_is_no_result(result):
    with pytest.raises(TypeError, match="has not run"):
        check_done(result())


def test_anything_else_is():
    for result in (None, 0, False, "text", [1]):
        check_done(result)

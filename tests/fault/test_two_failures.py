"""Two calls to a service fail in the same step, and the same objects go on as if nothing had been.

The same call twice in a row, or one call and then the next one of its thread, whichever that is. One call of
each method that a scene calls: it is chosen by the names of the case, always the same.
"""

from zlib import crc32

import pytest
from failing_ports import COORDINATION, REFUSED, SAYING, STORAGE, UNCERTAIN, UNEXPECTED, UNKNOWN
from failing_scenes import SCENES, calls_of, play

#: One of so many calls fails first.
CALLS = 4

METHODS = tuple(dict.fromkeys(method for method, _ in STORAGE + COORDINATION))

TWICE = (
    pytest.param(METHODS, (REFUSED, REFUSED), id="refused twice"),
    pytest.param(
        [method for method, how in STORAGE if how == UNEXPECTED],
        (UNEXPECTED, UNEXPECTED),
        id="unexpected twice",
    ),
    pytest.param(UNCERTAIN, (UNKNOWN, UNKNOWN), id="unknown twice"),
    pytest.param(UNCERTAIN, (UNKNOWN, REFUSED), id="unknown, then refused"),
)

THEN = (
    pytest.param([method for method in METHODS if method not in SAYING], REFUSED, UNKNOWN, id="refused"),
    pytest.param(UNCERTAIN, UNKNOWN, UNKNOWN, id="unknown"),
    pytest.param(UNCERTAIN, UNKNOWN, REFUSED, id="unknown, the next one refused"),
)


def chosen(act, methods, *words):
    """Return the methods that a scene calls, each with the number of the call that fails first."""
    calls = calls_of(act)
    cases = [
        (method, 1 + crc32("/".join((act.__name__, method, *words)).encode()) % min(CALLS, calls[method]))
        for method in methods
        if calls[method]
    ]
    assert cases
    return cases


@pytest.mark.parametrize(("methods", "hows"), TWICE)
@pytest.mark.parametrize("act", SCENES, ids=lambda act: act.__name__)
def test_all_goes_on_after_the_same_call_failed_twice(act, methods, hows):
    for method, number in chosen(act, methods, *hows):
        play(act, method, number, *hows)


@pytest.mark.parametrize(("methods", "how", "then"), THEN)
@pytest.mark.parametrize("act", SCENES, ids=lambda act: act.__name__)
def test_all_goes_on_after_a_call_and_the_next_one_failed(act, methods, how, then):
    for method, number in chosen(act, methods, how, then):
        play(act, method, number, how, then=then)

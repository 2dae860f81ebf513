"""Two calls to a service fail in the same step, and the same objects go on as if nothing had been.

The same call twice in a row, or one call and then the next one of its thread, whichever that is. One call of
each method and scene: a case chooses it by its name, always the same.
"""

from zlib import crc32

import pytest
from failing_ports import COORDINATION, REFUSED, SAYING, STORAGE, UNCERTAIN, UNEXPECTED, UNKNOWN
from failing_scenes import SCENES, calls_of, play

#: One of so many calls fails first.
CALLS = 4

METHODS = tuple(dict.fromkeys(method for method, _ in STORAGE + COORDINATION))

TWICE = (
    *((method, (REFUSED, REFUSED)) for method in METHODS),
    *((method, (UNEXPECTED, UNEXPECTED)) for method, how in STORAGE if how == UNEXPECTED),
    *((method, hows) for method in UNCERTAIN for hows in ((UNKNOWN, UNKNOWN), (UNKNOWN, REFUSED))),
)

THEN = (
    *((method, REFUSED, UNKNOWN) for method in METHODS if method not in SAYING),
    *((method, UNKNOWN, then) for method in UNCERTAIN for then in (UNKNOWN, REFUSED)),
)


def chosen(act, method, *words):
    """Return the number of the call that a case is about."""
    calls = min(CALLS, calls_of(act)[method])
    if not calls:
        pytest.skip("the scene has no such call")
    return 1 + crc32("/".join((act.__name__, method, *words)).encode()) % calls


@pytest.mark.parametrize(("method", "hows"), TWICE)
@pytest.mark.parametrize("act", SCENES, ids=lambda act: act.__name__)
def test_all_goes_on_after_the_same_call_failed_twice(act, method, hows):
    play(act, method, chosen(act, method, *hows), *hows)


@pytest.mark.parametrize(("method", "how", "then"), THEN)
@pytest.mark.parametrize("act", SCENES, ids=lambda act: act.__name__)
def test_all_goes_on_after_a_call_and_the_next_one_failed(act, method, how, then):
    play(act, method, chosen(act, method, how, then), how, then=then)

"""One call to a service fails once, and the same objects go on as if nothing had been.

Every method of both ports, in every way in which it may fail, at its first few calls in each scene.
"""

import pytest
from failing_ports import COORDINATION, STORAGE
from failing_scenes import SCENES, calls_of, play

#: So many calls of a method fail in turn, each in a run of its own.
CALLS = 3


@pytest.mark.parametrize("kind", ["memory", "file"])
@pytest.mark.parametrize(("method", "how"), STORAGE + COORDINATION)
@pytest.mark.parametrize("act", SCENES, ids=lambda act: act.__name__)
def test_all_goes_on_after_one_failure(act, method, how, kind, tmp_path):
    calls = calls_of(act)[method]
    if kind == "memory":
        for number in range(1, min(CALLS, calls) + 1):
            play(act, method, number, how)
    elif calls:
        play(act, method, 1, how, path=str(tmp_path / "store.db"))

"""What a popping command waits out, what it says meanwhile, and what ends its wait."""

from datetime import timedelta

import pytest

from cassq.cli.bench.arrivals import TICK_S, Arrivals
from cassq.cli.signals import Wish
from cassq.errors import StorageUnavailableError

LONG, NONE = timedelta(hours=1), timedelta(0)


class Pops:
    """Answers pops as it is told to, one after the other."""

    def __init__(self, *answers):
        self._answers = list(answers)

    def pop_many(self, _count, timeout):
        assert 0 <= timeout <= TICK_S  # a signal is looked for now and then, however long the wait
        answer = self._answers.pop(0)
        if callable(answer):
            answer = answer()
        if isinstance(answer, Exception):
            raise answer
        return answer


def away(words="away"):
    return StorageUnavailableError(words)


def test_who_waits_for_ever_goes_on_through_outages_and_says_so_once_for_each(capsys):
    pops = Pops([], away(), away(), [], away(), away("still away"), ["a delivery"])
    assert Arrivals(pops, Wish(), None).next(1) == ["a delivery"]
    assert capsys.readouterr().err.splitlines() == ["cassq: away", "cassq: still away"]


def test_who_has_time_left_waits_an_outage_out_and_says_nothing(capsys):
    pops = Pops(away(), [], away(), ["a delivery"])
    assert Arrivals(pops, Wish(), LONG).next(1) == ["a delivery"]
    assert capsys.readouterr().err == ""


def test_an_outage_is_told_to_who_has_no_time_left():
    with pytest.raises(StorageUnavailableError, match="away"):
        Arrivals(Pops(away()), Wish(), NONE).next(1)


def test_what_comes_at_the_last_moment_is_taken():
    assert Arrivals(Pops(["a delivery"]), Wish(), NONE).next(1) == ["a delivery"]
    assert Arrivals(Pops([]), Wish(), NONE).next(1) == []


@pytest.mark.parametrize("patience", [LONG, None])
@pytest.mark.parametrize("answer", [[], away()], ids=["nothing came", "an outage"])
def test_a_signal_ends_the_wait_whatever_is_left_of_it(patience, answer):
    wish = Wish()

    def signalled():
        wish.number = 15
        return answer

    pops = Pops([], signalled)
    assert Arrivals(pops, wish, patience).next(1) == []
    assert Arrivals(pops, wish, patience).next(1) == []


@pytest.mark.parametrize(
    ("patience", "number", "is_told"), [(LONG, None, True), (None, None, False), (LONG, 15, False)]
)
def test_that_nothing_came_is_told_to_who_did_not_end_it_by_a_signal(capsys, patience, number, is_told):
    wish = Wish()
    wish.number = number
    Arrivals(Pops(), wish, patience).tell_none()
    assert ("no message came within 3600 s" in capsys.readouterr().err) == is_told

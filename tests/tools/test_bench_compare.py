import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from _bench.measuring.compare import Figures, interleave, ratio
from _bench.measuring.guard import better, falls, keep, ratios_of, read_baseline, worse


def test_what_is_compared_is_measured_in_turn_round_by_round():
    # Given two measures that note when they are called
    called = []

    def measure(name):
        called.append(name)
        return float(len(called))

    # When they are compared in three rounds
    found = interleave({"a": lambda: measure("a"), "b": lambda: measure("b")}, 3)

    # Then they took turns, and each keeps its figures in the order of the rounds
    assert called == ["a", "b", "a", "b", "a", "b"]
    assert found == {"a": Figures((1.0, 3.0, 5.0)), "b": Figures((2.0, 4.0, 6.0))}


def test_a_ratio_is_taken_within_each_round_and_not_between_the_medians():
    # Given a machine that was twice as fast in the second round
    ours, theirs = Figures((60.0, 130.0, 80.0)), Figures((100.0, 200.0, 100.0))

    found = ratio(ours, theirs)

    assert found.values == pytest.approx((0.6, 0.65, 0.8))
    assert (found.median, found.low, found.high) == pytest.approx((0.65, 0.6, 0.8))


def test_figures_of_different_numbers_of_rounds_have_no_ratio():
    with pytest.raises(ValueError, match="shorter"):
        ratio(Figures((1.0, 2.0)), Figures((1.0,)))


def test_the_guard_compares_ratios_by_row():
    raw = {"push ours": [50.0, 60.0, 70.0], "push theirs": [100.0, 100.0, 100.0], "else": [1.0]}

    assert ratios_of(raw) == {"push": 0.6}


@pytest.mark.parametrize(("today", "is_told"), [(0.80, False), (0.61, False), (0.59, True), (0.1, True)])
def test_a_ratio_that_is_more_than_a_quarter_lower_is_told(today, is_told):
    assert bool(falls({"push": 0.80}, {"push": today})) == is_told


def test_a_ratio_that_is_not_measured_any_more_is_told():
    assert "not measured" in falls({"push": 0.8}, {"pop": 0.8})["push"]


def test_a_ratio_that_nobody_kept_yet_is_no_fall():
    assert falls({}, {"push": 0.1}) == {}


def test_of_two_runs_the_better_ratio_counts_for_each_row():
    assert better({"push": 0.5, "pop": 0.9}, {"push": 0.7, "pop": 0.2}) == {"push": 0.7, "pop": 0.9}


def test_what_is_kept_is_the_worse_of_two_runs_and_never_above_the_ceiling():
    assert worse({"push": 0.5, "pop": 1.6}, {"push": 0.7, "pop": 1.2}) == {"push": 0.5, "pop": 1.0}


def test_ratios_that_are_kept_are_read_again(tmp_path):
    path = tmp_path / "baseline.json"
    assert read_baseline(path) == {}

    keep({"push": 0.71239, "pop": 1.0}, path)

    assert read_baseline(path) == {"push": 0.712, "pop": 1.0}

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from _bench.measuring.key_order import judge, read_attempts
from _bench.options import add_store, parser, read_amounts
from _bench.scenarios import keys

FIRST, SECOND = b"0 1 7", b"0 2 7"  # of pusher 0, with key 7
OTHERS = b"1 1 7"  # with the same key, of pusher 1


def judged(*notes, pushed=2):
    """Judge notes such as ("a", b"begin", FIRST, 10, 50): who, what, the message, and two times."""
    words = [(who, [what, *body.split(), b"%d" % begun, b"%d" % at]) for who, what, body, begun, at in notes]
    return judge(read_attempts(words), pushed)


def test_one_after_the_other_is_as_it_should_be():
    verdict = judged(
        ("a", b"begin", FIRST, 10, 50),
        ("a", b"done", FIRST, 10, 20),
        ("b", b"begin", SECOND, 30, 90),
        ("b", b"done", SECOND, 30, 40),
    )

    assert (verdict.lost, verdict.again, verdict.late) == (0, 0, 0)
    assert not verdict.overlaps
    assert not verdict.inversions


def test_two_of_one_key_overlap_where_one_begins_before_the_other_is_done():
    verdict = judged(
        ("a", b"begin", FIRST, 10, 50),
        ("b", b"begin", OTHERS, 15, 90),
        ("a", b"done", FIRST, 10, 20),
        ("b", b"done", OTHERS, 15, 25),
    )

    assert len(verdict.overlaps) == 1
    assert "message 1 of pusher 1, key 7: b" in verdict.overlaps[0]
    assert not verdict.inversions


def test_those_of_other_keys_do_not_overlap():
    verdict = judged(("a", b"begin", FIRST, 10, 50), ("b", b"begin", b"0 2 8", 15, 90))

    assert not verdict.overlaps
    assert verdict.lost == 2


def test_who_was_killed_keeps_its_key_until_its_lease_is_over():
    begun = ("a", b"begin", FIRST, 10, 50)

    assert not judged(begun, ("b", b"begin", FIRST, 50, 90)).overlaps
    assert len(judged(begun, ("b", b"begin", FIRST, 49, 90)).overlaps) == 1


def test_what_a_frozen_consumer_is_done_with_late_is_credited_to_its_own_attempt():
    # Given a consumer whose lease ended while it was frozen, and another one that works on the message since
    frozen = ("a", b"begin", FIRST, 10, 50), ("b", b"begin", FIRST, 60, 100), ("a", b"done", FIRST, 10, 70)

    # When the key's next message begins before that other one is done
    verdict = judged(*frozen, ("c", b"begin", SECOND, 80, 120), ("b", b"done", FIRST, 60, 90))

    # Then that is too early, and the message is neither lost nor over when the first one says so
    assert len(verdict.overlaps) == len(verdict.inversions) == 1
    assert (verdict.lost, verdict.again, verdict.late) == (1, 1, 1)


def test_who_begins_after_its_lease_breaks_nothing():
    verdict = judged(
        ("a", b"begin", FIRST, 10, 50), ("b", b"begin", SECOND, 30, 29), ("a", b"done", FIRST, 10, 40)
    )

    assert not verdict.overlaps
    assert not verdict.inversions


def test_a_message_waits_for_the_last_attempt_at_each_earlier_one_of_its_pusher():
    verdict = judged(
        ("a", b"begin", FIRST, 10, 20),
        ("b", b"begin", SECOND, 30, 90),
        ("b", b"done", SECOND, 30, 40),
        ("c", b"begin", FIRST, 50, 90),
        ("c", b"done", FIRST, 50, 60),
    )

    assert not verdict.overlaps
    assert len(verdict.inversions) == 1
    assert verdict.lost == 0


def test_amounts_are_usual_or_short_unless_they_are_given():
    made = parser("any", "words")
    add_store(made)

    usual = read_amounts(parser("any", "words"), keys._AMOUNTS, [])
    short = read_amounts(made, keys._AMOUNTS, ["--short", "--keys", "5", "--rounds", "2"])

    assert (usual.keyed, usual.keys, usual.rounds) == (100_000, 10_000, 5)
    assert (short.keyed, short.keys, short.rounds, short.store) == (2_000, 5, 2, "cassandra")


def test_a_short_run_has_less_of_all_and_no_blow():
    assert {each.name for each in keys._AMOUNTS if each.short > each.usual} == {"blow"}

"""The checker: histories by hand, and planted harm that is always found and named."""

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.contexts import context_of

import cassq
from cassq.model.ranges import Ranges
from cassq.model.settings import QueueSettings
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.held_run import HeldRun
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.pipes.run_rows import Return
from cassq.popping.timing import IDLE_S
from cassq.runtime.clock import SystemClock
from cassq.verification.checker import DEAD_HOLDER, EXPIRED_LEASE, ROLLBACK, judge
from cassq.verification.ledger import Kind, Line
from cassq.verification.order_rules import REST_S

quietly = settings(derandomize=True, deadline=None)

LEASE_S = 10.0


def pushed(message, at=0.0, outcome=Kind.ACKNOWLEDGED, digest=""):
    lines = [Line(at, "pusher", Kind.ATTEMPTED, message, digest=digest)]
    return [*lines, Line(at, "pusher", outcome, message)] if outcome else lines


def delivered(at, who, message, attempt=1, **more):
    return Line(at, who, Kind.DELIVERED, message, attempt, more.pop("until", at + LEASE_S), **more)


def first(at, who, seq, pipe="p", attempt=1):
    """Return the delivery of a message that is named by its place."""
    return delivered(at, who, f"{pipe}{seq}", attempt, pipe=pipe, seq=seq)


def noted(at, who, kind, message="", attempt=1):
    return Line(at, who, kind, message, attempt if message else 0)


def committed(at, who, message, attempt=1):
    return [noted(at, who, kind, message, attempt) for kind in (Kind.COMMITTING, Kind.COMMITTED)]


def only(verdict):
    """Return the one promise that was broken, in words."""
    (words,) = verdict.broken()
    return words


class TestCounts:
    def test_of_a_history_without_faults(self):
        verdict = judge([*pushed("m"), delivered(1, "a", "m"), *committed(2, "a", "m")])

        assert verdict.attempted == verdict.acknowledged == verdict.delivered == verdict.committed == {"m"}
        assert verdict.broken() == []
        assert not verdict.explained
        assert not verdict.maybe_committed

    def test_of_nothing_at_all(self):
        assert judge([]).broken() == []

    def test_what_the_pushes_ended_with(self):
        verdict = judge(
            [
                *pushed("yes"),
                *pushed("no", outcome=Kind.REFUSED),
                *pushed("perhaps", outcome=Kind.UNKNOWN_PUSH),
                *pushed("killed", outcome=None),
            ]
        )

        assert (verdict.acknowledged, verdict.refused, verdict.unknown) == ({"yes"}, {"no"}, {"perhaps"})
        assert verdict.attempted == {"yes", "no", "perhaps", "killed"}

    def test_an_outcome_shows_that_the_push_was_attempted(self):
        verdict = judge([Line(0, "pusher", Kind.ACKNOWLEDGED, "m"), delivered(1, "a", "m")])

        assert verdict.attempted == {"m"}
        assert not verdict.unexpected

    def test_lines_that_are_about_no_message_change_nothing(self):
        kinds = (Kind.READY, Kind.DONE, Kind.REAPED, Kind.TROUBLE, Kind.CLOSING, Kind.HOLDING, Kind.DIED)

        assert judge(noted(1, "a", kind) for kind in kinds) == judge([])

    def test_as_json(self):
        verdict = judge([*pushed("m"), *pushed("n"), delivered(1, "a", "m"), *committed(2, "a", "m")])

        told = verdict.to_json()

        assert json.loads(json.dumps(told)) == told
        assert (told["acknowledged"], told["committed"], told["lost"]) == (2, 1, ["n"])

    def test_in_words(self):
        lines = [
            *pushed("m"),
            delivered(1, "a", "m"),
            delivered(20, "b", "m", 2),
            *committed(21, "b", "m", 2),
        ]

        assert "delivered again with a reason 1 (expired lease 1), without 0" in str(judge(lines))


class TestLost:
    def test_is_what_was_acknowledged_and_never_delivered(self):
        verdict = judge(pushed("m"))

        assert verdict.lost == {"m"}
        assert only(verdict) == "lost 1: m"

    def test_is_what_was_delivered_and_never_ended(self):
        assert judge([*pushed("m"), delivered(1, "a", "m")]).lost == {"m"}

    @pytest.mark.parametrize("outcome", [Kind.REFUSED, Kind.UNKNOWN_PUSH, None])
    def test_is_nothing_that_was_not_acknowledged(self, outcome):
        assert not judge(pushed("m", outcome=outcome)).lost

    @pytest.mark.parametrize("kind", [Kind.COMMITTING, Kind.UNKNOWN_COMMIT])
    def test_is_nothing_that_is_perhaps_committed(self, kind):
        verdict = judge([*pushed("m"), delivered(1, "a", "m"), noted(2, "a", kind, "m")])

        assert verdict.maybe_committed == {"m"}
        assert verdict.broken() == []

    def test_is_what_was_told_not_to_be_committed_and_never_came_again(self):
        lines = [
            delivered(1, "a", "m"),
            noted(2, "a", Kind.COMMITTING, "m"),
            noted(12, "a", Kind.EXPIRED, "m"),
        ]

        verdict = judge([*pushed("m"), *lines])

        assert only(verdict) == "lost 1: m"
        assert not verdict.maybe_committed

    @pytest.mark.parametrize("other", [("b", 2), ("a", 2)])
    def test_is_nothing_that_another_delivery_perhaps_committed(self, other):
        who, attempt = other
        lines = [
            delivered(1, "a", "m"),
            noted(2, "a", Kind.COMMITTING, "m"),
            noted(11, "a", Kind.UNKNOWN_COMMIT, "m"),
            delivered(12, who, "m", attempt),
            noted(13, who, Kind.COMMITTING, "m", attempt),
            noted(23, who, Kind.EXPIRED, "m", attempt),
        ]

        assert judge([*pushed("m"), *lines]).maybe_committed == {"m"}

    def test_is_nothing_that_was_given_up_as_a_dead_letter(self):
        verdict = judge([*pushed("m"), delivered(1, "a", "m"), noted(9, "judge", Kind.DEAD_LETTER, "m")])

        assert verdict.broken() == []
        assert verdict.dead == {"m"}

    def test_names_the_first_few_only(self):
        words = only(judge(line for number in range(30) for line in pushed(f"m{number:02}")))

        assert words.startswith("lost 30: m00; m01; ")
        assert words.endswith("m09 …")


class TestPurges:
    def purged(self, at, count, begun_at=None):
        begun_at = at if begun_at is None else begun_at
        return [Line(begun_at, "op", Kind.PURGING), Line(at, "op", Kind.PURGED, count=count)]

    def judged(self, *lines, messages=("m",), pushed_at=0.0):
        each = [line for message in messages for line in pushed(message, pushed_at)]
        return judge([*each, *lines])

    def test_excuse_what_waited(self):
        verdict = self.judged(*self.purged(5, 1))

        assert verdict.purged == {"m"}
        assert verdict.broken() == []

    def test_excuse_no_more_than_they_told(self):
        verdict = self.judged(*self.purged(5, 2), messages=("k", "m", "n"))

        assert (len(verdict.purged), len(verdict.lost)) == (2, 1)

    def test_excuse_nothing_that_was_pushed_after_they_had_returned(self):
        assert self.judged(*self.purged(5, 9), pushed_at=6.0).lost == {"m"}

    def test_excuse_what_was_pushed_while_they_ran(self):
        assert not self.judged(*self.purged(7, 1, begun_at=5), pushed_at=6.0).lost

    def test_excuse_nothing_that_was_in_hands(self):
        assert self.judged(delivered(1, "a", "m"), *self.purged(5, 9)).lost == {"m"}

    def test_excuse_nothing_whose_lease_was_extended(self):
        extended = Line(9, "a", Kind.EXTENDED, "m", 1, until=19)

        assert self.judged(delivered(1, "a", "m"), extended, *self.purged(12, 9)).lost == {"m"}

    def test_excuse_what_was_given_back_before_they_returned(self):
        lines = [delivered(1, "a", "m"), noted(3, "a", Kind.ROLLING_BACK, "m")]

        assert self.judged(*lines, *self.purged(5, 1)).purged == {"m"}

    def test_excuse_what_a_lease_left_before_they_returned(self):
        assert self.judged(delivered(1, "a", "m"), *self.purged(12, 1)).purged == {"m"}

    def test_excuse_nothing_that_came_again_after_them(self):
        lines = [delivered(1, "a", "m"), delivered(12, "b", "m", 2), *self.purged(11.5, 1)]

        assert self.judged(*lines).lost == {"m"}

    def test_that_did_not_return_may_have_ended_whatever_is_missing(self):
        begun = Line(5, "op", Kind.PURGING)

        assert self.judged(begun, *self.purged(7, 0), messages=("m", "n")).purged == {"m", "n"}

    def test_each_excuse_what_they_told_and_no_more_than_was_there(self):
        # Given an early purge of two, a late one of one, and three missing messages, two of them late
        lines = [*pushed("a", 1), *pushed("b", 6), *pushed("c", 6), *self.purged(5, 2), *self.purged(9, 1)]

        verdict = judge(lines)

        assert "a" in verdict.purged
        assert len(verdict.lost & {"b", "c"}) == 1

    def test_explain_no_second_delivery(self):
        lines = [delivered(1, "a", "m"), *self.purged(2, 1), delivered(3, "b", "m", 2)]

        assert "the lease was alive" in self.judged(*lines, *committed(4, "b", "m", 2)).unexplained[0]


def placed(line, seq):
    """Return a line about the message with this number: the letter, or one that it was put back as."""
    return replace(line, pipe="p", seq=seq)


def dealt(begun_at, at, returned, seq=1, who="op"):
    """Return the lines of a call on the letter with this number; it never returns where `at` is None."""
    begun = {Kind.PUT_BACK: Kind.PUTTING_BACK, Kind.DISCARDED: Kind.DISCARDING}[returned]
    lines = [Line(begun_at, who, begun, "m")] + ([] if at is None else [Line(at, who, returned, "m")])
    return [placed(line, seq) for line in lines]


def found_dead(at, seq=1):
    return placed(noted(at, "judge", Kind.DEAD_LETTER, "m"), seq)


def worked_off(at, seq):
    """Return the lines of a message that is delivered for the first time, and committed."""
    return [placed(line, seq) for line in (delivered(at, "a", "m"), *committed(at + 1, "a", "m"))]


class TestLetters:
    #: It was delivered once, came back, and died.
    LETTER = (
        *pushed("m"),
        placed(delivered(1, "a", "m"), 1),
        placed(noted(2, "a", Kind.ROLLING_BACK, "m"), 1),
    )

    def judged(self, *lines):
        return judge([*self.LETTER, *lines])

    def test_one_that_was_put_back_is_delivered_anew_and_ends(self):
        verdict = self.judged(*dealt(5, 6, Kind.PUT_BACK), *worked_off(7, 2))

        assert verdict.broken() == []
        assert not verdict.explained

    def test_one_that_was_put_back_may_die_again(self):
        assert self.judged(*dealt(5, 6, Kind.PUT_BACK), found_dead(9, 2)).broken() == []

    def test_what_was_put_back_and_never_ended_is_lost(self):
        delivered_only = placed(delivered(7, "a", "m"), 2)

        assert only(self.judged(*dealt(5, 6, Kind.PUT_BACK))) == "lost 1: m"
        assert only(self.judged(*dealt(5, 6, Kind.PUT_BACK), delivered_only)) == "lost 1: m"

    def test_what_was_put_back_is_lost_also_where_nobody_knew_of_its_first_push(self):
        letter = [*pushed("m", outcome=Kind.UNKNOWN_PUSH), *self.LETTER[2:]]

        assert only(judge([*letter, *dealt(5, 6, Kind.PUT_BACK)])) == "lost 1: m"

    def test_a_letter_that_nobody_dealt_with_stays(self):
        assert self.judged(found_dead(9)).broken() == []
        assert self.judged().lost == {"m"}

    def test_one_whose_put_back_raised_may_be_both_letter_and_message(self):
        raised = dealt(5, None, Kind.PUT_BACK)

        assert self.judged(*raised, found_dead(9), *worked_off(7, 2)).broken() == []
        assert self.judged(*raised, *worked_off(7, 2)).broken() == []
        assert self.judged(*raised, found_dead(9)).broken() == []

    def test_a_commit_of_which_nobody_knew_contradicts_no_letter_though_what_was_put_back_ended(
        self,
    ):
        def once(outcome):
            tried = [placed(noted(2, "a", kind, "m"), 1) for kind in (Kind.COMMITTING, outcome)]
            raised = dealt(5, None, Kind.PUT_BACK)
            return judge([*self.LETTER[:-1], *tried, *raised, *worked_off(7, 2), found_dead(9)])

        assert once(Kind.UNKNOWN_COMMIT).broken() == []
        assert "though it was committed" in only(once(Kind.COMMITTED))

    def test_what_was_given_up_is_delivered_to_nobody(self):
        given_up = placed(noted(3, "a", Kind.GIVEN_UP, "m"), 1)
        again = placed(delivered(4, "b", "m", 2), 1)

        assert self.judged(given_up, found_dead(9)).broken() == []
        assert "it was given up" in only(self.judged(given_up, again, found_dead(9)))

    def test_one_whose_put_back_raised_is_not_gone_before_its_message_is_there(self):
        assert only(self.judged(*dealt(5, None, Kind.PUT_BACK))) == "lost 1: m"

    def test_a_discard_ends_it(self):
        assert self.judged(*dealt(5, 6, Kind.DISCARDED)).broken() == []

    def test_a_discard_that_raised_may_have_ended_it(self):
        raised = dealt(5, None, Kind.DISCARDED)

        assert self.judged(*raised).broken() == []
        assert self.judged(*raised, found_dead(9)).broken() == []
        assert self.judged(*raised, *dealt(5, None, Kind.PUT_BACK, who="op2")).broken() == []

    def test_a_discard_excuses_nothing_of_what_was_put_back(self):
        lines = [*dealt(5, 6, Kind.PUT_BACK), *dealt(5, 6, Kind.DISCARDED, who="op2")]

        assert self.judged(*lines, *worked_off(7, 2)).broken() == []
        assert only(self.judged(*lines)) == "lost 1: m"

    @pytest.mark.parametrize("returned", [Kind.PUT_BACK, Kind.DISCARDED])
    def test_one_that_comes_back_is_told(self, returned):
        lines = [*dealt(5, 6, returned), *(worked_off(7, 2) if returned is Kind.PUT_BACK else ())]

        assert "m: a dead letter at 9.000, though it was gone at 6.000" in only(
            self.judged(*lines, found_dead(9))
        )

    @pytest.mark.parametrize("first_one", [Kind.PUT_BACK, Kind.DISCARDED])
    def test_one_that_is_found_after_it_was_gone_is_told(self, first_one):
        lines = [*dealt(5, 6, first_one), *(worked_off(7, 2) if first_one is Kind.PUT_BACK else ())]

        for again, words in ((Kind.PUT_BACK, "put back by op2"), (Kind.DISCARDED, "discarded by op2")):
            more = worked_off(12, 3) if again is Kind.PUT_BACK else ()
            verdict = self.judged(*lines, *dealt(6.5, 10, again, who="op2"), *more)
            assert f"m: {words} at 6.500, though it was gone at 6.000" in verdict.unexplained

    def test_two_that_put_it_back_at_once_may_each_push_it(self):
        lines = [*dealt(5, 7, Kind.PUT_BACK), *dealt(6, 8, Kind.PUT_BACK, who="op2")]

        assert self.judged(*lines, *worked_off(9, 2), *worked_off(12, 3)).broken() == []
        assert only(self.judged(*lines, *worked_off(9, 2))) == "lost 1: m"

    def test_no_more_messages_are_seen_than_were_pushed(self):
        lines = [*dealt(5, 6, Kind.PUT_BACK), *worked_off(7, 2), *worked_off(9, 3)]

        assert "m: 3 messages of that name were seen, and 2 pushed at most" in only(self.judged(*lines))

    def test_one_that_was_begun_after_it_was_gone_excuses_no_message(self):
        lines = [*dealt(5, 6, Kind.PUT_BACK), *dealt(6.5, None, Kind.PUT_BACK, who="op2")]

        words = only(self.judged(*lines, *worked_off(7, 2), *worked_off(9, 3)))
        assert "3 messages of that name were seen, and 2 pushed at most" in words

    def test_two_messages_of_one_name_that_nobody_put_back_are_told(self):
        assert "2 messages of that name were seen, and 1 pushed" in only(self.judged(*worked_off(7, 2)))

    def test_each_message_of_a_name_is_judged_by_itself(self):
        again = [placed(line, 2) for line in (delivered(9, "b", "m", 2), *committed(10, "b", "m", 2))]

        words = only(self.judged(*dealt(5, 6, Kind.PUT_BACK), *worked_off(7, 2), *again))

        assert "m: it was committed; a (attempt 1) at 7.000" in words

    def test_what_is_committed_is_no_letter_under_the_same_id(self):
        put_back = dealt(5, 6, Kind.PUT_BACK)

        assert "m: a dead letter, though it was committed" in only(
            self.judged(*put_back, *worked_off(7, 2), found_dead(9, 2))
        )

    def test_a_purge_excuses_what_was_put_back_and_waited(self):
        purged = [Line(at, "op", kind, count=1) for at, kind in ((7, Kind.PURGING), (8, Kind.PURGED))]

        assert self.judged(*dealt(5, 6, Kind.PUT_BACK), *purged).purged == {"m"}


class TestUnexpected:
    def test_is_what_nobody_pushed(self):
        verdict = judge([delivered(1, "a", "ghost"), *committed(2, "a", "ghost")])

        assert only(verdict) == "unexpected 1: ghost"

    def test_is_what_was_said_not_to_have_happened(self):
        verdict = judge([*pushed("m", outcome=Kind.REFUSED), delivered(1, "a", "m")])

        assert verdict.unexpected == {"m"}

    @pytest.mark.parametrize("outcome", [Kind.UNKNOWN_PUSH, None])
    def test_is_nothing_that_may_have_happened(self, outcome):
        assert judge([*pushed("m", outcome=outcome), delivered(1, "a", "m")]).broken() == []


class TestDamaged:
    def test_is_a_body_that_is_not_the_one_that_was_pushed(self):
        lines = [*pushed("m", digest="d1"), delivered(1, "a", "m", digest="d2"), *committed(2, "a", "m")]

        assert only(judge(lines)) == "damaged 1: m"

    def test_is_a_second_delivery_that_differs_from_the_first(self):
        lines = [*pushed("m"), delivered(1, "a", "m", digest="d1"), delivered(20, "b", "m", 2, digest="d2")]

        assert judge(lines).damaged == {"m"}

    def test_is_nothing_where_nobody_looked(self):
        assert not judge([*pushed("m", digest="d1"), delivered(1, "a", "m")]).damaged
        assert not judge([*pushed("m"), delivered(1, "a", "m", digest="d1")]).damaged

    def test_is_nothing_that_arrived_as_it_was_pushed(self):
        assert not judge([*pushed("m", digest="d"), delivered(1, "a", "m", digest="d")]).damaged


class TestAgain:
    def test_after_a_rollback_is_explained(self):
        lines = [delivered(1, "a", "m"), noted(2, "a", Kind.ROLLING_BACK, "m"), delivered(2, "b", "m", 2)]

        assert judge([*pushed("m"), *lines]).explained == {ROLLBACK: 1}

    def test_before_the_rollback_is_not(self):
        lines = [delivered(1, "a", "m"), delivered(2, "b", "m", 2), noted(3, "a", Kind.ROLLING_BACK, "m")]

        (words,) = judge([*pushed("m"), *lines]).unexplained

        assert words == (
            "m: the lease was alive; a (attempt 1) at 1.000 until 11.000, b (attempt 2) at 2.000 until 12.000"
        )

    def test_after_the_lease_is_explained(self):
        verdict = judge([*pushed("m"), delivered(1, "a", "m"), delivered(11, "b", "m", 2)])

        assert verdict.explained == {EXPIRED_LEASE: 1}
        assert not verdict.unexplained

    def test_within_the_lease_is_not(self):
        verdict = judge([*pushed("m"), delivered(1, "a", "m"), delivered(10.9, "b", "m", 2)])

        assert "the lease was alive" in verdict.unexplained[0]

    def test_within_an_extended_lease_is_not(self):
        extended = Line(9, "a", Kind.EXTENDED, "m", 1, until=19)
        verdict = judge([*pushed("m"), delivered(1, "a", "m"), extended, delivered(12, "b", "m", 2)])

        assert "the lease was alive; a (attempt 1) at 1.000 until 19.000" in verdict.unexplained[0]

    def test_after_an_extended_lease_is_explained(self):
        extended = Line(9, "a", Kind.EXTENDED, "m", 1, until=19)
        verdict = judge([*pushed("m"), delivered(1, "a", "m"), extended, delivered(19, "b", "m", 2)])

        assert verdict.explained == {EXPIRED_LEASE: 1}

    def test_an_extension_that_was_noted_late_shortens_nothing(self):
        lines = [Line(9, "a", Kind.EXTENDED, "m", 1, until=until) for until in (19, 15)]
        verdict = judge([*pushed("m"), delivered(1, "a", "m"), *lines, delivered(16, "b", "m", 2)])

        assert len(verdict.unexplained) == 1

    def test_after_the_lease_of_a_dead_holder_is_counted_as_that(self):
        lines = [delivered(1, "a", "m"), noted(5, "harness", Kind.DIED), delivered(11, "b", "m", 2)]
        died = [replace(line, who="a") if line.kind is Kind.DIED else line for line in lines]

        assert judge([*pushed("m"), *lines]).explained == {EXPIRED_LEASE: 1}
        assert judge([*pushed("m"), *died]).explained == {DEAD_HOLDER: 1}

    def test_within_the_lease_of_a_dead_holder_is_not_explained(self):
        lines = [delivered(1, "a", "m"), noted(2, "a", Kind.DIED), delivered(3, "b", "m", 2)]

        assert len(judge([*pushed("m"), *lines]).unexplained) == 1

    @pytest.mark.parametrize("died_at", [0.5, 12])
    def test_a_death_before_the_delivery_or_after_the_next_is_not_its_reason(self, died_at):
        lines = [noted(died_at, "a", Kind.DIED), delivered(1, "a", "m"), delivered(11, "b", "m", 2)]

        assert judge([*pushed("m"), *lines]).explained == {EXPIRED_LEASE: 1}

    def test_after_a_commit_that_returned_is_not_explained(self):
        lines = [delivered(1, "a", "m"), *committed(2, "a", "m"), delivered(30, "b", "m", 2)]

        assert "it was committed" in only(judge([*pushed("m"), *lines]))

    def test_before_a_late_commit_that_returned_is_not_explained(self):
        # Its lease was over, so the commit had to raise
        lines = [delivered(1, "a", "m"), delivered(12, "b", "m", 2), *committed(13, "a", "m")]

        assert "it was committed" in only(judge([*pushed("m"), *lines]))

    @pytest.mark.parametrize("kind", [Kind.EXPIRED, Kind.UNKNOWN_COMMIT])
    def test_after_a_commit_that_raised_is_explained(self, kind):
        lines = [
            delivered(1, "a", "m"),
            noted(2, "a", Kind.COMMITTING, "m"),
            noted(11, "a", kind, "m"),
            delivered(11.5, "b", "m", 2),
            *committed(12, "b", "m", 2),
        ]

        assert judge([*pushed("m"), *lines]).broken() == []

    def test_with_the_same_attempt_is_not_explained(self):
        verdict = judge([*pushed("m"), delivered(1, "a", "m"), delivered(30, "b", "m")])

        assert "the same attempt twice" in verdict.unexplained[0]

    def test_of_one_that_was_frozen_before_it_could_note_it_is_judged_by_attempts(self):
        # Given a holder that noted its delivery long after its lease, when the next one had committed
        lines = [
            delivered(12, "b", "m", 2),
            *committed(13, "b", "m", 2),
            delivered(20, "frozen", "m", 1, until=11),
        ]

        assert judge([*pushed("m"), *lines]).broken() == []

    def test_is_held_against_all_deliveries_before(self):
        # Given a second delivery that was noted late, so that the lease of the first seems over by then
        lines = [
            delivered(1, "a", "m", 1, until=100),
            delivered(101, "frozen", "m", 2, until=12),
            delivered(20, "c", "m", 3),
        ]

        (words,) = judge([*pushed("m"), *lines]).unexplained

        assert "the lease was alive; a (attempt 1)" in words
        assert "c (attempt 3)" in words

    def test_each_delivery_after_the_first_counts(self):
        lines = [
            delivered(1, "a", "m"),
            noted(2, "a", Kind.ROLLING_BACK, "m"),
            delivered(3, "a", "m", 2),
            noted(4, "a", Kind.ROLLING_BACK, "m", 2),
            delivered(5, "b", "m", 3),
            delivered(16, "a", "m", 4),
        ]

        assert judge([*pushed("m"), *lines]).explained == {ROLLBACK: 2, EXPIRED_LEASE: 1}

    def test_a_commit_that_returns_twice_is_not_explained(self):
        lines = [delivered(1, "a", "m"), *committed(2, "a", "m"), *committed(3, "a", "m")]

        assert "m: committed 2 times; a (attempt 1)" in only(judge([*pushed("m"), *lines]))

    def test_a_dead_letter_that_was_committed_is_not_explained(self):
        dead = noted(9, "judge", Kind.DEAD_LETTER, "m")

        words = only(judge([*pushed("m"), delivered(1, "a", "m"), *committed(2, "a", "m"), dead]))

        assert "a dead letter, though it was committed" in words

    def test_a_commit_by_one_who_never_had_it_is_not_explained(self):
        lines = [delivered(1, "a", "m"), *committed(2, "b", "m")]

        assert "m: committed by b (attempt 1) at 2.000, which never had it" in only(
            judge([*pushed("m"), *lines])
        )


class TestOrder:
    def pushed(self, count=9):
        return [line for seq in range(1, count + 1) for line in pushed(f"p{seq}")]

    def late(self):
        """Return two messages, pushed at 3, that one holder gets in the wrong order."""
        lines = [*pushed("q1", at=3), *pushed("q2", at=3)]
        return [*lines, first(3.2, "a", 2, pipe="q"), first(3.4, "a", 1, pipe="q")]

    def reordered(self, *lines):
        return judge([*self.pushed(), *lines]).reordered

    def test_first_deliveries_of_one_pipe_rise(self):
        assert self.reordered(first(1, "a", 1), first(1, "a", 2), first(2, "a", 5)) == []

    def test_one_that_comes_too_late_is_named(self):
        assert self.reordered(first(1, "a", 1), first(1, "a", 3), first(2, "a", 2)) == [
            "p2: a got p:2 at 2.000, after p:3"
        ]

    def test_it_is_one_of_the_broken_promises(self):
        lines = [first(1, "a", 2), first(1, "a", 1)]
        ended = [line for seq in (1, 2) for line in committed(2, "a", f"p{seq}")]

        assert only(judge([*self.pushed(2), *lines, *ended])).startswith("out of order in its pipe 1: p1")

    def test_nothing_is_asked_between_holders_or_pipes(self):
        assert self.reordered(first(1, "a", 2), first(1, "b", 1), first(1, "a", 1, pipe="q")) == []

    def test_nothing_is_asked_of_what_comes_again(self):
        assert self.reordered(first(1, "a", 2), first(2, "a", 1, attempt=2)) == []

    def test_nothing_is_asked_where_nobody_looked_for_the_place(self):
        assert self.reordered(delivered(1, "a", "p2"), delivered(2, "a", "p1")) == []

    @pytest.mark.parametrize("kind", [Kind.CLOSING, Kind.HOLDING])
    def test_what_a_closing_popper_gave_back_may_come_late(self, kind):
        assert self.reordered(noted(1, "b", kind), first(1, "a", 2), first(2, "a", 1)) == []

    def test_what_was_pushed_after_the_popper_had_closed_may_not(self):
        assert (
            len(judge([noted(1, "b", Kind.CLOSING), noted(2, "b", Kind.DONE), *self.late()]).reordered) == 1
        )

    def test_nor_what_was_pushed_after_the_next_popper_had_popped(self):
        lines = [
            noted(1, "b", Kind.CLOSING),
            first(2, "b", 1),
            noted(2.2, "b", Kind.CLOSING),
            first(2.5, "b", 2),
        ]

        assert len(judge([*lines, *self.late()]).reordered) == 1

    def test_nor_what_was_pushed_after_the_last_process_of_that_name_had_died(self):
        lives = [noted(2.8, "b", Kind.DIED), noted(1, "b", Kind.DONE), noted(2, "b", Kind.CLOSING)]

        assert len(judge([*lives, *self.late()]).reordered) == 1

    def test_a_popper_that_closes_for_long_excuses_more_than_one_that_closed_after_it(self):
        short = [noted(2, "b", Kind.CLOSING), first(2.5, "b", 1)]

        assert judge([noted(1, "c", Kind.CLOSING), *short, *self.late()]).reordered == []

    def test_what_came_late_before_anybody_closed_may_not(self):
        assert len(self.reordered(first(1, "a", 2), first(2, "a", 1), noted(3, "b", Kind.CLOSING))) == 1

    def test_what_was_in_the_buffer_of_one_that_pops_no_more_may_come_late(self):
        idle = first(1, "b", 3)

        assert self.reordered(idle, first(9, "a", 2), first(9, "a", 1)) == []
        assert len(self.reordered(idle, first(2, "a", 2), first(2, "a", 1))) == 1

    def test_what_was_in_the_buffer_of_one_that_rested_may_come_late(self):
        rested = [first(1, "b", 3), first(1 + 2 * REST_S, "b", 4)]
        late = [first(20, "a", 2), first(20, "a", 1)]

        assert self.reordered(*rested, noted(8, "b", Kind.DONE), *late) == []

    def test_what_a_dead_popper_had_does_not_come_late_but_again(self):
        died = [first(1, "b", 3), noted(2, "b", Kind.DIED)]

        assert len(self.reordered(*died, first(9, "a", 2), first(9, "a", 1))) == 1

    def test_a_name_may_be_given_to_a_new_process(self):
        lines = [noted(1, "b", Kind.DIED), first(2, "b", 3), first(9, "a", 2), first(9, "a", 1)]

        assert self.reordered(*lines) == []

    def test_what_a_popper_gives_back_does_come_late_with_its_first_attempt(self):
        # Given two owners of one pipe, of which the first gives back what it had not handed out
        with cassq.connect("memory:") as store:
            queue = store.queue("q")
            queue.push_many([b"body"] * 2)
            earlier = own(store, queue)
            (run,) = earlier.take(2).runs
            later = own(store, queue)
            queue.push_many([b"body"] * 2)
            got = [*take(later, 2)]

            held(store, earlier, run).give_back(Ranges([(2, 2)]), Return(is_counted=False))
            later.look()
            got += take(later, 2)

        # Then the second gets it behind what it had, and only a line that tells so excuses that
        assert got == [(3, 1), (4, 1), (2, 1)]
        lines = [first(1 + place / 10, "b", seq, attempt=attempt) for place, (seq, attempt) in enumerate(got)]
        assert len(self.reordered(*lines)) == 1
        assert self.reordered(noted(1, "a", Kind.CLOSING), *lines) == []

    def test_poppers_give_back_no_sooner_than_the_checker_thinks(self):
        assert 2 * REST_S <= IDLE_S


def own(store, queue):
    (entry,) = store.storage.list_pipes("q").entries
    state = store.storage.load_pipe(entry.pipe)
    clock = SystemClock()
    context = context_of(store.storage, queue.settings, clock)
    return OwnedPipe(context, entry, state, Taker("test"))


def take(owned, wanted):
    return [(seq, run.run.attempt) for run in owned.take(wanted).runs for seq, *_ in run.messages]


def held(store, owned, run):
    clock = SystemClock()
    ends_at = clock.now() + LEASE_S
    context = context_of(store.storage, QueueSettings(), clock)
    return HeldRun(context, owned.entry, run, ends_at, on_row_changed=owned.note)


# Histories of a right queue, and harm that is planted in them.


def play(seed, messages=12):
    """Return the ledgers of a queue that keeps every promise, by a seed: one list of lines per holder."""
    dice = random.Random(seed)
    ledgers = {who: [] for who in ("pusher", "a", "b", "c")}
    at = 1.0
    for seq in range(1, messages + 1):
        name = f"p{seq}"
        outcome = dice.choice((Kind.ACKNOWLEDGED,) * 4 + (Kind.UNKNOWN_PUSH, None))
        ledgers["pusher"] += [
            replace(line, at=at) for line in pushed(name, digest=f"d{seq}", outcome=outcome)
        ]
        at += 0.01
    for seq in range(1, messages + 1):
        at = _work_off(dice, ledgers, seq, at)
    return ledgers


def _work_off(dice, ledgers, seq, at):
    attempt = 1
    while True:
        who = dice.choice("abc")
        ledger, name = ledgers[who], f"p{seq}"
        line = delivered(at, who, name, attempt, pipe="p", seq=seq, digest=f"d{seq}")
        ledger.append(line)
        at += dice.choice((0.0, 0.01))
        match dice.choice(("commit", "commit", "commit", "roll back", "forget", "fail")):
            case "commit":
                ledger += committed(at, who, name, attempt)
                return at
            case "roll back":
                ledger.append(noted(at, who, Kind.ROLLING_BACK, name, attempt))
            case "forget":
                at = line.until
            case "fail":
                ledger.append(noted(at, who, Kind.COMMITTING, name, attempt))
                at = line.until
                ledger.append(noted(at, who, dice.choice((Kind.EXPIRED, Kind.UNKNOWN_COMMIT)), name, attempt))
        attempt += 1


def flat(ledgers):
    return [line for lines in ledgers.values() for line in lines]


seeds = st.integers(0, 10**6)


@quietly
@given(seeds)
def test_nothing_is_broken_in_a_right_history(seed):
    assert judge(flat(play(seed))).broken() == []


@quietly
@given(seeds, st.randoms(use_true_random=False))
def test_it_does_not_matter_how_the_ledgers_are_mixed(seed, dice):
    ledgers = play(seed)
    mixed, left = [], [list(reversed(lines)) for lines in ledgers.values() if lines]
    while left:
        lines = dice.choice(left)
        mixed.append(lines.pop())
        left = [each for each in left if each]

    assert judge(mixed) == judge(flat(ledgers)) == judge(sorted(mixed, key=lambda line: line.at))


@quietly
@given(seeds, seeds)
def test_a_planted_loss_is_found_and_named(seed, choice):
    lines = flat(play(seed))
    acknowledged = sorted(judge(lines).acknowledged)
    if not acknowledged:
        return
    name = acknowledged[choice % len(acknowledged)]
    ended = {Kind.DELIVERED, Kind.COMMITTING, Kind.COMMITTED, Kind.ROLLING_BACK, Kind.EXPIRED}

    left = [each for each in lines if each.message != name or each.kind not in {*ended, Kind.UNKNOWN_COMMIT}]

    assert only(judge(left)) == f"lost 1: {name}"


@quietly
@given(seeds, seeds)
def test_a_planted_drop_of_a_commit_that_came_too_late_is_found_and_named(seed, choice):
    # Given a message whose commit raised, and that a bug marks as committed all the same
    lines = flat(play(seed))
    late = [line for line in lines if line.kind is Kind.EXPIRED]
    unknown = {line.message for line in lines if line.kind is Kind.UNKNOWN_COMMIT}
    acknowledged = judge(lines).acknowledged
    late = [line for line in late if line.message in acknowledged - unknown]
    if not late:
        return
    one = late[choice % len(late)]

    left = [line for line in lines if line.message != one.message or line.attempt <= one.attempt]

    assert only(judge(left)) == f"lost 1: {one.message}"


@quietly
@given(seeds, seeds, st.booleans())
def test_a_planted_duplicate_is_found_and_named(seed, choice, is_late):
    # Given any message of a right history, that is delivered once more, after its commit or in its last lease
    lines = flat(play(seed))
    name = f"p{1 + choice % 12}"
    last = max(
        (each for each in lines if each.kind is Kind.DELIVERED and each.message == name), key=by_attempt
    )
    at = last.until + 1 if is_late else last.at

    again = replace(last, who="thief", at=at, until=at + LEASE_S, attempt=last.attempt + 1)

    words = only(judge([*lines, again]))
    assert words.startswith(f"delivered or committed again without a reason 1: {name}: ")
    assert f"{last.who} (attempt {last.attempt})" in words
    assert f"thief (attempt {again.attempt})" in words


@quietly
@given(seeds, seeds)
def test_a_planted_ghost_and_a_planted_change_are_found_and_named(seed, choice):
    lines = flat(play(seed))
    name = f"p{1 + choice % 12}"
    changed = [
        replace(each, digest="other") if each.kind is Kind.DELIVERED and each.message == name else each
        for each in lines
    ]
    without = [each for each in lines if each.message != name or each.who != "pusher"]

    assert only(judge(changed)) == f"damaged 1: {name}"
    assert only(judge(without)) == f"unexpected 1: {name}"


@quietly
@given(seeds, seeds)
def test_a_planted_overtaking_is_found_and_named(seed, choice):
    # Given one popper that is never at rest, and a queue that hands out all in time
    count, late = 12, 1 + choice % 11
    order = list(range(1, count + 1))
    order.insert(random.Random(seed).randrange(late, count), order.pop(late - 1))
    lines = [line for seq in range(1, count + 1) for line in pushed(f"p{seq}")]
    for place, seq in enumerate(order):
        at = 1 + place / 10
        lines += [first(at, "a", seq), *committed(at, "a", f"p{seq}")]

    words = only(judge(lines))

    assert words.startswith("out of order in its pipe 1: p")
    assert f"p{late}: a got p:{late} " in words


def by_attempt(line):
    return line.attempt

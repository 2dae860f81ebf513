"""What ledgers must not tell of a topic, each finding with the smallest ledger that has it."""

from uuid import UUID

import pytest
from topic_reckoning import (
    BACK,
    CONTENTS,
    FINDINGS,
    GAPS,
    INVENTED,
    LOST,
    NUMBERED,
    ORDER,
    TWICE,
    History,
    judge_topic,
)

from cassq.verification.ledger import Kind, Line

PIPES = [str(UUID(fields=(number, 0, 0x1000, 0, 0, 1))) for number in range(3)]


def published(kind, name, offset=0, words=""):
    return Line(
        1.0, "publisher1", kind, name, pipe="0" if offset else "", seq=offset, digest="d", words=words
    )


def told(name, *ends, words=""):
    """Return a publish for each end: an offset where it was acknowledged, or a kind, or None."""
    lines = []
    for end in ends:
        lines.append(published(Kind.ATTEMPTED, name, words=words))
        if isinstance(end, int):
            lines.append(published(Kind.ACKNOWLEDGED, name, end))
        elif end:
            lines.append(published(end, name))
    return lines


def read(*names, who="last", digest="d", first=1):
    """Return what a reader notes of partition 0."""
    return [
        Line(2.0, who, Kind.DELIVERED, name, pipe="0", seq=offset, digest=digest, words="order.new")
        for offset, name in enumerate(names, start=first)
    ]


def done(who):
    return Line(9.0, who, Kind.DONE)


def member(at, kind, offset, *, who="a", epoch=2):
    return Line(at, who, kind, f"p-{offset}", epoch, pipe="0", seq=offset, digest="d")


def handed(at, *offsets, who="a", epoch=2):
    return [member(at, Kind.DELIVERED, each, who=who, epoch=epoch) for each in offsets]


def worked(at, *offsets, who="a", epoch=2):
    return [member(at, Kind.COMMITTING, each, who=who, epoch=epoch) for each in offsets]


def committed(at, *offsets, who="a", epoch=2):
    return [member(at, Kind.COMMITTED, each, who=who, epoch=epoch) for each in offsets]


def lost_claim(at, *, who="a", epoch=2):
    return Line(at, who, Kind.EXPIRED, attempt=epoch, pipe="0")


def popped(offset, pipe, seq, *, at=3.0, attempt=1, who="popper1"):
    name = f"0:{offset}"
    return [
        Line(at, who, Kind.DELIVERED, name, attempt, at + 5, pipe=PIPES[pipe], seq=seq, digest="d"),
        Line(at, who, Kind.COMMITTING, name, attempt),
        Line(at + 0.1, who, Kind.COMMITTED, name, attempt),
    ]


def found(history):
    """Return how many of each kind a history has."""
    verdict = judge_topic(history)
    assert set(verdict.findings) <= set(FINDINGS)
    return {kind: verdict.count(kind) for kind in FINDINGS if verdict.count(kind)}


class TestPublishing:
    @staticmethod
    def of(lines, *names):
        return found(History(lines, read(*names), {0: len(names) + 1}))

    def test_what_was_acknowledged_is_in_the_log_where_it_was_told(self):
        assert self.of([*told("p-0", 1), *told("p-1", 2)], "p-0", "p-1") == {}

    def test_what_was_acknowledged_and_is_not_there_is_lost(self):
        assert self.of([*told("p-0", 1), *told("p-1", 2)], "p-0") == {LOST: 2}  # the name, and the place

    def test_another_message_at_the_place_that_was_told_is_another_content(self):
        assert self.of([*told("p-0", 2), *told("p-1", 1)], "p-0", "p-1") == {CONTENTS: 2}

    def test_other_bytes_than_were_published_are_another_content(self):
        log = read("p-0", digest="e")
        assert found(History(told("p-0", Kind.UNKNOWN_PUSH), log, {0: 2})) == {CONTENTS: 1}

    @pytest.mark.parametrize("end", [Kind.UNKNOWN_PUSH, None])
    def test_an_unknown_outcome_may_be_there_or_not(self, end):
        assert self.of(told("p-0", end)) == {}
        assert self.of(told("p-0", end), "p-0") == {}

    def test_what_was_published_again_after_an_unknown_outcome_may_be_there_twice_and_no_more(self):
        lines = told("p-0", Kind.UNKNOWN_PUSH, 1)
        assert self.of(lines, "p-0", "p-0") == {}
        assert self.of(lines, "p-0", "p-0", "p-0") == {TWICE: 1}

    def test_a_second_copy_without_a_reason_is_told(self):
        assert self.of(told("p-0", 1), "p-0", "p-0") == {TWICE: 1}

    def test_a_number_is_there_once_whatever_was_unknown(self):
        lines = told("w-0", Kind.UNKNOWN_PUSH, 1, words=NUMBERED)
        assert self.of(lines, "w-0") == {}
        assert self.of(lines, "w-0", "w-0") == {TWICE: 1}

    def test_what_was_refused_and_is_there_is_invented(self):
        assert self.of(told("p-0", Kind.REFUSED), "p-0") == {INVENTED: 1}

    def test_what_nobody_published_is_invented(self):
        assert self.of([], "p-0") == {INVENTED: 1}

    def test_what_one_author_published_later_is_behind_it(self):
        lines = [*told("p-0", Kind.UNKNOWN_PUSH), *told("p-1", Kind.UNKNOWN_PUSH)]
        assert self.of(lines, "p-1", "p-0") == {ORDER: 1}


class TestReading:
    LINES = (*told("p-0", 1), *told("p-1", 2), *told("p-2", 3))
    LOG = tuple(read("p-0", "p-1", "p-2"))

    def of(self, *reading, log=None):
        return found(History(self.LINES, log or self.LOG, {0: 4}, {"reader1": reading}))

    def test_a_reader_that_was_killed_has_the_begin_of_the_log(self):
        assert self.of(*self.LOG[:2]) == {}

    def test_one_that_ended_in_order_has_all_of_it(self):
        assert self.of(*self.LOG, done("reader1")) == {}
        assert self.of(*self.LOG[:2], done("reader1")) == {LOST: 1}

    def test_a_gap_is_told(self):
        assert self.of(self.LOG[0], self.LOG[2]) == {GAPS: 1}

    def test_a_gap_of_the_log_itself_is_told(self):
        log = [self.LOG[0], self.LOG[2]]
        assert self.of(log=log) == {
            GAPS: 1,
            LOST: 2,
        }  # the place that was told of the missing one, and itself

    def test_an_offset_that_comes_twice_is_told(self):
        assert self.of(self.LOG[0], self.LOG[1], self.LOG[1]) == {TWICE: 1}

    def test_other_bytes_at_an_offset_are_told(self):
        assert self.of(*read("p-0", digest="e")) == {CONTENTS: 1}
        assert self.of(*read("p-1")) == {CONTENTS: 1}

    def test_what_a_reader_had_and_the_log_has_no_more_is_lost(self):
        assert self.of(*self.LOG, *read("p-3", first=4)) == {LOST: 1}


class TestGroups:
    ENDS = 5
    NAMES = tuple(f"p-{offset}" for offset in range(1, ENDS))

    def of(self, *lines, end=ENDS):
        names = self.NAMES[: end - 1]
        history = [line for offset, name in enumerate(names, start=1) for line in told(name, offset)]
        flat = [line for each in lines for line in (each if isinstance(each, list) else [each])]
        return found(History(history, read(*names), {0: end}, groups={"g": flat}))

    def test_one_member_after_the_other_is_as_it_should_be(self):
        first = [handed(1, 1, 2), worked(1, 1, 2), committed(2, 1, 2)]
        then = [handed(3, 3, 4, who="b", epoch=3), worked(4, 3, 4, who="b", epoch=3)]
        assert self.of(*first, *then) == {}

    def test_what_nobody_worked_on_is_lost(self):
        assert self.of(handed(1, 1, 2, 3, 4), worked(2, 1, 2, 3)) == {LOST: 1}

    def test_a_progress_that_passed_what_was_in_hand_is_found_in_the_next_epoch(self):
        # Given a member that died while it had 2, though the progress had passed it
        first = [handed(1, 1, 2, 3), worked(2, 1, 3), Line(3.0, "a", Kind.DIED)]
        # When another one goes on behind it, then 2 is lost
        then = [handed(4, 4, who="b", epoch=3), worked(5, 4, who="b", epoch=3)]
        assert self.of(*first, *then)[LOST] >= 1

    def test_a_gap_in_an_epoch_is_told(self):
        assert self.of(handed(1, 1, 3, 4), worked(2, 1, 2, 3, 4)) == {GAPS: 1}

    def test_other_bytes_than_those_of_the_log_are_told(self):
        wrong = [Line(1.0, "a", Kind.DELIVERED, "p-1", 2, pipe="0", seq=1, digest="e"), *worked(2, 1)]
        assert self.of(wrong, end=2) == {CONTENTS: 1}

    @pytest.mark.parametrize(
        ("reason", "told"), [(Line(9.0, "a", Kind.DIED), {}), (lost_claim(9.0), {}), (done("a"), {TWICE: 1})]
    )
    def test_a_message_is_handed_out_again_for_a_reason_alone(self, reason, told):
        again = [handed(3, 1, who="b", epoch=3), worked(4, 1, who="b", epoch=3)]
        assert self.of(handed(1, 1), worked(2, 1), reason, *again, end=2) == told

    def test_a_freeze_is_no_reason_where_the_partition_was_not_lost(self):
        frozen = Line(1.5, "a", Kind.CLOSING)
        again = [handed(3, 1, who="b", epoch=3), worked(4, 1, who="b", epoch=3)]
        assert self.of(handed(1, 1), worked(2, 1), frozen, *again, end=2) == {TWICE: 1}

    def test_what_came_again_on_demand_is_no_finding_and_comes_in_order(self):
        back = member(2, Kind.ROLLING_BACK, 2)
        assert self.of(handed(1, 1, 2, 3), back, handed(3, 2, 3, 4), worked(4, 1, 2, 3, 4)) == {}
        skipped = [handed(1, 1, 2, 3), back, handed(3, 3, 4), worked(4, 1, 2, 3, 4)]
        assert self.of(*skipped) == {GAPS: 1}

    def test_what_came_back_may_come_to_another_member_and_nothing_else_may(self):
        first = [handed(1, 1, 2), member(2, Kind.ROLLING_BACK, 2), worked(3, 1)]
        for at, told in ((2, {}), (1, {TWICE: 1})):
            then = range(at, 3)
            second = [handed(4, *then, who="b", epoch=3), worked(5, *then, who="b", epoch=3)]
            assert self.of(*first, *second, end=3) == told

    def test_what_comes_again_in_an_epoch_without_a_demand_is_told(self):
        assert self.of(handed(1, 1, 2, 2), worked(2, 1, 2), end=3) == {TWICE: 1}

    def test_two_members_in_one_epoch_are_told(self):
        assert TWICE in self.of(handed(1, 1), handed(1, 2, who="b"), worked(2, 1, 2), end=3)

    def test_an_epoch_that_begins_before_what_was_committed_is_a_step_back(self):
        first = [handed(1, 1, 2), worked(1, 1, 2), committed(2, 1, 2), Line(2.5, "a", Kind.DIED)]
        then = [handed(3, 2, 3, 4, who="b", epoch=3), worked(4, 2, 3, 4, who="b", epoch=3)]
        assert self.of(*first, *then) == {BACK: 1}

    def test_an_epoch_that_begins_before_an_earlier_one_is_a_step_back(self):
        first = [handed(1, 1, 2), worked(1, 1, 2), lost_claim(2)]
        then = [handed(3, 3, 4, who="b", epoch=3), lost_claim(4, who="b", epoch=3)]
        last = [handed(5, 1, 2, 3, 4, who="c", epoch=4), worked(6, 1, 2, 3, 4, who="c", epoch=4)]
        assert self.of(*first, *then, *last) == {BACK: 1}

    def test_a_commit_that_began_once_a_later_epoch_was_seen_must_not_return(self):
        # Given a member that was frozen, and another one that has its partition
        stale = [handed(1, 1), lost_claim(6)]
        fresh = [handed(3, 1, who="b", epoch=3), worked(3, 1, who="b", epoch=3)]
        # When the first one's commit raises, then all is well; where it returns, something is wrong
        assert self.of(*stale, worked(5, 1), *fresh, end=2) == {}
        assert BACK in self.of(*stale, worked(5, 1), committed(5.5, 1), *fresh, end=2)

    def test_a_commit_that_returns_late_and_began_in_time_is_fine(self):
        stale = [handed(1, 1), worked(2, 1), committed(5, 1)]
        fresh = [handed(3, 2, who="b", epoch=3), worked(4, 2, who="b", epoch=3)]
        assert self.of(*stale, *fresh, end=3) == {}


class TestQueues:
    def of(self, *lines, types=None):
        flat = [line for each in lines for line in each]
        history = [*told("p-1", 1), *told("p-2", 2)]
        return found(History(history, read("p-1", "p-2"), {0: 3}, queues={"q": (types, flat)}))

    def test_each_message_once_and_in_order_is_as_it_should_be(self):
        assert self.of(popped(1, 0, 1), popped(2, 1, 1)) == {}

    def test_a_message_that_did_not_come_is_lost(self):
        assert self.of(popped(1, 0, 1)) == {LOST: 1}

    def test_one_of_another_type_is_not_missed_and_not_wanted(self):
        assert self.of(types=("user.*",)) == {}
        assert self.of(popped(1, 0, 1), types=("user.*",)) == {INVENTED: 1}

    def test_a_message_that_was_pushed_twice_is_told(self):
        assert self.of(popped(1, 0, 1), popped(2, 0, 2), popped(2, 1, 1, at=4.0)).keys() == {TWICE}

    def test_a_message_that_was_pushed_behind_a_later_one_is_told(self):
        assert self.of(popped(2, 0, 1), popped(1, 1, 1)) == {ORDER: 1}

    def test_a_message_that_comes_again_once_its_lease_was_over_is_as_in_any_queue(self):
        died = [popped(1, 0, 1)[0], Line(4.0, "popper1", Kind.DIED)]
        assert self.of(died, popped(1, 0, 1, at=9.0, attempt=2, who="popper2"), popped(2, 0, 2)) == {}

    def test_other_bytes_than_those_of_the_log_are_told(self):
        wrong = [Line(3.0, "popper1", Kind.DELIVERED, "0:1", 1, 8.0, pipe=PIPES[0], seq=1, digest="e")]
        assert CONTENTS in self.of(wrong, popped(1, 0, 1)[1:], popped(2, 0, 2))

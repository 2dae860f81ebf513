"""The checker: histories by hand, and planted harm that is always found and named."""

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cassq
from cassq.checker import DEAD_HOLDER, EXPIRED_LEASE, ROLLBACK, judge
from cassq.clock import SystemClock
from cassq.delivery_buffer import IDLE_S
from cassq.held_run import HeldRun, Return
from cassq.ledger import Kind, Line
from cassq.model.stretches import Stretches
from cassq.owned_pipe import OwnedPipe
from cassq.pipe_order import REST_S
from cassq.process import Birthplace

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

    def test_is_nothing_that_was_given_up_as_a_dead_letter(self):
        verdict = judge([*pushed("m"), delivered(1, "a", "m"), noted(9, "judge", Kind.DEAD_LETTER, "m")])

        assert verdict.broken() == []
        assert verdict.dead == {"m"}

    def test_names_the_first_few_only(self):
        words = only(judge(line for number in range(30) for line in pushed(f"m{number:02}")))

        assert words.startswith("lost 30: m00; m01; ")
        assert words.endswith("m09 …")


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

            held(store, earlier, run).give_back(Stretches([(2, 2)]), Return(is_counted=False))
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
    return OwnedPipe(store.storage, "q", entry, state, settings=queue.settings, holder="test", clock=clock)


def take(owned, wanted):
    return [(seq, run.run.attempt) for run in owned.take(wanted).runs for seq, *_ in run.messages]


def held(store, owned, run):
    clock = SystemClock()
    ends_at = clock.now() + LEASE_S
    return HeldRun(
        store.storage, owned.pipe, run, ends_at, clock=clock, told=owned.note, birthplace=Birthplace()
    )


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

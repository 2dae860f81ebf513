"""What every coordinator promises, whichever service is behind it."""

import os
import signal
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid1

import pytest
from coordinators import PATIENCE, Calls, LocalSeats, Seats, ZooKeeperSeats, eventually

from cassq.coordination.port import name_in_line
from cassq.errors import ClosedError

ONE_PROCESS = ["memory", "file"]
PROCESSES = ["files", pytest.param("zookeeper", marks=pytest.mark.service)]


@pytest.fixture
def seats(request, tmp_path):
    kind = request.param
    path = None if kind == "memory" else tmp_path / "store.db-coordination"
    opened: Seats = ZooKeeperSeats() if kind == "zookeeper" else LocalSeats(path, is_one=kind in ONE_PROCESS)
    yield opened
    opened.close()


every_adapter = pytest.mark.parametrize("seats", ONE_PROCESS + PROCESSES, indirect=True)
several_processes = pytest.mark.parametrize("seats", PROCESSES, indirect=True)
losing_sessions = pytest.mark.parametrize("seats", ["file", *PROCESSES], indirect=True)

PIPE = uuid1()
OTHER_PIPE = uuid1()


def announced(seat, popper, queue="orders", **callbacks):
    """Announce a popper, and return what counts its wake-ups once its own seat knows of it."""
    woken = Calls()
    seat.announce_hunger(queue, popper, woken, **callbacks)
    assert eventually(lambda: seat.hungry(queue) > seat.hungry(queue, besides=popper))
    return woken


@every_adapter
def test_a_claim_keeps_everybody_else_out(seats):
    a, b = seats.take(), seats.take()
    assert a.claim("orders", PIPE, "A")
    assert not b.claim("orders", PIPE, "B")
    assert a.is_held("orders", PIPE, "A")
    assert not b.is_held("orders", PIPE, "B")


@every_adapter
def test_claims_of_different_pipes_and_queues_do_not_meet(seats):
    a, b = seats.take(), seats.take()
    assert a.claim("orders", PIPE, "A")
    assert b.claim("orders", OTHER_PIPE, "B")
    assert b.claim("returns", PIPE, "B")


@every_adapter
def test_claiming_twice_says_yes_to_the_holder(seats):
    a = seats.take()
    assert a.claim("orders", PIPE, "A")
    assert a.claim("orders", PIPE, "A")
    assert not a.claim("orders", PIPE, "another popper of the same process")


@every_adapter
def test_a_released_pipe_can_be_claimed_by_others_at_once(seats):
    a, b = seats.take(), seats.take()
    a.claim("orders", PIPE, "A")
    a.release("orders", PIPE, "A")
    assert not a.is_held("orders", PIPE, "A")
    assert b.claim("orders", PIPE, "B")
    assert not a.claim("orders", PIPE, "A")


@every_adapter
def test_releasing_what_is_not_held_changes_nothing(seats):
    a, b = seats.take(), seats.take()
    a.claim("orders", PIPE, "A")
    b.release("orders", PIPE, "B")
    b.release("orders", OTHER_PIPE, "B")
    a.release("orders", PIPE, "B")
    assert a.is_held("orders", PIPE, "A")
    assert not b.claim("orders", PIPE, "B")


@every_adapter
def test_holders_names_who_has_which_pipe(seats):
    a, b = seats.take(), seats.take()
    assert a.holders("orders") == {}
    a.claim("orders", PIPE, "A")
    b.claim("orders", OTHER_PIPE, "B")
    b.claim("returns", PIPE, "B")
    # Another process's claim shows a moment later: a read may come from a server that lags behind.
    assert eventually(lambda: a.holders("orders") == {PIPE: "A", OTHER_PIPE: "B"})


@every_adapter
def test_of_many_threads_that_claim_at_once_exactly_one_gets_the_pipe(seats):
    taken = [seats.take() for _ in range(4)]
    start = threading.Barrier(8)
    granted = []

    def hunt(number):
        start.wait(PATIENCE)
        if taken[number % 4].claim("orders", PIPE, f"popper-{number}"):
            granted.append(number)

    threads = [threading.Thread(target=hunt, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(granted) == 1


@several_processes
def test_claims_and_announcements_vanish_with_the_seat_that_is_closed(seats):
    a, b = seats.take(), seats.take()
    a.claim("orders", PIPE, "A")
    a.announce_hunger("orders", "A", Calls())
    assert eventually(lambda: b.hungry("orders") == 1)
    a.close()
    assert b.claim("orders", PIPE, "B")
    assert eventually(lambda: b.hungry("orders") == 0)


@every_adapter
def test_a_closed_seat_refuses_work_and_answers_questions(seats):
    a = seats.take()
    a.claim("orders", PIPE, "A")
    a.announce_hunger("orders", "A", Calls())
    a.close()
    a.close()
    for refused in (
        lambda: a.claim("orders", PIPE, "A"),
        lambda: a.announce_hunger("orders", "A", Calls()),
        lambda: a.holders("orders"),
    ):
        with pytest.raises(ClosedError):
            refused()
    a.release("orders", PIPE, "A")
    a.withdraw_hunger("orders", "A")
    assert not a.may_take()
    assert not a.is_held("orders", PIPE, "A")
    assert a.hungry("orders") == 0
    assert a.wake("orders", 1) == 0


@every_adapter
def test_takes_are_allowed_while_the_session_stands(seats):
    a = seats.take()
    a.claim("orders", PIPE, "A")
    assert a.may_take()


@every_adapter
def test_the_popper_that_waited_longest_is_woken_first_and_nobody_else(seats):
    taken = {name: seats.take() for name in ("first", "second", "third")}
    woken = {name: announced(seat, name) for name, seat in taken.items()}
    waker = seats.take()
    assert eventually(lambda: waker.hungry("orders") == 3)
    for rest, name in ((2, "first"), (1, "second"), (0, "third")):
        assert waker.wake("orders", 1) == 1
        assert woken[name].arrive()
        assert eventually(lambda rest=rest: waker.hungry("orders") == rest)
        assert sum(each.count for each in woken.values()) == 3 - rest


@every_adapter
def test_who_announces_hears_how_many_stood_in_line_before(seats):
    a, b = seats.take(), seats.take()

    assert a.announce_hunger("orders", "A", Calls()) == 0
    assert b.announce_hunger("orders", "B", Calls()) == 1
    assert a.announce_hunger("orders", "A", Calls()) == 0
    assert b.announce_hunger("bills", "B", Calls()) == 0


@every_adapter
def test_of_poppers_that_announce_at_once_one_hears_that_nobody_stood_before(seats):
    a, b = seats.take(), seats.take()
    with ThreadPoolExecutor(4) as pool:
        for turn in range(20):
            queue, barrier = f"orders-{turn}", threading.Barrier(4)

            def announce(place, queue=queue, barrier=barrier):
                barrier.wait()
                return (a, b)[place % 2].announce_hunger(queue, f"popper-{place}", Calls())

            before = list(pool.map(announce, range(4)))
            assert before.count(0) == 1


@every_adapter
def test_wake_wakes_as_many_as_there_are_up_to_the_count(seats):
    a, b = seats.take(), seats.take()
    woken = [announced(a, "A"), announced(a, "B"), announced(a, "C")]
    assert eventually(lambda: b.hungry("orders") == 3)
    assert b.wake("orders", 0) == 0
    assert b.wake("orders", 2) == 2
    assert [each.arrive() for each in woken[:2]] == [True, True]
    assert b.wake("orders", 5) == 1
    assert woken[2].arrive()
    assert b.wake("orders", 5) == 0
    assert [each.count for each in woken] == [1, 1, 1]


@every_adapter
def test_wakers_that_act_at_once_wake_nobody_twice(seats):
    popper = seats.take()
    woken = [announced(popper, f"popper-{number}") for number in range(8)]
    wakers = [seats.take() for _ in range(4)]
    for waker in wakers:
        assert eventually(lambda waker=waker: waker.hungry("orders") == 8)
    start = threading.Barrier(4)
    counts = []

    def rouse(waker):
        start.wait(PATIENCE)
        counts.append(waker.wake("orders", 2))

    threads = [threading.Thread(target=rouse, args=(waker,)) for waker in wakers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sum(counts) == 8
    assert all(each.arrive() for each in woken)
    assert [each.count for each in woken] == [1] * 8


@every_adapter
def test_wake_never_wakes_the_popper_it_is_told_to_leave_out(seats):
    a, b = seats.take(), seats.take()
    of_a = announced(a, "A")
    of_b = announced(b, "B")
    assert eventually(lambda: a.hungry("orders") == 2)
    assert a.hungry("orders", besides="A") == 1
    assert a.wake("orders", 5, besides="A") == 1
    assert of_b.arrive()
    assert a.wake("orders", 5, besides="A") == 0
    assert of_a.count == 0
    assert a.hungry("orders") == 1


@every_adapter
def test_only_those_are_counted_and_woken_that_take_some_of_the_types(seats):
    a, b = seats.take(), seats.take()
    first, second, both, any_of_them, none_yet = (
        announced_for(seat, name, types)
        for seat, name, types in (
            (a, "A", 0b10),
            (b, "B", 0b100),
            (a, "C", 0b110),
            (b, "D", None),
            (a, "E", 0),
        )
    )
    for seat in (a, b):
        assert eventually(lambda seat=seat: seat.hungry("orders", types=0b111) == 5)
        assert [seat.hungry("orders", types=types) for types in (0, 0b10, 0b100, 0b110)] == [1, 3, 3, 4]
        assert seat.hungry("orders", besides=name_in_line("C", 0b110), types=0b10) == 2
    assert b.wake("orders", 1, types=0b100) == 1
    assert second.arrive()
    assert a.wake("orders", 5) == 1
    assert any_of_them.arrive()
    assert b.wake("orders", 5, types=0b100) == 1
    assert both.arrive()
    assert a.wake("orders", 5, types=0b1000) == 0
    assert (first.count, none_yet.count) == (0, 0)
    assert a.wake("orders", 5, types=0b11) == 2
    assert first.arrive()
    assert none_yet.arrive()


def announced_for(seat, name, types):
    woken = Calls()
    seat.announce_hunger("orders", name_in_line(name, types), woken)
    return woken


@every_adapter
def test_only_those_stand_before_a_popper_who_take_all_that_it_takes(seats):
    a, b = seats.take(), seats.take()
    standing = [
        seat.announce_hunger("orders", name_in_line(name, types), Calls())
        for seat, name, types in (
            *((a, "A", 0b10), (b, "B", 0b100), (a, "C", 0b110), (b, "D", None)),
            *((a, "E", 0b10), (b, "F", 0b110), (a, "G", None)),
        )
    ]
    assert standing == [0, 0, 0, 0, 3, 2, 1]


@every_adapter
def test_a_woken_popper_is_no_longer_announced_and_may_announce_again(seats):
    a, b = seats.take(), seats.take()
    woken = announced(a, "A")
    assert b.wake("orders", 1) == 1
    assert woken.arrive()
    assert eventually(lambda: b.hungry("orders") == 0)
    again = announced(a, "A")
    assert eventually(lambda: b.hungry("orders") == 1)
    assert b.wake("orders", 1) == 1
    assert again.arrive()
    assert woken.count == 1


@every_adapter
def test_announcing_again_replaces_the_callback_and_keeps_the_place(seats):
    a, b = seats.take(), seats.take()
    replaced = announced(a, "A")
    later = announced(a, "B")
    woken = Calls()
    a.announce_hunger("orders", "A", woken)
    assert eventually(lambda: b.hungry("orders") == 2)
    assert b.wake("orders", 1) == 1
    assert woken.arrive()
    assert (replaced.count, later.count) == (0, 0)


@every_adapter
def test_who_withdrew_is_not_woken(seats):
    a, b = seats.take(), seats.take()
    woken = announced(a, "A")
    assert eventually(lambda: b.hungry("orders") == 1)
    a.withdraw_hunger("orders", "A")
    a.withdraw_hunger("orders", "A")
    assert eventually(lambda: b.hungry("orders") == 0)
    assert b.wake("orders", 1) == 0
    assert woken.count == 0


@every_adapter
def test_queues_have_lines_of_their_own(seats):
    a, b = seats.take(), seats.take()
    announced(a, "A", "orders")
    assert b.hungry("returns") == 0
    assert b.wake("returns", 1) == 0
    assert eventually(lambda: b.hungry("orders") == 1)


@every_adapter
def test_a_popper_that_was_alone_is_told_when_another_gets_hungry_and_stays_announced(seats):
    a, b = seats.take(), seats.take()
    crowded_a, crowded_b = Calls(), Calls()
    of_a = announced(a, "A", on_crowded=crowded_a)
    assert crowded_a.count == 0
    of_b = announced(b, "B", on_crowded=crowded_b)
    assert crowded_a.arrive()
    assert crowded_b.arrive()
    assert eventually(lambda: a.hungry("orders") == 2)
    assert (of_a.count, of_b.count) == (0, 0)


@every_adapter
def test_idle_poppers_do_not_keep_each_other_busy(seats):
    a, b, c = seats.take(), seats.take(), seats.take()
    crowded = Calls()
    announced(
        a, "A", on_crowded=lambda: (crowded(), a.announce_hunger("orders", "A", Calls(), on_crowded=crowded))
    )
    announced(b, "B", on_crowded=Calls())
    assert crowded.arrive()
    announced(c, "C", on_crowded=Calls())
    # C has been seen by all, and A, already in company, was not told again.
    assert eventually(lambda: a.hungry("orders") == 3)
    assert crowded.count == 1
    # Alone again, then in company again: that is news.
    b.withdraw_hunger("orders", "B")
    c.withdraw_hunger("orders", "C")
    assert eventually(lambda: a.hungry("orders") == 1)
    announced(b, "B")
    assert crowded.arrive(2)


@losing_sessions
def test_a_lost_session_takes_its_claims_along(seats):
    a, b = seats.take(), seats.take()
    a.claim("orders", PIPE, "A")
    a.claim("orders", OTHER_PIPE, "A")
    seats.lose(a)
    assert eventually(lambda: not a.is_held("orders", PIPE, "A"))
    assert b.claim("orders", PIPE, "B")
    assert not a.is_held("orders", OTHER_PIPE, "A")
    # A is back by itself, and starts with nothing.
    assert eventually(a.may_take)
    assert not a.is_held("orders", OTHER_PIPE, "A")
    assert a.claim("orders", OTHER_PIPE, "A")
    assert not a.claim("orders", PIPE, "A")


@losing_sessions
def test_hungry_poppers_are_woken_when_the_session_is_back(seats):
    a, b = seats.take(), seats.take()
    woken = announced(a, "A")
    seats.lose(a)
    assert woken.arrive()
    assert eventually(a.may_take)
    assert eventually(lambda: b.hungry("orders") == 0)
    again = announced(a, "A")
    assert eventually(lambda: b.hungry("orders") == 1)
    assert b.wake("orders", 1) == 1
    assert again.arrive()
    assert woken.count == 1


@every_adapter
def test_callbacks_may_use_the_coordinator(seats):
    a, b = seats.take(), seats.take()
    a.claim("orders", PIPE, "A")
    done = Calls()

    def let_go():
        a.release("orders", PIPE, "A")
        a.announce_hunger("orders", "A", Calls())
        done()

    announced(a, "A", on_crowded=let_go)
    announced(b, "B")
    assert done.arrive()
    assert b.claim("orders", PIPE, "B")


@every_adapter
def test_a_callback_that_fails_harms_nobody(seats):
    a, b = seats.take(), seats.take()

    def fail():
        raise RuntimeError("a consumer's mistake")

    a.announce_hunger("orders", "A", fail)
    second = announced(a, "B")
    assert eventually(lambda: b.hungry("orders") == 2)
    assert b.wake("orders", 2) == 2
    assert second.arrive()
    assert a.claim("orders", PIPE, "A")


@every_adapter
def test_a_forked_child_is_refused_and_leaves_its_parent_alone(seats):
    a, b = seats.take(), seats.take()
    a.claim("orders", PIPE, "A")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(int(PATIENCE))  # a child that hangs in a lock of its parent's is a failure, too
        refused = 0
        for call in (
            a.may_take,
            lambda: a.claim("orders", OTHER_PIPE, "A"),
            lambda: a.release("orders", PIPE, "A"),
            lambda: a.is_held("orders", PIPE, "A"),
            lambda: a.holders("orders"),
            lambda: a.announce_hunger("orders", "A", Calls()),
            lambda: a.withdraw_hunger("orders", "A"),
            lambda: a.hungry("orders"),
            lambda: a.wake("orders", 1),
        ):
            try:
                call()
            except ClosedError:
                refused += 1
        a.close()
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert a.is_held("orders", PIPE, "A")
    assert not b.claim("orders", PIPE, "B")

"""Who is handed what, in which order, and how long a pop that gets nothing may take."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import zip_longest

import pytest

from cassq.errors import AccessDeniedError, ClosedError, StorageUnavailableError
from cassq.model.message import Batch
from cassq.popping.alarm import Heard
from cassq.popping.consumer_line import Consumer
from cassq.popping.delivery import BatchSlice
from cassq.popping.delivery_buffer import DeliveryBuffer
from cassq.popping.delivery_groups import group_by_run
from cassq.popping.timing import IDLE_S, LINGER_S, LOOK_TIMEOUT_S
from cassq.runtime.clock import SystemClock


def unlocked(condition, then):
    """Let something happen as while somebody waits: without the lock."""
    condition.release()
    try:
        then()
    finally:
        condition.acquire()


class Clock:
    """Whoever waits has waited; then something may happen."""

    def __init__(self):
        self.at = 100.0
        self.then = lambda: None

    def now(self):
        return self.at

    def until_shown(self, database_ms):
        return database_ms / 1000

    def wait(self, condition, seconds):
        self.at += seconds
        unlocked(condition, self.then)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def buffer(clock):
    return DeliveryBuffer(clock)


def listen(buffer):
    """Be as a popper that has announced its hunger and waits to be woken."""
    buffer.alarm.is_listening = True


def test_a_popper_that_came_to_listen_without_a_look_is_asked_for_one_in_the_end(clock, buffer):
    asked = []

    def happen():
        listen(buffer)
        asked.append(buffer.alarm.is_look_asked)
        if asked[-1]:
            buffer.end_round(buffer.begin_round())

    clock.then = happen
    assert buffer.get(1, clock.at + 3.0) == []
    assert asked == [False, True]
    assert buffer._looks.done == 1


def test_who_has_no_time_gets_a_look_that_began_after_it_asked(clock, buffer):
    listen(buffer)

    def look():
        buffer.end_round(buffer.begin_round())

    clock.then = look
    assert buffer.get(1, clock.at) == []
    assert buffer._looks.done == 1


@pytest.mark.parametrize(("timeout", "waited"), [(3.0, 3.0), (0.5, LOOK_TIMEOUT_S), (0.0, LOOK_TIMEOUT_S)])
def test_a_look_that_does_not_end_in_time_is_never_told_as_an_empty_queue(clock, buffer, timeout, waited):
    with pytest.raises(StorageUnavailableError, match=f"within {waited:g} s"):
        buffer.get(1, clock.at + timeout)
    assert clock.at == pytest.approx(100.0 + waited)


def test_an_outage_that_a_look_met_is_told_when_the_time_is_up(clock, buffer):
    outage = StorageUnavailableError("the database is away")
    buffer.end_round(buffer.begin_round(), outage)
    with pytest.raises(StorageUnavailableError, match="is away"):
        buffer.get(1, clock.at + 3.0)
    assert clock.at == pytest.approx(103.0)


def test_who_was_refused_before_is_looked_for_again(clock, buffer):
    listen(buffer)
    buffer.end_round(buffer.begin_round(), AccessDeniedError("no permission"))

    def look():
        buffer.end_round(buffer.begin_round())

    clock.then = look
    assert buffer.get(1, clock.at + 3.0) == []


def test_who_is_refused_by_a_look_of_its_own_hears_of_it_at_once(clock, buffer):
    refusal = AccessDeniedError("no permission")
    buffer.end_round(buffer.begin_round(), refusal)
    clock.wait = lambda condition, _seconds: unlocked(
        condition, lambda: buffer.end_round(buffer.begin_round(), refusal)
    )
    with pytest.raises(AccessDeniedError):
        buffer.get(1, clock.at + 3.0)
    assert clock.at == 100.0


def waits_of(clock, *happenings):
    """Let one of these happen at each wait; return the list that will tell how long each lasted."""
    waits, left = [], list(happenings)
    before = clock.at

    def happen():
        nonlocal before
        waits.append(clock.at - before)
        before = clock.at
        if left:
            left.pop(0)()

    clock.then = happen
    return waits


def test_a_consumer_that_is_back_soon_finds_the_popper_still_listening(clock, buffer):
    consumer = Consumer(threading.Condition(), None, 1, asked_at=clock.at, deadline=clock.at, look=0)
    buffer._line.join(consumer)
    leave, join = partial(buffer._line.leave, consumer), partial(buffer._line.join, consumer)
    waits = waits_of(clock, leave, join, buffer.alarm.wake)
    clock.wait = lambda _condition, seconds: Clock.wait(clock, _condition, min(seconds, 1.0))
    assert buffer.alarm.listen(60.0) is Heard.WOKEN
    assert waits == pytest.approx([1.0, LINGER_S, 1.0])


def test_a_popper_whose_consumers_stay_away_listens_no_longer(clock, buffer):
    consumer = Consumer(threading.Condition(), None, 1, asked_at=clock.at, deadline=clock.at, look=0)
    buffer._line.join(consumer)
    waits = waits_of(clock, partial(buffer._line.leave, consumer))
    clock.wait = lambda _condition, seconds: Clock.wait(clock, _condition, min(seconds, 1.0))
    assert buffer.alarm.listen(60.0) is Heard.ALONE
    assert waits == pytest.approx([1.0, LINGER_S])


class Run:
    """A run whose lease runs until it is told otherwise."""

    def __init__(self):
        self.is_live = True


class Nobody:
    """Commits nothing."""

    def commit(self, deliveries):
        raise AssertionError(f"nobody asked for {deliveries}")


def batch_slice(first, count, run=None):
    """Return messages `first` and so on, of one batch and run, each with a body and headers of its own."""
    bodies = tuple(b"%d" % number for number in range(first, first + count))
    headers = tuple({"number": str(number)} for number in range(first, first + count))
    return BatchSlice(run or Run(), Batch(first, bodies, headers, count, 0), Nobody())


def numbers(found):
    """Return the numbers of deliveries; each must have the body and the headers that belong to it."""
    assert [each.body for each in found] == [b"%d" % each.seq for each in found]
    assert [each.headers for each in found] == [{"number": str(each.seq)} for each in found]
    return [each.seq for each in found]


@pytest.mark.parametrize("counts", [[10], [1] * 10, [3, 3, 3, 1], [7, 2, 1], [4, 6]])
def test_messages_come_out_in_order_however_many_are_asked_for_at_a_time(clock, buffer, counts):
    buffer.put([batch_slice(1, 4), batch_slice(5, 6)])
    found = [numbers(buffer.get(count, clock.at)) for count in counts]
    assert [len(part) for part in found] == counts
    assert [number for part in found for number in part] == list(range(1, 11))


def test_what_is_taken_back_is_what_nobody_was_handed(clock, buffer):
    run, other = Run(), Run()
    buffer.put([batch_slice(1, 4, run), batch_slice(5, 4, run), batch_slice(1, 2, other)])
    buffer.get(6, clock.at)
    assert {run: list(parts) for run, parts in buffer.take_back().items()} == {run: [(7, 8)], other: [(1, 2)]}
    assert buffer.take_back() == {}
    assert buffer.runs() == []


def test_runs_without_a_lease_are_passed_over(clock, buffer):
    ended, live = Run(), Run()
    buffer.put([batch_slice(1, 4, ended), batch_slice(5, 4, live)])
    buffer.get(2, clock.at)
    ended.is_live = False
    assert numbers(buffer.get(9, clock.at)) == [5, 6, 7, 8]


@pytest.mark.parametrize(
    ("given", "stretches"),
    [
        ([1, 2, 3], [(1, 3)]),
        ([3, 1, 2, 5], [(1, 3), (5, 5)]),
        ([4, 5, 6, 9, 8], [(4, 6), (8, 9)]),
        ([8, 9, 1], [(1, 1), (8, 9)]),
    ],
)
def test_deliveries_are_grouped_by_run_whatever_their_order(clock, buffer, given, stretches):
    run, other = Run(), Run()
    buffer.put([batch_slice(1, 4, run), batch_slice(5, 5, run), batch_slice(1, 2, other)])
    found = {each.seq: each for each in buffer.get(9, clock.at)}
    others = buffer.get(2, clock.at)
    mixed = [each for pair in zip_longest((found[seq] for seq in given), others) for each in pair if each]
    grouped = {run: list(parts) for run, parts in group_by_run(mixed).items()}
    assert grouped == {run: stretches, other: [(1, 2)]}


class Steps(Clock):
    """Time stands still while there are steps; each is taken by whoever waits then."""

    def __init__(self):
        super().__init__()
        self.left = []

    def wait(self, condition, seconds):
        if self.left:
            unlocked(condition, self.left.pop(0))
        else:
            super().wait(condition, seconds)


@pytest.fixture
def steps():
    return Steps()


@pytest.fixture
def line(steps):
    """A buffer whose consumers take the steps."""
    return DeliveryBuffer(steps)


def stand_in_line(steps, line, pops, *then):
    """Let consumers wait, each while the one before does; then take the other steps.

    Returns: what each was given, or how its pop failed, in the order in which they came.
    """
    found = [None] * len(pops)

    def pop(place):
        try:
            found[place] = line.get(*pops[place])
        except ClosedError as error:
            found[place] = error

    steps.left = [lambda place=place: pop(place) for place in range(1, len(pops))] + list(then)
    pop(0)
    return found


FAR = 1000.0


def until(holds):
    """Wait until something holds; the test's own time limit ends it otherwise."""
    while not holds():
        time.sleep(0.001)


@pytest.fixture
def messages():
    return batch_slice(0, 5)


def test_who_waits_longest_is_handed_messages_first(steps, line, messages):
    found = stand_in_line(steps, line, [(2, FAR), (1, FAR), (7, FAR)], lambda: line.put([messages]))
    assert [numbers(each) for each in found] == [[0, 1], [2], [3, 4]]


def test_who_is_handed_messages_counts_from_then_on_though_its_thread_may_run_later(steps, line, messages):
    noted = []

    def put_after_a_while():
        steps.at += 2 * IDLE_S
        line.put([messages])
        noted.append(line.is_idle(IDLE_S))

    stand_in_line(steps, line, [(1, FAR)], put_after_a_while)
    assert noted == [False]


def test_only_those_are_woken_that_are_handed_something(steps, line):
    woken = []

    def put():
        for consumer in line._line._waiting:
            consumer.changed.notify = lambda consumer=consumer: woken.append(consumer.count)
        line.put([batch_slice(0, 3)])

    listen(line)
    found = stand_in_line(steps, line, [(3, FAR), (4, FAR), (5, FAR)], put)
    assert [numbers(each) for each in found] == [[0, 1, 2], [], []]
    assert woken == [3]


def test_what_ended_before_its_consumer_looked_is_not_delivered_and_it_stands_first_again(messages):
    buffer = DeliveryBuffer(SystemClock())
    far = SystemClock().now() + 60
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(buffer.get, 1, far)
        until(lambda: len(buffer._line) == 1)
        with buffer._lock:  # it is handed something, and cannot look before that has ended and another waits
            buffer.put([messages])
            assert not buffer._line
            messages.run.is_live = False
            second = pool.submit(buffer.get, 1, far)
            buffer._line.join(
                later := Consumer(
                    threading.Condition(buffer._lock), None, 1, asked_at=0.0, deadline=far, look=0
                )
            )
        until(lambda: len(buffer._line) == 3)
        order = list(buffer._line._waiting)
        buffer.put([batch_slice(7, 1)])
        assert numbers(first.result(30)) == [7]
        assert order.index(later) == 1
        with buffer._lock:
            buffer._line.leave(later)
        buffer.put([batch_slice(8, 1)])
        assert numbers(second.result(30)) == [8]


class Asker:
    """A popper, as the buffer sees it."""

    is_closed = False


def test_the_consumers_of_a_popper_that_is_closed_end_and_the_others_go_on(steps, line, messages):
    closed, other = Asker(), Asker()

    def close():
        closed.is_closed = True
        line.leave(closed)

    found = stand_in_line(
        *(steps, line, [(1, FAR, other), (1, FAR, closed)]),
        close,
        lambda: line.put([messages]),
    )
    assert numbers(found[0]) == [0]
    assert isinstance(found[1], ClosedError)


def test_who_asks_a_popper_after_it_was_closed_gets_nothing_of_what_is_there(line, messages):
    closed = Asker()
    closed.is_closed = True
    line.put([messages])
    with pytest.raises(ClosedError, match="popper is closed"):
        line.get(1, FAR, closed)
    assert numbers(line.get(9, FAR)) == [0, 1, 2, 3, 4]


def test_what_was_handed_to_a_consumer_that_is_interrupted_goes_to_the_next(steps, line, messages):
    def put_and_interrupt():
        line.put([messages])
        raise KeyboardInterrupt

    steps.left = [put_and_interrupt]
    with pytest.raises(KeyboardInterrupt):
        line.get(2, FAR)
    assert numbers(line.get(9, FAR)) == [0, 1, 2, 3, 4]


class Interrupting(SystemClock):
    """Interrupts the main thread in its first wait, after something has happened; the others really wait."""

    def __init__(self, happen):
        self._happen = happen

    def wait(self, condition, seconds):
        if threading.current_thread() is not threading.main_thread():
            super().wait(condition, seconds)
            return
        unlocked(condition, self._happen)
        raise KeyboardInterrupt


def test_what_was_handed_to_a_consumer_that_is_interrupted_is_handed_to_who_waits_behind_it():
    with ThreadPoolExecutor(1) as pool:
        behind = []

        def happen():
            behind.append(pool.submit(buffer.get, 2, clock.now() + 60))
            until(lambda: len(buffer._line) == 2)
            buffer.put([batch_slice(0, 2)])

        clock = Interrupting(happen)
        buffer = DeliveryBuffer(clock)
        with pytest.raises(KeyboardInterrupt):
            buffer.get(2, clock.now() + 60)
        assert numbers(behind[0].result(30)) == [0, 1]


@pytest.mark.parametrize(
    "ask", [DeliveryBuffer.call, lambda buffer: buffer.alarm.wake()], ids=["call", "wake"]
)
def test_whoever_needs_the_fetch_thread_wakes_it(clock, buffer, ask):
    buffer._line.join(Consumer(threading.Condition(), None, 1, asked_at=clock.at, deadline=clock.at, look=0))
    waits = waits_of(clock, lambda: ask(buffer))
    assert buffer.alarm.listen(60.0) is Heard.WOKEN
    assert len(waits) == 1
    # Also where it does not listen yet
    assert buffer.alarm.take_woken()
    ask(buffer)
    assert buffer.alarm.listen(60.0) is Heard.WOKEN
    assert len(waits) == 1


def test_nothing_is_taken_for_a_consumer_that_has_left(clock, buffer):
    noted = []

    def look():
        noted.append(buffer.wanted())
        buffer.end_round(buffer.begin_round())

    clock.then = look
    assert buffer.get(5000, clock.at) == []
    assert noted[0] >= 5000
    assert buffer.wanted() < 5000


def test_trouble_that_is_over_is_told_to_nobody(clock, buffer):
    buffer.end_round(buffer.begin_round(), StorageUnavailableError("the database is away"))
    clock.then = lambda: buffer.end_round(buffer.begin_round())
    assert buffer.get(1, clock.at + 3.0) == []
    # And it is news again when it comes back
    assert buffer.end_round(buffer.begin_round(), StorageUnavailableError("the database is away"))


def test_an_outage_is_news_once(buffer):
    outage = StorageUnavailableError("the database is away")
    assert [buffer.end_round(buffer.begin_round(), outage) for _ in range(3)] == [True, False, False]


def test_what_is_put_back_comes_in_its_order(steps, line):
    def put_and_interrupt():
        line.put([batch_slice(0, 2), batch_slice(2, 2)])
        raise KeyboardInterrupt

    steps.left = [put_and_interrupt]
    with pytest.raises(KeyboardInterrupt):
        line.get(3, FAR)
    assert numbers(line.get(9, FAR)) == [0, 1, 2, 3]


class TestAFetchThreadThatRests:
    def test_after_a_failure_rests_though_it_is_woken(self, clock, buffer):
        waits = waits_of(clock, buffer.alarm.wake, buffer.alarm.wake)
        clock.wait = lambda condition, seconds: Clock.wait(clock, condition, min(seconds, 1.0))
        buffer.alarm.pause(3.0)
        assert waits == pytest.approx([1.0, 1.0, 1.0])

    @pytest.mark.parametrize("ends", ["closed", "asked"])
    def test_after_a_failure_goes_on_when_it_must(self, clock, buffer, ends):
        def asked():
            buffer.alarm.is_look_asked = True

        waits = waits_of(clock, buffer.close if ends == "closed" else asked)
        clock.wait = lambda condition, seconds: Clock.wait(clock, condition, min(seconds, 1.0))
        buffer.alarm.pause(3.0)
        assert waits == pytest.approx([1.0])

    def test_is_asked_once_for_one_look(self, clock, buffer):
        buffer.alarm.is_look_asked = True
        buffer.begin_round()
        waits = waits_of(clock)
        buffer.alarm.pause(3.0)
        assert waits == pytest.approx([3.0])

    def test_hears_once_that_others_are_hungry(self, clock, buffer):
        buffer._line.join(
            Consumer(threading.Condition(), None, 1, asked_at=clock.at, deadline=clock.at, look=0)
        )
        buffer.alarm.crowd()
        assert buffer.alarm.listen(1.0) is Heard.CROWDED
        assert buffer.alarm.listen(1.0) is Heard.NOTHING

    def test_gives_back_once_what_was_meant_for_those_who_left(self, buffer, messages):
        buffer.put([messages])
        buffer.leave(Asker())
        assert [buffer.take_surplus() for _ in range(2)] == [True, False]

    def test_has_nothing_in_hand_once_it_has_given_it_back(self, clock, buffer):
        buffer.put([batch_slice(0, 1000)])
        buffer.take_back()
        noted = []
        clock.then = lambda: noted.append(buffer.is_starving()) or buffer.end_round(buffer.begin_round())
        assert buffer.get(1, clock.at) == []
        assert noted[0]

    def test_listens_no_more_once_it_has_heard(self, clock, buffer):
        buffer.close()
        buffer.alarm.listen(1.0)
        assert not buffer.alarm.is_listening


def test_whoever_heard_of_an_outage_pops_again_soon(clock, buffer):
    buffer.end_round(buffer.begin_round(), StorageUnavailableError("the database is away"))
    with pytest.raises(StorageUnavailableError):
        buffer.get(1, clock.at + 2 * IDLE_S)
    assert not buffer.is_idle(IDLE_S)


def test_a_refusal_is_told_to_all_that_wait_however_long_they_may(steps, line):
    woken = []

    def refuse():
        for consumer in line._line._waiting:
            consumer.changed.notify = lambda consumer=consumer: woken.append(consumer.count)
        line.end_round(line.begin_round(), AccessDeniedError("no permission"))

    with pytest.raises(AccessDeniedError):
        stand_in_line(steps, line, [(1, FAR), (2, FAR)], refuse)
    assert woken == [1, 2]


def test_a_buffer_that_is_closed_lets_consumers_and_the_fetch_thread_end_at_once():
    buffer = DeliveryBuffer(SystemClock())
    with ThreadPoolExecutor(2) as pool:
        consumer = pool.submit(buffer.get, 1, SystemClock().now() + 60)
        until(lambda: buffer._line)
        fetching = pool.submit(buffer.alarm.listen, 60.0)
        until(lambda: buffer.alarm.is_listening)
        buffer.close()
        assert fetching.result(30) is Heard.CLOSING
        with pytest.raises(ClosedError):
            consumer.result(30)


class Closed:
    is_closed = True


def test_what_is_in_hand_is_had_without_waiting_and_nothing_else():
    buffer = DeliveryBuffer(SystemClock())
    assert buffer.get(3, None) == []
    buffer.put([batch_slice(1, 4)])
    assert numbers(buffer.get(3, None)) == [1, 2, 3]
    with pytest.raises(ClosedError):
        buffer.get(1, None, Closed())

"""One thread does what need not hold up another, in order, until it is shut down."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cassq.runtime.background_thread import BackgroundThread

NAME = "cassq-beside-of-this-test"


def threads():
    return [each for each in threading.enumerate() if each.name == NAME]


@pytest.fixture
def beside():
    made = BackgroundThread(NAME)
    yield made
    made.shutdown()
    assert threads() == []


def test_work_is_done_in_order_on_one_thread_however_many_bring_it(beside):
    assert threads() == []
    done = []
    together = threading.Barrier(8)

    def bring(who):
        together.wait(30)
        return [beside.submit(done.append, (who, number)) for number in range(50)]

    with ThreadPoolExecutor(8) as pool:
        for futures in pool.map(bring, range(8)):
            for each in futures:
                each.result(30)
    assert len(threads()) == 1
    for who in range(8):
        assert [number for each, number in done if each == who] == list(range(50))


def test_an_error_is_told_to_who_asks_and_the_thread_goes_on(beside):
    failed = beside.submit(int, "no number")
    assert beside.submit(int, "7", base=8).result(30) == 7
    with pytest.raises(ValueError, match="no number"):
        failed.result(30)


def test_what_was_brought_is_done_before_it_ends(beside):
    may_go_on, done = threading.Event(), []
    beside.submit(may_go_on.wait, 30)
    for number in range(3):
        beside.submit(done.append, number)
    ending = threading.Thread(target=beside.shutdown)
    ending.start()
    may_go_on.set()
    ending.join(30)
    assert done == [0, 1, 2]
    assert threads() == []


def test_one_that_was_never_needed_ends_as_well():
    BackgroundThread(NAME).shutdown()
    assert threads() == []


def test_what_is_brought_after_the_end_is_done_all_the_same():
    made = BackgroundThread("cassq-late")  # its last thread ends when it does: no other test waits for that
    made.submit(int).result(30)
    made.shutdown()
    assert [made.submit(int, str(number)).result(30) for number in range(200)] == list(range(200))


def test_one_that_is_ended_while_many_bring_work_forgets_none():
    for _ in range(50):
        made = BackgroundThread("cassq-late")
        with ThreadPoolExecutor(4) as pool:
            bringing = [pool.submit(made.submit, int, str(number)) for number in range(40)]
            pool.submit(made.shutdown)
            assert [each.result(30).result(30) for each in bringing] == list(range(40))


def test_work_that_exits_ends_nothing(beside):
    def leave():
        raise SystemExit(1)

    left = beside.submit(leave)
    assert beside.submit(int, "7").result(30) == 7
    with pytest.raises(SystemExit):
        left.result(30)


def test_one_that_is_started_stands_ready(beside):
    beside.start()
    assert len(threads()) == 1

"""Messages with keys: one of each key is worked on at a time, in order, whoever pops."""

import threading
from collections import defaultdict
from datetime import timedelta

import pytest
from support.patience import patiently, until

from cassq import MessageState

WAIT_S = 30


@pytest.fixture
def queue(store, name):
    return store.queue(name, retry_delay=timedelta(0))


def pop(popper):
    delivery = popper.pop(timeout=WAIT_S)
    assert delivery is not None
    return delivery


class TestOneOfAKey:
    def test_is_handed_out_at_a_time(self, queue):
        for number in range(3):
            queue.push(b"%d" % number, key="foo")
        with queue.popper() as popper:
            first = pop(popper)
            assert patiently(lambda: popper.pop(timeout=0)) is None
            first.commit()
            second = pop(popper)
            assert (first.body, second.body) == (b"0", b"1")
            assert (first.key, second.key) == ("foo", "foo")

    def test_is_cancelled_while_it_waits_for_its_key_once_the_queue_is_paused(self, queue):
        ids = queue.push_many([b"1", b"2", b"3"], key="foo")
        with queue.popper() as popper:
            first = pop(popper)
            status = queue.status(ids[1])
            assert (status.state, status.waits_for) == (MessageState.PENDING, ids[0])
            assert not queue.cancel(ids[1])
            queue.pause()
            until(lambda: popper.pop(timeout=0.2) or queue.cancel(ids[1]))
            queue.resume()
            first.commit()
            assert pop(popper).body == b"3"

    def test_blocks_no_other_key(self, queue):
        for key in ("foo", "foo", "bar"):
            queue.push(key.encode(), key=key)
        with queue.popper() as popper:
            assert {pop(popper).key, pop(popper).key} == {"foo", "bar"}

    def test_nor_messages_without_one(self, queue):
        queue.push_many([b"1", b"2"], key="foo")
        queue.push(b"plain")
        with queue.popper() as popper:
            assert {pop(popper).body, pop(popper).body} == {b"1", b"plain"}

    def test_is_handed_out_at_a_time_whoever_pops(self, queue):
        queue.push_many([b"1", b"2"], key="foo")
        with queue.popper() as one, queue.popper(commit="grouped") as other:
            first = pop(one)
            assert patiently(lambda: other.pop(timeout=0)) is None
            first.commit()
            until(lambda: other.pop(timeout=0.2) or one.pop(timeout=0.2))

    def test_is_handed_out_again_once_its_lease_has_ended(self, store, name):
        queue = store.queue(name, lease=timedelta(seconds=1), clock_skew_max=timedelta(0))
        queue.push_many([b"1", b"2"], key="foo")
        with queue.popper() as popper:
            pop(popper)
            again = pop(popper)
            assert (again.body, again.attempt) == (b"1", 2)


class TestAMessageThatComesBack:
    def test_comes_before_later_ones_of_its_key(self, queue):
        queue.push_many([b"1", b"2"], key="foo")
        with queue.popper() as popper:
            pop(popper).rollback(timedelta(seconds=0.3))
            again = pop(popper)
            assert (again.body, again.attempt) == (b"1", 2)
            again.commit()
            assert pop(popper).body == b"2"

    def test_lets_later_ones_go_first_where_keys_are_exclusive_only(self, store, name):
        queue = store.queue(name, keys="exclusive")
        queue.push_many([b"1", b"2"], key="foo")
        with queue.popper() as popper:
            pop(popper).rollback(timedelta(seconds=1))
            later = pop(popper)
            assert later.body == b"2"
            later.commit()
            assert pop(popper).body == b"1"

    def test_frees_its_key_as_a_dead_letter(self, queue):
        queue.push_many([b"1", b"2"], key="foo")
        with queue.popper() as popper:
            pop(popper).reject("no")
            assert pop(popper).body == b"2"


def test_many_consumers_work_on_each_key_one_at_a_time_and_in_order(queue):
    keys = [f"key-{number}" for number in range(7)]
    sent = [(keys[number % 7], number) for number in range(210)]
    for key, number in sent:
        queue.push_soon(b"%d" % number, key=key).result(WAIT_S)
    busy, done, overlaps = set(), defaultdict(list), []
    lock = threading.Lock()

    def consume():
        with queue.popper() as popper:
            while sum(map(len, done.values())) < len(sent):
                delivery = popper.pop(timeout=0.2)
                if not delivery:
                    continue
                with lock:
                    if delivery.key in busy:
                        overlaps.append(delivery.key)
                    busy.add(delivery.key)
                with lock:
                    busy.discard(delivery.key)
                    done[delivery.key].append(int(delivery.body))
                delivery.commit()

    threads = [threading.Thread(target=consume) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not overlaps
    assert done == {key: [number for each, number in sent if each == key] for key in keys}

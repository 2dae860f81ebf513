"""A caller may be torn out of a push or a commit anywhere, as by Ctrl-C; others are none the worse for it."""

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import _GeneratorContextManager
from functools import partial

import pytest
from support.torn import is_ended_before

import cassq
from cassq.catalog.cached_record import CachedRecord


@pytest.fixture
def queue():
    with cassq.connect("memory:") as store:
        yield store.queue("orders")


def pop_all(queue):
    with queue.popper() as popper:
        first = popper.pop_many(1000, timeout=10)
        deliveries = first + popper.pop_many(1000, timeout=0)
        popper.commit_many(deliveries)
    return [delivery.body for delivery in deliveries]


def test_wherever_a_caller_is_torn_out_what_others_push_arrives_once_and_in_order(queue):
    line, others = 0, []
    is_through = False
    while not is_through:
        line += 1
        is_through = is_ended_before(line, partial(queue.push, b"torn %d" % line))
        others.append(b"after %d" % line)
        pushed = queue.push(others[-1], timeout=10)
        assert queue.peek(1000)[-1].message_id == pushed

    assert line > 30
    popped = pop_all(queue)
    assert [body for body in popped if not body.startswith(b"torn")] == others
    torn = [body for body in popped if body.startswith(b"torn")]
    assert len(set(torn)) == len(torn)
    assert torn[-1] == b"torn %d" % line


def test_wherever_a_commit_is_torn_away_the_store_goes_on(queue):
    line = 0
    is_through = False
    with queue.popper() as popper:
        while not is_through:
            line += 1
            queue.push(b"%d" % line, timeout=10)
            delivery = popper.pop(timeout=10)
            assert delivery.body == b"%d" % line
            is_through = is_ended_before(line, delivery.commit)

    assert line > 30
    assert queue.stats().pushed == line


def test_whoever_is_torn_out_of_a_look_at_the_queues_record_leaves_it_readable(queue):
    line, is_through = 0, False
    while not is_through:
        line += 1
        queue.record._read_at = float("-inf")
        is_through = is_ended_before(line, queue.record.check_open)
        assert not queue.record._reading._is_owned()
    assert line > 3
    assert queue.record.read().name == "orders"


def test_whoever_is_torn_out_on_the_way_into_a_look_at_the_queues_record_leaves_it_readable(queue):
    record = queue.record
    record._read_at = float("-inf")
    entering = _GeneratorContextManager.__enter__.__code__

    def tear(frame, event, _arg):
        is_ours = frame.f_code is entering and frame.f_back.f_globals["__name__"] == CachedRecord.__module__
        if is_ours and event == "return":
            raise KeyboardInterrupt
        return tear if is_ours else None

    before = sys.gettrace()
    sys.settrace(tear)
    try:
        record.check_open()
    except KeyboardInterrupt as error:
        torn = error  # which keeps the frames that it left
    else:
        torn = None
    finally:
        sys.settrace(before)

    with ThreadPoolExecutor(1) as other:
        assert other.submit(record._reading.acquire, blocking=False).result(), repr(torn)

"""Settings that are altered while a queue is in use: an operator in one process, workers in another."""

import threading
from collections import Counter
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from queue import SimpleQueue

import pytest
from support.patience import patiently

import cassq

LEASES = [timedelta(seconds=seconds) for seconds in (40, 300, 50)]

PUSHERS = 2
POPPERS = 3


@pytest.fixture(params=["file", pytest.param("cassandra", marks=pytest.mark.service)])
def url(request, tmp_path):
    """The URL of a store that several processes can open."""
    if request.param == "file":
        return f"sqlite:///{tmp_path}/store.db"
    return request.getfixturevalue("cluster_url")


@pytest.fixture
def operator(url):
    with cassq.connect(url) as opened:
        yield opened


@pytest.fixture
def queue(url, name):
    """The queue, as a worker has it."""
    with cassq.connect(url) as opened:
        yield opened.queue(name)


class Load:
    """Threads that push and pop; what they saw."""

    def __init__(self, queue):
        self.queue = queue
        self.leases = SimpleQueue()
        self.pushed = []
        self.came = Counter()
        self.errors = []
        self.is_over = threading.Event()

    def push(self):
        try:
            while not self.is_over.is_set():
                self.pushed.append(self.queue.push(b"message"))
        except Exception as error:
            self.errors.append(error)
            raise

    def pop(self):
        try:
            with self.queue.popper() as popper:
                while (delivery := patiently(partial(popper.pop, timeout=1.0))) or not self.is_over.is_set():
                    if delivery:
                        self.leases.put(delivery.run.lease_s)
                        self.came[delivery.message_id] += 1
                        delivery.commit()
        except Exception as error:
            self.errors.append(error)
            raise

    def until_leased_for(self, lease):
        """Wait for the first message with this lease."""
        while self.leases.get() != lease.total_seconds():
            assert not self.errors


def test_a_lease_is_altered_under_load_and_nobody_has_an_error(operator, queue):
    load = Load(queue)
    pushing = [threading.Thread(target=load.push) for _ in range(PUSHERS)]
    popping = [threading.Thread(target=load.pop) for _ in range(POPPERS)]
    with ExitStack() as ends:
        for thread in (*pushing, *popping):
            thread.start()
            ends.callback(thread.join)
        ends.callback(load.is_over.set)
        for lease in LEASES:
            altered = operator.alter_queue(queue.name, lease=lease, max_attempts=7, pop_width=3)
            assert (altered.lease, altered.max_attempts, altered.pop_width) == (lease, 7, 3)
            load.until_leased_for(lease)

    assert load.errors == []
    assert load.came == Counter(load.pushed)
    assert queue.stats().committed == len(load.pushed)


def test_a_message_gets_the_attempts_that_are_allowed_by_the_time_it_comes_back(operator, queue):
    operator.alter_queue(queue.name, max_attempts=2)
    queue.push(b"again and again")
    attempts = []
    with queue.popper() as popper:
        for allowed in (2, 4, 4, 4):
            operator.alter_queue(queue.name, max_attempts=allowed)
            queue.stats()  # which reads the record
            with popper.pop(timeout=60) as delivery:
                attempts.append(delivery.attempt)
                assert delivery.rollback(timedelta(0))
        while not list(queue.dead):
            assert popper.pop(timeout=0.1) is None

    assert attempts == [1, 2, 3, 4]
    assert [letter.attempts for letter in queue.dead] == [4]


def test_a_worker_hears_of_larger_bodies_though_it_pushes_no_others(operator, queue):
    large = bytes(2 * cassq.QueueSettings().body_bytes_max)
    with pytest.raises(cassq.BodyTooLargeError):
        queue.push(large)
    operator.alter_queue(queue.name, body_bytes_max=len(large))

    while True:
        try:
            queue.push_many([large])
        except cassq.BodyTooLargeError:
            continue
        break

    with queue.popper() as popper, popper.pop(timeout=60) as delivery:
        assert delivery.body == large


def test_an_operator_is_told_what_cannot_be_altered_and_nothing_is(operator, queue):
    before = queue.settings
    with pytest.raises(cassq.InvalidOptionError, match=r"push_grace of queue .* cannot be altered"):
        operator.alter_queue(queue.name, lease=timedelta(minutes=9), push_grace=timedelta(minutes=9))
    with pytest.raises(cassq.QueueNotFoundError):
        operator.alter_queue("another", lease=timedelta(minutes=9))
    queue.stats()
    assert queue.settings == before


def test_a_pusher_at_work_goes_by_other_bounds_of_pipes(operator, queue):
    queue.push(b"opens a pipe")
    operator.alter_queue(queue.name, pipe_messages_max=2)
    queue.stats()  # which reads the record
    queue.push_many([b"x"] * 7)
    assert max(pipe.pushed for pipe in queue.pipes()) == 2

    operator.alter_queue(queue.name, pipe_messages_max=10_000)
    queue.stats()
    queue.push_many([b"x"] * 300)
    assert max(pipe.pushed for pipe in queue.pipes()) >= 300


def test_who_only_stages_hears_of_larger_bodies(operator, queue):
    large = bytes(2 * cassq.QueueSettings().body_bytes_max)
    operator.alter_queue(queue.name, body_bytes_max=len(large))

    while True:
        staged = queue.staging.open("writer", 1, "a task")
        try:
            staged.add(large)
        except cassq.BodyTooLargeError:
            continue
        finally:
            staged.discard()
        break


def test_who_opens_a_queue_again_sees_the_settings_that_stand(url, operator, name):
    with cassq.connect(url) as store:
        store.queue(name)
        operator.alter_queue(name, lease=timedelta(seconds=77))
        assert store.find_queue(name).settings.lease == timedelta(seconds=77)

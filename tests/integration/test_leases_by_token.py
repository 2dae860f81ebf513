"""Leases whose tokens go from one store to another, on every database; a store is what a process has."""

from datetime import timedelta

import pytest
from support.patience import until

import cassq

WAIT_S = 60.0
LEASE = timedelta(seconds=1)


@pytest.fixture
def stores(url):
    """Two stores on one database; in memory it is one."""
    with cassq.connect(url) as first:
        if url.startswith("memory:"):
            yield first, first
        else:
            with cassq.connect(url) as second:
                yield first, second


@pytest.fixture
def queues(stores, name):
    first, second = stores
    made = first.queue(name, lease=timedelta(minutes=5), clock_skew_max=timedelta(milliseconds=100))
    return made, second.find_queue(name)


def token_of(lessor, count):
    (leased,) = lessor.lease(count, WAIT_S)
    return leased.lease.to_text()


def test_one_process_leases_and_another_one_settles(queues):
    here, there = queues
    here.push_many([b"one", b"two", b"three"])
    with here.lessor() as lessor:
        lease = cassq.Lease.parse(token_of(lessor, 3))

        assert there.leases.extend([lease]) == [cassq.Extension.EXTENDED]
        told = there.leases.settle(
            lease,
            rolled_back={lease.first: cassq.Rollback(timedelta(0), "again")},
            rejected={lease.last: "never"},
        )

        assert told is cassq.Settled.COMMITTED
        again = lessor.lease(3, WAIT_S)
        assert [each.body for leased in again for each in leased.messages] == [b"one"]
        assert there.leases.commit([leased.lease for leased in again]) == [cassq.Settled.COMMITTED]
    letters = until(lambda: here.reap() and list(here.dead.peek(10)))
    assert [(each.body, each.reason) for each in letters] == [(b"three", "never")]


def test_a_message_whose_client_is_gone_comes_to_the_next_one(stores, name):
    first, second = stores
    here = first.queue(name, lease=LEASE, clock_skew_max=timedelta(milliseconds=100))
    there = second.find_queue(name)
    here.push(b"one")
    with here.lessor() as lessor, there.lessor() as other:
        gone = cassq.Lease.parse(token_of(lessor, 1))
        (again,) = until(lambda: other.lease(1, 5.0))

        assert [each.attempt for each in again.messages] == [2]
        assert here.leases.commit([gone]) == [cassq.Settled.EXPIRED]
        assert here.leases.commit([again.lease]) == [cassq.Settled.COMMITTED]


def test_a_lease_that_ended_and_that_nobody_took_is_committed_all_the_same(stores, name):
    first, second = stores
    here = first.queue(name, lease=timedelta(milliseconds=200), clock_skew_max=timedelta(milliseconds=100))
    here.push(b"one")
    with here.lessor() as lessor:
        lease = cassq.Lease.parse(token_of(lessor, 1))
    storage = here._context.storage
    ended_ms = until(lambda: storage.load_pipe(lease.pipe)).now_ms + 400
    until(lambda: storage.load_pipe(lease.pipe).now_ms > ended_ms)

    told = second.find_queue(name).leases.commit([lease])

    # A reaper may have returned it meanwhile: then it comes again.
    assert told[0] in {cassq.Settled.COMMITTED, cassq.Settled.EXPIRED}
    assert here.stats().committed == (1 if told == [cassq.Settled.COMMITTED] else 0)


def test_leases_and_poppers_share_a_queue(queues):
    here, there = queues
    here.push_many([b"%d" % number for number in range(40)])
    found = []
    with here.lessor() as lessor, there.popper() as popper:
        while len(found) < 40:
            for leased in lessor.lease(3, 0.2):
                found += [each.body for each in leased.messages]
                assert there.leases.commit([leased.lease]) == [cassq.Settled.COMMITTED]
            for delivery in popper.pop_many(3, timeout=0.2):
                with delivery:
                    found.append(delivery.body)

    assert sorted(found, key=int) == [b"%d" % number for number in range(40)]
    assert here.stats().committed == 40

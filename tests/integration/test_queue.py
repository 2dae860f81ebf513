"""The public interface of a queue, on every store."""

import os
import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from support.patience import patiently

import cassq
from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.storage.sqlite.storage import SqliteStorage


def drain(popper, count, timeout=10.0):
    """Pop `count` messages, whatever it takes."""
    popped = []
    while len(popped) < count:
        more = popper.pop_many(count - len(popped), timeout=timeout)
        assert more, f"only {len(popped)} of {count} messages came"
        popped += more
    return popped


def commit_or_take_again(popper, delivery):
    """Commit a message, popping it again as often as its lease ended before; return what was committed."""
    while True:
        try:
            delivery.commit()
        except cassq.DeliveryExpiredError:
            delivery = popper.pop(timeout=20)
        else:
            return delivery


# -- push ----------------------------------------------------------------------------------------------


def test_a_message_comes_out_as_it_went_in(queue, popper):
    before = datetime.now(UTC) - timedelta(minutes=1)
    message_id = queue.push(b"\x00body\xff", headers={"type": "new", "ä": ""})

    delivery = popper.pop(timeout=10)

    assert delivery.body == b"\x00body\xff"
    assert delivery.headers == {"type": "new", "ä": ""}
    assert delivery.message_id == message_id
    assert delivery.attempt == 1
    assert before < delivery.pushed_at < before + timedelta(minutes=3)


def test_an_empty_body_is_a_message(queue, popper):
    queue.push(b"")

    assert popper.pop(timeout=10).body == b""


def test_one_pusher_and_one_popper_of_width_one_keep_the_order_over_many_pipes(store, name):
    queue = store.queue(name, pipe_messages_max=7, pop_width=1)
    bodies = [str(number).encode() for number in range(100)]
    queue.push_many(bodies[:50])
    with queue.popper() as popper:
        pushing = threading.Thread(target=lambda: [queue.push(body) for body in bodies[50:]])
        pushing.start()
        popped = drain(popper, 100)
        pushing.join()

    assert [delivery.body for delivery in popped] == bodies


def test_many_messages_are_streamed_with_progress_and_ids_in_order(queue, popper):
    told = []
    ids = queue.push_many((b"%d" % number for number in range(2500)), progress=told.append)

    assert told == sorted(told)
    assert told[-1] == len(ids) == 2500
    assert len(set(ids)) == 2500
    by_id = {delivery.message_id: delivery.body for delivery in drain(popper, 2500)}
    assert [by_id[message_id] for message_id in ids] == [b"%d" % number for number in range(2500)]


def test_push_many_takes_headers_with_bodies(queue, popper):
    queue.push_many([b"plain", (b"told", {"a": "b"})])

    assert [delivery.headers for delivery in drain(popper, 2)] == [{}, {"a": "b"}]


def test_push_soon_gives_futures_that_end_with_ids(queue):
    futures = [queue.push_soon(b"%d" % number) for number in range(200)]

    ids = [future.result(timeout=10) for future in futures]

    assert len(set(ids)) == 200
    assert queue.stats().waiting == 200


def test_pushers_in_many_threads_lose_nothing(queue, popper):
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda number: queue.push(b"%d" % number), range(200)))

    assert {delivery.message_id for delivery in drain(popper, 200)} == set(ids)


# -- commit, rollback, extend --------------------------------------------------------------------------


def test_a_committed_message_never_comes_again(queue, popper):
    queue.push(b"once")

    with popper.pop(timeout=10):
        pass

    assert patiently(lambda: popper.pop(timeout=0)) is None
    stats = queue.stats()
    assert (stats.waiting, stats.pending, stats.committed) == (0, 0, 1)


def test_a_block_that_raises_rolls_back(queue, popper):
    queue.push(b"again")

    with pytest.raises(ZeroDivisionError), popper.pop(timeout=10):
        raise ZeroDivisionError

    delivery = popper.pop(timeout=10)
    assert (delivery.body, delivery.attempt) == (b"again", 2)


def test_a_block_that_raises_rests_the_message_as_long_as_the_queue_says_and_keeps_why(store, name):
    queue = store.queue(
        name, max_attempts=2, retry_delay=timedelta(hours=1), retry_delay_max=timedelta(hours=1)
    )
    message_id = queue.push(b"fragile")
    with queue.popper() as popper:
        with pytest.raises(ZeroDivisionError), popper.pop(timeout=60):
            raise ZeroDivisionError("too few")
        assert queue.status(message_id).state is cassq.MessageState.DELAYED
        assert patiently(lambda: popper.pop(timeout=0)) is None
        # What is raised to stop the program says nothing of the message
        store.alter_queue(name, max_attempts=9)
        second = queue.push(b"interrupted")
        with pytest.raises(KeyboardInterrupt), popper.pop(timeout=60):
            raise KeyboardInterrupt
        again = popper.pop(timeout=60)
        assert (again.message_id, again.attempt) == (second, 2)
        again.commit()


def test_a_message_that_is_rejected_is_a_dead_letter_at_once(store, name):
    queue = store.queue(name, max_attempts=5)
    ids = list(queue.push_many([b"good", b"bad", b"good too"]))
    with queue.popper() as popper:
        good, bad, last = drain(popper, 3)
        assert bad.reject("no JSON: \ud800")
        with pytest.raises(cassq.ClosedError, match="rejected before"):
            bad.commit()

        (letter,) = queue.dead
        assert (letter.message_id, letter.body, letter.attempts) == (ids[1], b"bad", 1)
        assert letter.reason == "no JSON: \\ud800"
        stats = queue.stats()
        assert (stats.dead, stats.dead_letters, stats.waiting, stats.pending) == (1, 1, 0, 2)
        assert queue.status(ids[1]).state is cassq.MessageState.DEAD
        popper.commit_many([good, last])
        assert patiently(lambda: popper.pop(timeout=0)) is None
        queue.dead.discard()
        assert queue.stats().dead_letters == 0


@pytest.mark.parametrize("reason", [None, 7, b"no"])
def test_a_reason_that_is_no_text_is_refused_and_the_message_may_still_be_ended(queue, popper, reason):
    queue.push(b"one")
    delivery = popper.pop(timeout=60)
    with pytest.raises(cassq.InvalidOptionError, match="reason="):
        delivery.reject(reason)
    with pytest.raises(cassq.InvalidOptionError, match="reason="):
        delivery.rollback(reason=reason)
    delivery.commit()


def test_a_rollback_with_a_delay_rests_the_message(queue, popper):
    message_id = queue.push(b"later")
    assert popper.pop(timeout=10).rollback(delay=timedelta(seconds=1.5))

    assert queue.status(message_id).state is cassq.MessageState.DELAYED
    assert queue.stats().delayed == 1
    assert patiently(lambda: popper.pop(timeout=0)) is None
    assert popper.pop(timeout=20).attempt == 2


def test_what_is_given_back_counts_as_no_attempt_and_ends_once(queue, popper):
    queue.push(b"one")
    delivery = popper.pop(timeout=10)

    assert delivery.give_back()

    with pytest.raises(cassq.ClosedError, match="given back before"):
        delivery.rollback()
    assert popper.pop(timeout=10).attempt == 1
    assert queue.stats().rolled_back == 0


def test_one_message_of_a_run_rolls_back_alone(queue, popper):
    queue.push_many([b"%d" % number for number in range(5)])
    popped = drain(popper, 5)

    assert popped[2].rollback()
    popper.commit_many([delivery for delivery in popped if delivery is not popped[2]])

    again = popper.pop(timeout=10)
    assert (again.body, again.attempt) == (b"2", 2)
    again.commit()
    assert queue.stats().committed == 5


def test_a_delivery_ends_once(queue, popper):
    queue.push(b"x")
    delivery = popper.pop(timeout=10)
    delivery.commit()

    for end_again in (delivery.commit, delivery.rollback, delivery.extend):
        with pytest.raises(cassq.ClosedError, match="was committed before"):
            end_again()
    with pytest.raises(cassq.ClosedError, match="was committed before"):
        popper.commit_many([delivery])


def test_a_lease_that_ended_is_told_and_the_message_comes_again(store, name):
    queue = store.queue(name, lease=timedelta(milliseconds=300), clock_skew_max=timedelta(0))
    queue.push(b"slow")
    with queue.popper() as popper:
        late = popper.pop(timeout=10)
        again = popper.pop(timeout=20)

        # On a machine that stands still for a moment the next lease ends, too.
        assert again.body == b"slow"
        assert again.attempt > late.attempt
        with pytest.raises(cassq.DeliveryExpiredError, match="is delivered again"):
            late.commit()
        again = commit_or_take_again(popper, again)
    assert queue.stats().rolled_back == again.attempt - 1


def test_a_lease_that_is_extended_outlasts_itself(store, name):
    queue = store.queue(name, lease=timedelta(seconds=2), clock_skew_max=timedelta(0))
    queue.push(b"long work")
    with queue.popper() as popper, queue.popper() as other:
        delivery = popper.pop(timeout=10)
        first_end = delivery.run.ends_at
        while delivery.run.ends_at < first_end + 2.5:
            delivery.extend()
            assert other.pop(timeout=0.3) is None
        delivery.commit()
    assert queue.stats().rolled_back == 0


def test_what_was_popped_but_not_handed_out_goes_back_without_an_attempt(queue):
    queue.push_many([b"%d" % number for number in range(300)])
    with queue.popper() as popper:
        first = drain(popper, 150)
        popper.commit_many(first)

    with queue.popper() as popper:
        rest = drain(popper, 150)

    assert {delivery.attempt for delivery in rest} == {1}
    assert len({delivery.body for delivery in first + rest}) == 300


def test_a_message_that_fails_too_often_is_a_dead_letter_and_can_be_put_back(store, name):
    queue = store.queue(name, max_attempts=2)
    message_id = queue.push(b"poison", headers={"kind": "bad"})
    with queue.popper() as popper:
        popper.pop(timeout=10).rollback()
        popper.pop(timeout=60).rollback(reason="no such address")

        (dead,) = queue.dead
        assert (dead.message_id, dead.body, dead.headers) == (message_id, b"poison", {"kind": "bad"})
        assert dead.attempts == 2
        assert dead.reason == "no such address"
        assert queue.dead.peek(5) == [dead]
        assert queue.status(message_id).state is cassq.MessageState.DEAD
        assert queue.stats().dead == 1

        assert queue.dead.put_back() == 1
        assert list(queue.dead) == []
        again = popper.pop(timeout=10)
        assert (again.body, again.headers, again.attempt) == (b"poison", {"kind": "bad"}, 1)


def test_what_came_back_from_its_last_attempt_is_neither_waiting_nor_purged(store, name):
    queue = store.queue(name, max_attempts=1)
    spent = queue.push(b"poison")
    with queue.popper() as popper:
        popper.pop(timeout=10).rollback(delay=timedelta(milliseconds=1))
    fresh = queue.push(b"fresh")

    stats, pipes = queue.stats(), queue.pipes()
    assert (stats.waiting, stats.delayed, stats.dead, stats.rolled_back) == (1, 0, 1, 1)
    assert sum(pipe.waiting for pipe in pipes) == 1
    assert [message.message_id for message in queue.peek()] == [fresh]
    assert queue.status(spent).state is cassq.MessageState.DEAD

    assert queue.purge() == 1

    stats = queue.stats()
    assert (stats.waiting, stats.purged, stats.dead, stats.oldest_age) == (0, 1, 1, None)
    with queue.popper() as popper:
        assert popper.pop(timeout=0.5) is None
        assert [letter.message_id for letter in queue.dead] == [spent]
    assert queue.stats().dead == 1


def test_who_has_what_is_told_in_the_order_of_the_pipes(store, name):
    queue = store.queue(name, pipe_messages_max=2)
    ids = queue.push_many([b"1", b"2", b"3", b"4"])
    assert queue.runs() == []
    with queue.popper() as popper:
        first, _, third, _ = drain(popper, 4)
        first.commit()
        third.rollback(delay=timedelta(hours=1), reason="no route")
        runs = queue.runs()
        assert sum(run.left for run in runs) == 3
        assert {run.state for run in runs if run.pipe == ids[0].pipe} == {cassq.MessageState.PENDING}
        (delayed,) = (run for run in runs if run.state is cassq.MessageState.DELAYED)
        assert (delayed.pipe, delayed.first, delayed.reason) == (*ids[2], "no route")
        assert delayed.since is None
        assert delayed.due > datetime.now(UTC) + timedelta(minutes=30)
        assert all(f"-{os.getpid()}-" in run.holder for run in runs)
        assert queue.runs(1) == runs[:1]
        for run in runs:
            if run.since:
                assert timedelta(0) < run.due - run.since
    assert f"-{os.getpid()}-" in queue.pipes()[0].pusher
    with pytest.raises(cassq.InvalidOptionError):
        queue.runs(0)


def test_letters_that_do_not_exist_are_told_and_the_others_dealt_with(store, name):
    queue = store.queue(name, max_attempts=1)
    ids = list(queue.push_many([b"1", b"2", b"3"]))
    with queue.popper() as popper:
        for delivery in drain(popper, 3):
            delivery.rollback()
        assert popper.pop(timeout=0.5) is None
    unknown = cassq.MessageId(ids[0].pipe, 77)

    with pytest.raises(cassq.DeadLetterNotFoundError, match=str(unknown)) as putting:
        queue.dead.put_back([unknown, ids[0], ids[0]])
    with pytest.raises(cassq.DeadLetterNotFoundError, match=str(ids[0])) as discarding:
        queue.dead.discard([ids[1], ids[0]])

    assert (putting.value.count, discarding.value.count) == (1, 1)
    assert [letter.message_id for letter in queue.dead] == [ids[2]]
    with queue.popper() as popper:
        assert popper.pop(timeout=10).body == b"1"


def test_dead_letters_can_be_discarded(store, name):
    queue = store.queue(name, max_attempts=1)
    queue.push_many([b"1", b"2"])
    with queue.popper() as popper:
        for delivery in drain(popper, 2):
            delivery.rollback()
        assert popper.pop(timeout=0.5) is None

    assert queue.dead.discard() == 2
    assert list(queue.dead) == []


def test_grouped_commits_arrive_soon_and_all_at_close(queue):
    queue.push_many([b"%d" % number for number in range(500)])
    with queue.popper(commit="grouped") as popper:
        for delivery in drain(popper, 500):
            delivery.commit()

    assert queue.stats().committed == 500


def test_commits_from_many_threads_all_count(queue, popper):
    queue.push_many([b"%d" % number for number in range(200)])
    popped = drain(popper, 200)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda delivery: delivery.commit(), popped))

    stats = queue.stats()
    assert (stats.committed, stats.pending) == (200, 0)


# -- several poppers -----------------------------------------------------------------------------------


def test_poppers_share_one_pipe_and_deliver_each_message_once(queue):
    queue.push_many([b"%d" % number for number in range(400)])
    poppers = [queue.popper() for _ in range(4)]

    def consume(popper):
        popped = []
        while delivery := patiently(lambda: popper.pop(timeout=1.5)):
            popped.append(delivery.body)
            delivery.commit()
        return popped

    with ThreadPoolExecutor(4) as pool:
        shares = list(pool.map(consume, poppers))
    for popper in poppers:
        popper.close()

    assert sorted(body for share in shares for body in share) == sorted(b"%d" % n for n in range(400))


def test_a_crowd_of_poppers_delivers_each_message_once_while_some_of_them_close(queue):
    poppers = [queue.popper() for _ in range(12)]
    queue.push_many([b"%d" % number for number in range(600)])

    def consume(place):
        popped, popper = [], poppers[place]
        with popper:
            while delivery := patiently(lambda: popper.pop(timeout=2)):
                popped.append(delivery.body)
                delivery.commit()
                if place % 3 and len(popped) > 5:
                    break  # it closes while those that share with it go on
        with pytest.raises(cassq.ClosedError, match="popper is closed"):
            popper.pop(timeout=0)
        return popped

    with ThreadPoolExecutor(len(poppers)) as pool:
        shares = list(pool.map(consume, range(len(poppers))))

    assert len({popper.name for popper in poppers}) == 1
    assert sorted(body for share in shares for body in share) == sorted(b"%d" % n for n in range(600))
    assert (queue.stats().committed, queue.stats().pending) == (600, 0)


def test_a_popper_that_shares_with_others_writes_its_grouped_commits_before_it_is_closed(queue):
    first, sharing = (queue.popper(commit="grouped") for _ in range(2))
    queue.push_many([b"%d" % number for number in range(100)])
    for delivery in drain(sharing, 100):
        delivery.commit()
    sharing.close()
    assert queue.stats().committed == 100
    queue.push(b"for those that stay")
    assert first.pop(timeout=10).body == b"for those that stay"


def test_poppers_join_and_leave_while_others_do(queue):
    queue.push_many([b"%d" % number for number in range(400)])

    def come_and_go(_):
        popped = []
        for _ in range(10):
            with queue.popper() as popper:
                deliveries = patiently(partial(popper.pop_many, 4, timeout=1))
                popper.commit_many(deliveries)
            if not deliveries:
                break
            popped += [delivery.body for delivery in deliveries]
        return popped

    with ThreadPoolExecutor(12) as pool:
        shares = list(pool.map(come_and_go, range(12)))
    with queue.popper() as popper:
        while delivery := patiently(lambda: popper.pop(timeout=1)):
            delivery.commit()
            shares.append([delivery.body])

    assert sorted(body for share in shares for body in share) == sorted(b"%d" % n for n in range(400))


def test_an_idle_popper_is_woken_by_a_push(queue, popper):
    got = []
    waiting = threading.Thread(target=lambda: got.append(popper.pop(timeout=30)))
    waiting.start()
    queue.push(b"wake up")
    waiting.join(timeout=30)

    assert got[0].body == b"wake up"


def test_iteration_ends_when_the_popper_is_closed(queue):
    popper = queue.popper()
    queue.push(b"last")
    bodies = []

    for delivery in popper:
        with delivery:
            bodies.append(delivery.body)
        popper.close()

    assert bodies == [b"last"]
    with pytest.raises(cassq.ClosedError, match="popper is closed"):
        popper.pop(timeout=0)


# -- steering and looking ------------------------------------------------------------------------------


def test_a_paused_queue_delivers_nothing_until_it_is_resumed(queue):
    queue.push(b"x")
    queue.pause()
    with queue.popper() as popper:
        assert patiently(lambda: popper.pop(timeout=0)) is None
        assert queue.stats().state == "paused"

        queue.resume()
        assert popper.pop(timeout=10).body == b"x"


def test_peek_ends_before_it_shows_more_bytes_than_it_may(queue):
    for size in (10, 5, 6, 1):
        queue.push(b"x" * size)

    def sizes(bytes_max):
        return [len(each.body) for each in queue.peek(10, bytes_max=bytes_max)]

    assert [sizes(most) for most in (1, 14, 15, 21, 100)] == [[10], [10], [10, 5], [10, 5, 6], [10, 5, 6, 1]]


def test_peek_shows_what_would_come_and_takes_nothing(queue, popper):
    ids = queue.push_many([b"1", (b"2", {"h": "v"}), b"3"])

    peeked = queue.peek(2)

    assert [(m.message_id, m.body, m.headers) for m in peeked] == [
        (ids[0], b"1", {}),
        (ids[1], b"2", {"h": "v"}),
    ]
    assert [delivery.body for delivery in drain(popper, 3)] == [b"1", b"2", b"3"]
    assert queue.peek() == []


def test_purge_ends_what_is_in_nobodys_hands(queue, popper):
    queue.push_many([b"%d" % number for number in range(10)])
    held = popper.pop(timeout=10)
    popper.pop(timeout=10).rollback(delay=timedelta(hours=1))
    popper.close()  # what it had taken ahead goes back

    assert queue.purge() == 9

    held.commit()
    stats = queue.stats()
    assert (stats.waiting, stats.pending, stats.delayed, stats.committed, stats.purged) == (0, 0, 0, 1, 9)


def test_a_message_that_waits_or_rests_is_cancelled(store, name):
    queue = store.queue(name, retry_delay=timedelta(hours=1), retry_delay_max=timedelta(hours=1))
    resting, waiting, other = queue.push_many([b"rests", b"waits", b"comes"])
    with queue.popper() as popper:
        popper.pop(timeout=60).rollback(reason="no")
    assert queue.cancel(resting)
    assert queue.cancel(str(waiting))

    assert [message.message_id for message in queue.peek()] == [other]
    stats = queue.stats()
    assert (stats.waiting, stats.delayed, stats.purged) == (1, 0, 2)
    assert queue.status(waiting).state is cassq.MessageState.PURGED
    with queue.popper() as popper:
        assert drain(popper, 1)[0].message_id == other
        assert patiently(lambda: popper.pop(timeout=0)) is None


def test_a_message_that_a_consumer_has_is_cancelled_only_by_who_means_it(queue, popper):
    held, waiting = queue.push(b"held"), queue.push(b"waits")
    delivery = popper.pop(timeout=60)
    assert delivery.message_id == held

    assert not queue.cancel(held)
    assert queue.cancel(held, running=True)

    # Its consumer is told nothing, and it does not come again
    assert delivery.rollback(delay=timedelta(0))
    second = popper.pop(timeout=60)
    assert second.message_id == waiting
    second.commit()
    assert popper.pop(timeout=0.5) is None
    assert not queue.cancel(waiting)
    assert not queue.cancel(cassq.MessageId(uuid.uuid1(), 1))
    assert queue.stats().committed == 1


def test_all_messages_of_a_queue_are_cancelled_one_by_one_and_the_next_ones_come(queue):
    ids = list(queue.push_many([b"%d" % number for number in range(30)]))
    assert all(queue.cancel(each) for each in ids[:-1])
    queue.push(b"next")

    with queue.popper() as popper:
        assert [each.body for each in drain(popper, 2)] == [b"29", b"next"]
    assert queue.stats().purged == 29


def test_the_status_of_a_message_tells_who_has_it_and_why_it_came_back(store, name):
    queue = store.queue(name, max_attempts=2)
    message_id = queue.push(b"x")
    assert queue.status(message_id) == cassq.MessageStatus(cassq.MessageState.WAITING, 0)
    with queue.popper() as popper:
        delivery = popper.pop(timeout=60)
        held = queue.status(message_id)
        assert (held.state, held.attempt, held.reason) == (cassq.MessageState.PENDING, 1, "")
        assert held.holder
        assert held.due > delivery.pushed_at
        delivery.rollback(timedelta(hours=1), reason="db down")
        resting = queue.status(message_id)
        assert (resting.state, resting.attempt, resting.reason, resting.holder) == (
            *(cassq.MessageState.DELAYED, 1, "db down", ""),
        )
        assert resting.due > held.due
        second = queue.push(b"y")
        popper.pop(timeout=60).reject("bad")
        assert queue.status(second) == cassq.MessageStatus(cassq.MessageState.DEAD, 1, None, "bad")


def test_the_status_of_a_message_follows_its_life(queue, popper):
    message_id = queue.push(b"x")
    assert queue.status(message_id).state is cassq.MessageState.WAITING
    delivery = popper.pop(timeout=10)
    assert queue.status(str(message_id)).state is cassq.MessageState.PENDING
    delivery.commit()
    assert queue.status(message_id).state in {cassq.MessageState.COMMITTED, cassq.MessageState.ENDED}
    assert queue.status(message_id._replace(seq=99)).state is cassq.MessageState.UNKNOWN
    assert queue.status(cassq.MessageId(uuid.uuid1(), 1)).state is cassq.MessageState.ENDED


def test_the_figures_of_each_pipe_add_up_to_those_of_the_queue(store, name):
    queue = store.queue(name, pipe_messages_max=10)
    queue.push_many([b"%d" % number for number in range(25)])
    with queue.popper() as popper:
        popper.commit_many(drain(popper, 5))
        pipes = queue.pipes()
        stats = queue.stats()

    assert sum(pipe.pushed for pipe in pipes) == stats.pushed == 25
    assert sum(pipe.committed for pipe in pipes) == stats.committed == 5
    assert sum(pipe.waiting for pipe in pipes) == stats.waiting
    assert {pipe.phase for pipe in pipes} <= {"PA", "PF", "E"}
    assert any(pipe.phase == "PF" for pipe in pipes)


def test_the_age_of_the_oldest_message_is_that_of_the_first_left(queue, popper):
    assert queue.stats().oldest_age is None
    queue.push(b"first")

    assert timedelta(0) <= queue.stats().oldest_age < timedelta(minutes=1)
    popper.pop(timeout=10).commit()
    assert queue.stats().oldest_age is None


def test_retired_pipes_leave_the_list_and_stay_in_the_totals(store, name):
    queue = store.queue(name, pipe_messages_max=10)
    queue.push_many([b"%d" % number for number in range(100)])
    with queue.popper() as popper:
        popper.commit_many(drain(popper, 100))
    queue.close()
    queue = store.queue(name)

    store.reap()

    stats = queue.stats()
    assert stats.pipes == 0
    assert (stats.pushed, stats.popped, stats.committed, stats.waiting) == (100, 100, 100, 0)
    assert queue.pipes() == []


def test_a_queue_is_opened_twice_with_the_same_settings(store, name):
    created = store.queue(name, lease=timedelta(seconds=7))

    assert store.queue(name) is created
    assert store.queue(name, lease=timedelta(seconds=7)) is created
    with pytest.raises(cassq.InvalidOptionError, match="has lease=7s, not 8s"):
        store.queue(name, lease=timedelta(seconds=8))
    assert name in store.queues()


def test_a_deleted_queue_is_gone_and_may_be_created_anew(store, name):
    queue = store.queue(name, max_attempts=3)
    queue.push(b"goes with it")
    popper = queue.popper()

    store.delete_queue(name)

    assert name not in store.queues()
    for use in (lambda: queue.push(b"x"), lambda: popper.pop(timeout=0), queue.stats):
        with pytest.raises((cassq.ClosedError, cassq.QueueNotFoundError)):
            use()
    with pytest.raises(cassq.QueueNotFoundError, match=name):
        store.delete_queue(name)
    assert store.queue(name, max_attempts=4).stats().waiting == 0


def test_other_openings_of_a_deleted_queue_hear_of_it(tmp_path, name):
    with cassq.connect(f"sqlite:///{tmp_path}/one.db") as mine, cassq.connect(mine.url) as theirs:
        queue = theirs.queue(name)
        queue.push(b"x")
        popper = queue.popper()
        mine.delete_queue(name)

        with pytest.raises(cassq.QueueNotFoundError, match="was deleted"):
            popper.pop(timeout=None)
        with pytest.raises(cassq.QueueNotFoundError, match="was deleted"):
            queue.push(b"y")


LEFT_OPEN = """
import sys
import cassq

store = cassq.connect(sys.argv[1])
queue = store.queue("left-open", pipe_messages_max=500)
popper = queue.popper()
for _ in range(5000):
    queue.push_soon(b"x")
popper.pop(timeout=30)
"""


def test_a_program_that_ends_without_closing_its_store_stores_what_it_pushed(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"

    done = subprocess.run(
        [sys.executable, "-c", LEFT_OPEN, url], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    with cassq.connect(url) as store:
        stats = store.queue("left-open").stats()
        assert (stats.pushed, stats.waiting + stats.pending) == (5000, 5000)
        assert {pipe.phase for pipe in store.queue("left-open").pipes()} == {"PF"}, "every pipe is sealed"


def test_what_came_back_from_its_last_attempt_is_a_dead_letter_whatever_its_delay(store, name):
    queue = store.queue(name, max_attempts=1)
    queue.push(b"poison")
    with queue.popper() as popper:
        popper.pop(timeout=60).rollback(timedelta(hours=1))
        while not list(queue.dead):
            assert popper.pop(timeout=0.1) is None

    assert [letter.body for letter in queue.dead] == [b"poison"]


@pytest.mark.parametrize(
    ("service", "call", "error", "words"),
    [
        (
            LocalCoordinator,
            "claim",
            cassq.CoordinationUnavailableError,
            "the coordination of this process does",
        ),
        (SqliteStorage, "load_pipe", cassq.StorageUnavailableError, "the database does not answer"),
    ],
)
def test_a_pop_whose_look_does_not_end_names_the_service_that_is_silent(
    monkeypatch, service, call, error, words
):
    may_answer, answer = threading.Event(), getattr(service, call)

    def wait_and_answer(*values, **named):
        may_answer.wait()
        return answer(*values, **named)

    may_answer.set()
    monkeypatch.setattr(service, call, wait_and_answer)
    with cassq.connect("memory:") as store:
        queue = store.queue("orders")
        queue.push(b"one")
        may_answer.clear()
        try:
            with pytest.raises(error, match=words):
                queue.popper().pop(timeout=0)
        finally:
            may_answer.set()


def test_what_is_ended_together_may_be_any_iterable(store, name):
    queue = store.queue(name, retry_delay=timedelta(0))
    queue.push_many([b"x"] * 6)
    with queue.popper() as popper:
        deliveries = []
        while len(deliveries) < 6:
            deliveries += popper.pop_many(6, timeout=60)
        popper.commit_many(each for each in deliveries[:2])
        popper.commit_many({deliveries[2]})
        assert popper.rollback_many(iter(deliveries[3:5])) == 2
        assert popper.reject_many((each for each in deliveries[5:]), "no customer") == 1
    stats = queue.stats()
    assert (stats.committed, stats.dead, stats.waiting) == (3, 1, 2)


def test_headers_that_a_consumer_changes_are_its_own(store, name):
    queue = store.queue(name)
    queue.push(b"1")
    queue.push(b"2")
    with queue.popper() as popper:
        with popper.pop(timeout=60) as first:
            first.headers["changed"] = "here"
        with popper.pop(timeout=60) as second:
            assert second.headers == {}

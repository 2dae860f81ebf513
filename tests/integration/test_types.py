"""Consumers that ask for messages of some types, on every store."""

import asyncio
import threading
from contextlib import ExitStack, nullcontext
from datetime import timedelta

import pytest
from support.patience import patiently, until

import cassq
import cassq.aio
from cassq.catalog.cached_record import CachedRecord
from cassq.model.uses import ANY_TYPE, TYPES_MAX, types_of, uses_types
from cassq.popping import buffered_leases, delivery_buffer, fetch_thread

KINDS = ("invoice", "refund", None)


@pytest.fixture
def queue(store, name):
    return store.queue(name)


def bodies(popper, count):
    found = []
    while len(found) < count:
        with popper.pop(timeout=60) as delivery:
            found.append(delivery.body)
    return found


def test_who_asks_for_types_gets_those_and_nothing_else_in_the_order_of_their_pushes(queue):
    for number in range(3):
        for kind in KINDS:
            queue.push(f"{kind} {number}".encode(), type=kind)
    with queue.popper(types=["refund"]) as popper:
        assert bodies(popper, 3) == [f"refund {number}".encode() for number in range(3)]
        assert patiently(lambda: popper.pop(timeout=0)) is None
    with queue.popper() as popper:
        assert sorted(bodies(popper, 6)) == sorted(
            f"{kind} {number}".encode() for kind in ("invoice", None) for number in range(3)
        )


def test_a_message_tells_its_type_wherever_it_is_shown(queue):
    queue.push(b"x", type="refund", priority=3)
    assert [(each.type, each.priority) for each in queue.peek()] == [("refund", 3)]
    (pipe,) = queue.pipes()
    assert (pipe.type, pipe.priority) == ("refund", 3)
    with queue.popper(types=["refund"]) as popper:
        first = popper.pop(timeout=60)
        assert (first.type, first.priority) == ("refund", 3)
        first.rollback(timedelta(0))
        again = popper.pop(timeout=60)
        assert (again.type, again.attempt) == ("refund", 2)
        again.reject("no such order")
    assert [(each.type, each.priority) for each in queue.dead] == [("refund", 3)]


def test_what_is_put_back_has_what_it_had(store, queue):
    other = store.queue(f"{queue.name}-other")
    queue.push_many([b"1", b"2"], type="refund", priority=3)
    with queue.popper(types=["refund"]) as popper:
        for _ in range(2):
            popper.pop(timeout=60).reject("planted")
        first, second = (letter.message_id for letter in queue.dead)
        assert queue.dead.put_back(first) == 1
        assert queue.dead.redrive(other).count == 1
        back = popper.pop(timeout=60)
        assert (back.body, back.type, back.priority) == (b"1", "refund", 3)
        back.commit()
    with other.popper(types=["refund"]) as popper:
        assert bodies(popper, 1) == [b"2"]
    assert second != first


def test_what_came_back_from_its_last_attempt_keeps_its_type(store, name):
    queue = store.queue(name, max_attempts=1)
    queue.push(b"x", type="refund")
    with queue.popper() as popper:
        popper.pop(timeout=60).rollback()
        until(lambda: [letter.type for letter in queue.dead] == ["refund"])


def test_a_bulk_write_may_have_a_type_and_a_priority(queue):
    staged = queue.staging.open("loader", 1, "a task", type="refund", priority=4)
    staged.add(b"x")
    assert types_of(queue.settings) == ["refund"]
    assert queue.staging.publish("loader", 1, staged.close())
    with queue.popper(types=["refund"]) as popper:
        delivery = popper.pop(timeout=60)
        assert (delivery.body, delivery.type, delivery.priority) == (b"x", "refund", 4)
        delivery.commit()


def test_figures_are_told_by_type(queue):
    queue.push_many([b"x"] * 3, type="refund")
    queue.push(b"x", type="invoice")
    queue.push(b"x", type="invoice", priority=1)
    queue.push(b"x")
    stats = queue.stats()
    assert [(each.type, each.waiting) for each in stats.types] == [(None, 1), ("invoice", 2), ("refund", 3)]
    assert [(each.priority, each.waiting) for each in stats.priorities] == [(1, 1), (0, 5)]
    assert stats.oldest_age == max(each.oldest_age for each in stats.types)


def looks_only_when_woken(monkeypatch):
    """Let who is hungry look again only when it is woken."""
    for module in (buffered_leases, fetch_thread):
        monkeypatch.setattr(module, "POLL_S", 3600.0)
    monkeypatch.setattr(fetch_thread, "POLL_MAX_S", 3600.0)
    monkeypatch.setattr(fetch_thread.FetchThread, "_until_look", lambda *_: 3600.0)


def starving(store, queue):
    """Return how many poppers of a queue stand in line."""
    return store.coordinator.hungry(queue.name, types=ANY_TYPE | 1)


def test_a_push_wakes_one_who_takes_its_type_though_others_have_waited_for_longer(
    queue, store, url, monkeypatch
):
    # Given types that were pushed before, and poppers that look when they are woken, and never else
    for kind in ("invoice", "refund", "chargeback"):
        queue.push(b"before", type=kind)
    with queue.popper() as popper:
        bodies(popper, 3)
    looks_only_when_woken(monkeypatch)
    with ExitStack() as stack:
        others = [store if url == "memory:" else stack.enter_context(cassq.connect(url)) for _ in range(3)]
        queues = [other.queue(queue.name) for other in others]
        asked = ["invoice"], ["refund"], ["chargeback", "other"]
        poppers = [
            stack.enter_context(each.popper(types=types)) for each, types in zip(queues, asked, strict=True)
        ]
        waiting = []
        # And who stands in line first takes invoices
        for place, popper in enumerate(poppers):
            waiting.append(popper.pop_soon())
            until(lambda place=place: starving(store, queue) == place + 1)
        # When messages of other types come
        queue.push(b"chargeback", type="chargeback")
        queue.push(b"refund", type="refund")
        # Then those get them who take them
        chargeback, refund = (waiting[place].result(60)[0] for place in (2, 1))
        assert (chargeback.body, refund.body) == (b"chargeback", b"refund")
        assert not waiting[0].done()
        queue.push(b"invoice", type="invoice")
        invoice = waiting[0].result(60)[0]
        assert invoice.body == b"invoice"
        for delivery in (chargeback, refund, invoice):
            delivery.commit()


def test_a_message_without_a_type_wakes_who_takes_all(queue, store, url, monkeypatch):
    looks_only_when_woken(monkeypatch)
    with (
        nullcontext(store) if url == "memory:" else cassq.connect(url) as other,
        other.queue(queue.name).popper(types=["invoice"]) as billing,
        queue.popper() as all_of_them,
    ):
        first = billing.pop_soon()
        until(lambda: starving(store, queue) == 1)
        second = all_of_them.pop_soon()
        until(lambda: starving(store, queue) == 2)
        queue.push(b"plain")
        (delivery,) = second.result(60)
        assert (delivery.body, delivery.type) == (b"plain", None)
        delivery.commit()
        assert not first.done()
        first.cancel()


def test_who_has_a_pipe_leaves_it_to_one_who_waits_for_its_type(queue, store, url, monkeypatch):
    # Given poppers that do not give up what they have, however long nobody comes
    for module in (delivery_buffer, buffered_leases):
        monkeypatch.setattr(module, "IDLE_S", 3600.0)
    # And one for everything, in the middle of a backlog of one type
    with queue.popper() as greedy:
        queue.push_many([b"refund"] * 3000, type="refund")
        bodies(greedy, 10)
        # When one comes that takes only refunds
        with (
            nullcontext(store) if url == "memory:" else cassq.connect(url) as other,
            other.queue(queue.name).popper(types=["refund"]) as popper,
        ):
            # Then it gets them, though nobody pops from the other one meanwhile
            assert set(bodies(popper, 10)) == {b"refund"}


def test_a_type_has_a_number_of_its_own_whoever_names_it_first(store, name, url):
    # Given several that name types at the same moment
    others = [store] if url == "memory:" else [cassq.connect(url) for _ in range(3)]
    queues = [other.queue(name) for other in others]
    threads = [
        threading.Thread(target=queues[n % len(queues)].push, args=(b"x",), kwargs={"type": f"type-{n}"})
        for n in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    settings = store.find_queue(name).settings if url != "memory:" else queues[0].settings
    assert sorted(types_of(settings)) == sorted(f"type-{n}" for n in range(12))
    numbers = [number for told, number in settings.others.items() if told.startswith("type:")]
    assert sorted(numbers) == list(range(1, 13))
    for other in others[: 0 if url == "memory:" else None]:
        other.close()


def test_a_queue_says_once_that_it_has_types(queue, monkeypatch):
    assert not uses_types(queue.settings)
    queue.push(b"a")
    assert not uses_types(queue.settings)
    queue.push(b"b", type="refund")
    assert types_of(queue.settings) == ["refund"]
    changes = []
    monkeypatch.setattr(CachedRecord, "change", lambda *_: changes.append(1))
    queue.push(b"c", type="refund")
    with queue.popper(types=["refund"]):
        pass
    assert not changes


def test_who_asks_for_a_type_that_nobody_pushed_yet_changes_nothing_and_gets_the_first(queue):
    with queue.popper(types=["refund", *(f"typo-{n}" for n in range(100))]) as popper:
        assert patiently(lambda: popper.pop(timeout=0)) is None
        assert not uses_types(queue.settings)
        queue.push(b"x", type="refund")
        assert bodies(popper, 1) == [b"x"]
        assert types_of(queue.settings) == ["refund"]


def test_letters_of_a_type_too_many_stay_and_the_others_are_pushed_again(store, queue):
    full = store.queue(f"{queue.name}-full")
    for number in range(TYPES_MAX):
        full.push(b"x", type=f"customer-{number}")
    for kind in ("one-more", "customer-1", None):
        queue.push(b"%a" % kind, type=kind)
    with queue.popper() as popper:
        for _ in range(3):
            popper.pop(timeout=60).reject("planted")
    with pytest.raises(cassq.InvalidOptionError, match="'one-more'"):
        queue.dead.redrive(full)
    assert [letter.type for letter in queue.dead] == ["one-more"]
    assert full.stats().pushed == TYPES_MAX + 2


def test_a_queue_has_few_types_and_says_so(queue):
    for number in range(TYPES_MAX):
        queue.push(b"x", type=f"customer-{number}")
    with pytest.raises(cassq.InvalidOptionError, match=f"has {TYPES_MAX} types.*'one-more'.*header"):
        queue.push(b"x", type="one-more")
    assert queue.stats().pushed == TYPES_MAX


@pytest.mark.parametrize("kind", ["", "a b", 7, "ü", "x" * 129, b"invoice"])
def test_a_type_that_is_no_name_is_refused_and_nothing_is_pushed(queue, kind):
    for push in (queue.push, queue.push_soon):
        with pytest.raises(cassq.InvalidNameError, match="type of messages"):
            push(b"x", type=kind)
    with pytest.raises(cassq.InvalidNameError, match="type of messages"):
        queue.push_many([b"x"], type=kind)
    with pytest.raises(cassq.InvalidNameError, match="type of messages"):
        queue.popper(types=[kind])
    assert queue.stats().pushed == 0


@pytest.mark.parametrize("types", ["invoice", b"invoice", [], 7])
def test_types_that_are_not_several_names_are_refused(queue, types):
    with pytest.raises(cassq.InvalidOptionError, match="types="):
        queue.popper(types=types)


def test_tasks_pop_by_type(store, queue):
    async def pop():
        async with cassq.aio.Store(store) as tasks:
            own = await tasks.queue(queue.name)
            await own.push(b"invoice", type="invoice")
            await own.push(b"refund", type="refund")
            async with own.popper(types=["refund"]) as popper, await popper.pop(60) as delivery:
                return delivery.body, delivery.type

    assert asyncio.run(pop()) == (b"refund", "refund")


def test_a_worker_has_a_handler_for_each_type(store, queue):
    worker, heard, done = cassq.Worker(store), {}, threading.Semaphore(0)

    def note(handler, delivery):
        heard.setdefault(handler, set()).add(delivery.type)
        done.release()

    worker.on(queue.name, types=["invoice"])(lambda delivery: note("bill", delivery))
    worker.on(queue.name, types=["refund", "chargeback"])(lambda delivery: note("pay back", delivery))
    for types in (None, ["refund"], ["other", "invoice"]):
        with pytest.raises(cassq.InvalidOptionError, match="has a handler"):
            worker.on(queue.name, types=types)
    running = threading.Thread(target=worker.run)
    running.start()
    for kind in ("invoice", "refund", "chargeback"):
        queue.push(b"x", type=kind)
    for _ in range(3):
        assert done.acquire(timeout=60)
    worker.stop()
    running.join()
    assert heard == {"bill": {"invoice"}, "pay back": {"refund", "chargeback"}}


def test_poppers_of_the_same_types_share_what_takes_for_them(queue):
    with (
        queue.popper(types=["a", "b"]) as first,
        queue.popper(types=["b", "a", "a"]) as second,
        queue.popper(types=["a"]) as third,
        queue.popper() as fourth,
    ):
        assert first.name == second.name
        assert len({first.name, third.name, fourth.name}) == 3

"""What a PrometheusObserver counts, and how many series it makes."""

import threading

import pytest
from prometheus_client import CollectorRegistry

import cassq
from cassq.metrics.labels import QueueLabels
from cassq.metrics.prometheus import PrometheusObserver


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def observer(registry):
    return PrometheusObserver(registry)


def test_a_store_is_counted_call_by_call(registry, observer):
    with cassq.connect("memory:", observer=observer) as store:
        queue = store.queue("q")
        queue.push_many([b"x"] * 3)
        with pytest.raises(cassq.InvalidOptionError):
            queue.push("no bytes")
        with queue.popper() as popper:
            first, second, third = popper.pop_many(3, timeout=60)
            first.commit()
            second.extend()
            second.rollback()
            third.reject("no customer")
        store.reap()

    def value(name, **labels):
        return registry.get_sample_value(name, labels)

    for operation in ("pop", "commit", "rollback", "reject", "extend", "reap"):
        assert value("cassq_operation_seconds_count", operation=operation, queue="q") >= 1
    assert value("cassq_operation_seconds_count", operation="push", queue="q") == 2
    counts = {"push": 3, "pop": 3, "commit": 1, "rollback": 1, "reject": 1}
    for operation, count in counts.items():
        assert value("cassq_operation_messages_total", operation=operation, queue="q") == count
    assert value("cassq_operation_messages_total", operation="extend", queue="q") is None
    assert value("cassq_operation_failures_total", operation="push", code="invalid-option") == 1
    assert value("cassq_delivery_age_seconds_count", queue="q") >= 1
    assert value("cassq_storage_seconds_count", method="append") == store.telemetry.snapshot()["append"].calls


def test_what_was_stored_before_a_failure_is_counted(registry, observer):
    observer.note(cassq.Pushed("q", 1000, 1000, 1.0, "outcome-unknown"))
    observer.note(cassq.Committed("q", 7, 1.0, "outcome-unknown"))
    observer.note(cassq.CommitsFailed("q", 7, "delivery-expired"))
    assert (
        registry.get_sample_value("cassq_operation_messages_total", {"operation": "push", "queue": "q"})
        == 1000
    )
    messages = {"operation": "commit", "queue": "q"}
    assert registry.get_sample_value("cassq_operation_messages_total", messages) == 0
    for code in ("outcome-unknown", "delivery-expired"):
        failures = {"operation": "commit", "code": code}
        assert registry.get_sample_value("cassq_operation_failures_total", failures) == 1


def test_a_database_that_fails_is_counted_by_code(registry, observer):
    observer.note(cassq.StorageCalled("append", 8.0, "storage-unavailable"))
    failures = {"method": "append", "code": "storage-unavailable"}
    assert registry.get_sample_value("cassq_storage_failures_total", failures) == 1
    assert registry.get_sample_value("cassq_storage_seconds_sum", {"method": "append"}) == 8


def test_queues_beyond_the_most_share_a_label(registry, observer):
    for number in range(510):
        observer.note(cassq.Pushed(f"q{number}", 1, 1, 0.1, None))
    queues = {
        sample.labels["queue"]
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "cassq_operation_messages_total"
    }
    assert len(queues) == 501
    others = {"operation": "push", "queue": "other"}
    assert registry.get_sample_value("cassq_operation_messages_total", others) == 10


def test_threads_that_come_at_once_make_no_more_labels():
    labels, together, found = QueueLabels(10), threading.Barrier(8), []

    def ask(number):
        together.wait(60)
        found.extend(labels.label(f"{number}-{each}") for each in range(50))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found) - {"other"}) == 10


def test_unknown_outcomes_are_told_from_the_beginning(registry, observer):
    """An alert sees an increase only of a series that was there before."""
    labels = {"operation": "push", "code": "outcome-unknown"}
    assert registry.get_sample_value("cassq_operation_failures_total", labels) == 0


class Busy:
    busy, late, slots = 3, 1, 16


def test_the_workers_that_it_watches_are_told_together(registry, observer):
    observer.watch(Busy())
    observer.watch(Busy())
    assert registry.get_sample_value("cassq_worker_busy") == 6
    assert registry.get_sample_value("cassq_worker_late") == 2
    assert registry.get_sample_value("cassq_worker_slots") == 32


def test_a_second_one_of_a_registry_is_refused(registry, observer):
    with pytest.raises(cassq.InvalidOptionError, match="give that one to each store"):
        PrometheusObserver(registry)

"""The public queue against a plain list, by whatever sequence of calls can be thought of.

CASSQ_PROPERTY_EXAMPLES sets how many sequences are tried on the embedded store (a service gets an eighth).
The sequences are the same in every run of the same number.
"""

import os
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from queue_flow import Ground
from queue_machine import QueueMachine

import cassq
from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.runtime.clock import SystemClock
from cassq.storage.sqlite.storage import SqliteStorage
from cassq.store import Adapters, Store

EXAMPLES = int(os.environ.get("CASSQ_PROPERTY_EXAMPLES", "100"))


class SkippingClock(SystemClock):
    """The machine's clock, which can be put ahead."""

    def __init__(self):
        self._ahead_s = 0.0

    def now(self) -> float:
        return super().now() + self._ahead_s

    def skip(self, time: timedelta) -> None:
        self._ahead_s += time.total_seconds()


def skipping_ground(*, is_fifo: bool = False) -> Ground:
    clock = SkippingClock()

    def connect() -> Store:
        storage = SqliteStorage(None, clock=clock)
        coordinator = LocalCoordinator(None, clock)

        def close_all():
            coordinator.close()
            storage.close()

        return Store("memory:", Adapters(storage, coordinator, close_all), clock=clock)

    return Ground(connect, clock.skip, is_fifo)


def run(make_ground, examples: int, steps: int = 40) -> None:
    chosen = settings(
        max_examples=max(1, examples),
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    print(f"{chosen.max_examples} sequences of {steps} steps, derandomized")  # noqa: T201 - seen when it fails
    run_state_machine_as_test(lambda: QueueMachine(make_ground()), settings=chosen)


def test_a_queue_in_memory_does_what_a_list_does_while_leases_end_and_time_goes_by():
    run(skipping_ground, EXAMPLES)


def test_one_pusher_and_one_popper_of_width_1_are_first_in_first_out():
    run(lambda: skipping_ground(is_fifo=True), EXAMPLES // 5)


def test_a_queue_in_a_file_does_what_a_list_does(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db?durability=normal"
    run(lambda: Ground(lambda: cassq.connect(url)), EXAMPLES // 6)


@pytest.mark.service
def test_a_queue_in_a_cluster_does_what_a_list_does(cassandra_address, zookeeper_address, cassandra_session):
    keyspace = cassandra_session.keyspace
    url = f"cassandra://{cassandra_address}/{keyspace}?zookeeper={zookeeper_address}"
    run(lambda: Ground(lambda: cassq.connect(url)), EXAMPLES // 8)

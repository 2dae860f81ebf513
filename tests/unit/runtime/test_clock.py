"""What the clock makes of its witnesses: the time of day, and what the database's clock showed."""

import threading

import pytest

from cassq.errors import UsageError
from cassq.runtime.clock import DEAF_S, STEP_S, SystemClock
from cassq.runtime.reentry import check_may_wait


class Machine(SystemClock):
    """A machine whose host may pause it, and whose time of day anybody may set."""

    def __init__(self) -> None:
        self.elapsed = 1000.0
        self.day = 1_700_000_000.0

    def now(self) -> float:
        return self.elapsed

    def _read_day(self) -> float:
        return self.day

    def run(self, seconds: float) -> None:
        self.elapsed += seconds
        self.day += seconds


@pytest.fixture
def machine() -> Machine:
    made = Machine()
    made.latest()
    return made


class Database:
    """A clock that no pause of the machine stops, shown by nodes that do not quite agree."""

    def __init__(self, machine: Machine, margin_s: float = 0.5) -> None:
        self.machine = machine
        self.margin_s = margin_s
        self.seconds = 5_000_000.0

    def run(self, seconds: float) -> None:
        self.seconds += seconds
        self.machine.run(seconds)

    def pause(self, seconds: float) -> None:
        self.seconds += seconds

    def answer(self, skew_s: float = 0.0, there_s: float = 0.0, back_s: float = 0.0) -> None:
        asked_at = self.machine.latest()
        self.run(there_s)
        told = self.seconds + skew_s
        self.run(back_s)
        self.machine.hear(told, asked_at, self.margin_s)


@pytest.fixture
def database(machine: Machine) -> Database:
    return Database(machine)


def test_the_latest_time_is_elapsed_time_while_nobody_tells_otherwise(machine):
    begun = machine.latest()
    for _ in range(1000):
        machine.run(10)
        assert machine.latest() == machine.now()
    assert machine.latest() - begun == 10_000


def test_a_pause_counts_once_the_time_of_day_has_jumped(machine):
    begun = machine.latest()
    machine.day += 30
    machine.run(1)
    assert machine.latest() - begun == pytest.approx(31)
    assert machine.now() - begun == 1


def test_a_time_of_day_that_is_set_back_takes_nothing_back(machine):
    begun = machine.latest()
    machine.day -= 3600
    machine.run(1)
    assert machine.latest() - begun == 1


def test_a_pause_counts_though_the_time_of_day_was_set_back_before(machine):
    machine.day -= 3600
    begun = machine.latest()
    machine.day += 30
    assert machine.latest() - begun == pytest.approx(30)


def test_the_latest_time_never_goes_back_when_a_wrong_step_is_undone(machine):
    machine.day += 3600
    seen = machine.latest()
    machine.day -= 3600
    assert machine.latest() == seen
    machine.run(1)
    assert machine.latest() == seen + 1


def test_steps_that_are_too_small_to_count_add_up_until_they_do(machine):
    begun = machine.latest()
    for _ in range(50):
        machine.day += STEP_S / 5
        machine.latest()
    assert machine.latest() - begun == pytest.approx(10 * STEP_S, abs=STEP_S)


def test_a_thread_that_loses_its_turn_between_two_readings_sees_no_step():
    # Given a machine on which a reading of the time of day may come late
    class Busy(Machine):
        def __init__(self) -> None:
            super().__init__()
            self.is_late = False

        def _read_day(self) -> float:
            if self.is_late:
                self.is_late = False
                self.run(0.5)
            return self.day

    machine = Busy()
    machine.latest()
    begun = machine.now()
    # When it comes late
    machine.is_late = True
    machine.latest()
    # Then that is no step
    assert machine.latest() - begun == 0.5


def test_a_pause_that_only_the_database_saw_counts_in_full(machine, database):
    # Given nodes that differ by the margin, the fast one of which answered first
    database.answer(skew_s=0.5)
    begun = machine.latest()
    # When the machine was paused, and the slow one answers
    database.pause(30)
    database.answer()
    # Then at least that much has passed
    assert machine.latest() - begun >= 30


@pytest.mark.parametrize("first", [0.0, 0.5])
@pytest.mark.parametrize(("there_s", "back_s"), [(0.0, 0.0), (3.0, 0.0), (0.0, 3.0)])
def test_nodes_within_the_margin_and_slow_answers_are_no_pause(machine, database, first, there_s, back_s):
    begun = machine.latest()
    for skew_s in (first, 0.0, 0.5, 0.25, 0.5, 0.0):
        database.answer(skew_s, there_s, back_s)
        database.answer(0.5 - skew_s)
    assert machine.latest() == machine.now()
    assert machine.latest() > begun or not there_s + back_s


def test_a_pause_during_a_question_counts(machine, database):
    database.answer()
    begun = machine.latest()
    asked_at = machine.latest()
    database.pause(30)
    machine.hear(database.seconds, asked_at, database.margin_s)
    assert machine.latest() - begun >= 30


def test_a_pause_that_was_counted_is_not_counted_with_every_answer(machine, database):
    database.answer()
    database.pause(30)
    database.answer()
    seen = machine.latest()
    for _ in range(10):
        database.run(1)
        database.answer()
    assert machine.latest() == seen + 10


def test_a_pause_that_the_time_of_day_told_is_not_counted_again_by_the_database(machine, database):
    database.answer()
    begun = machine.latest()
    database.pause(30)
    machine.day += 30
    database.answer()
    assert machine.latest() - begun == pytest.approx(30)


def test_one_node_whose_clock_is_far_off_is_believed_once_at_most(machine, database):
    database.answer()
    database.answer(skew_s=60)
    seen = machine.latest()
    for _ in range(10):
        database.answer()
        database.answer(skew_s=60)
    assert machine.latest() == seen


def test_a_time_of_day_that_is_set_far_ahead_does_not_hide_a_pause_from_the_database(machine, database):
    database.answer()
    machine.day += 86400
    database.answer()
    begun = machine.latest()
    database.pause(30)
    database.answer()
    assert machine.latest() - begun >= 30


def test_the_machine_s_own_clock_agrees_with_its_time_of_day():
    clock = SystemClock()
    readings = [(clock.now(), clock.latest(), clock.now()) for _ in range(1000)]
    assert all(before <= latest <= after for before, latest, after in readings)


def test_each_pause_counts_whatever_came_between(machine, database):
    database.answer()
    database.pause(60)
    database.answer()
    machine.day += 3600
    database.answer()
    begun = machine.latest()
    database.pause(30)
    database.answer()
    assert machine.latest() - begun >= 30


class Deaf:
    """A condition that is never notified, and notes for how long each wait was."""

    def __init__(self):
        self.waits = []

    def wait(self, seconds):
        self.waits.append(seconds)
        return False


# A signal may have come just before the wait, and a notification just as it ended: either is heard at once.
@pytest.mark.parametrize(
    ("seconds", "waited"), [(0.25, 0.25), (DEAF_S, DEAF_S), (3.25, DEAF_S), (None, DEAF_S)]
)
def test_the_main_thread_returns_to_look_after_a_second_at_most(seconds, waited):
    condition = Deaf()
    SystemClock().wait(condition, seconds)
    assert condition.waits == [waited]


def test_other_threads_wait_at_one_go():
    condition = Deaf()
    thread = threading.Thread(target=SystemClock().wait, args=(condition, 30.0))
    thread.start()
    thread.join()
    assert condition.waits == [30.0]


class Interrupted(Machine):
    """A machine whose signal handler runs while the clock compares, and would wait for another thread."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def now(self) -> float:
        if self._guard._is_owned():
            with pytest.raises(UsageError) as told:
                check_may_wait("a rollback")
            self.told.append(str(told.value))
        return super().now()


# The other thread may be waiting to compare its own answer, and then both wait until the lease is over.
@pytest.mark.parametrize("compare", ["an answer", "a step of the time of day"])
def test_what_interrupts_a_comparison_may_not_wait_for_another_thread(compare):
    machine = Interrupted()
    machine.latest()
    machine.told.clear()
    if compare == "an answer":
        machine.hear(5_000_000.0, machine.latest(), 0.5)
    else:
        machine.day += 30
        machine.latest()
    assert machine.told
    check_may_wait("a rollback")

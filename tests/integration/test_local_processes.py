"""The local coordinator between real processes that are killed, stopped, woken, or find a broken file."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from uuid import uuid1

import pytest

from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.errors import CoordinationUnavailableError
from cassq.runtime.clock import SystemClock

CLAIM_TTL = 1.0
PATIENCE = 30.0
PIPE = uuid1()

POPPER = """
import os, signal, sys, warnings
from uuid import UUID
from cassq.runtime.clock import SystemClock
from cassq.coordination.local.coordinator import LocalCoordinator

path, name, ttl = sys.argv[1:]
clock = SystemClock()
seat = LocalCoordinator(path, clock, claim_ttl=float(ttl))

def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()

for line in sys.stdin:
    verb, *rest = line.split()
    if verb == "claim":
        say("claim", seat.claim("orders", UUID(rest[0]), name))
    elif verb == "held":
        say("held", seat.is_held("orders", UUID(rest[0]), name), seat.may_take())
    elif verb == "announce":
        seat.announce_hunger(
            "orders", name, lambda: say("woken", clock.now()), on_crowded=lambda: say("crowded")
        )
        say("announce")
    elif verb == "wake":
        say("wake", seat.wake("orders", int(rest[0])))
    elif verb == "fork":
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, from Python 3.12 on
        child = os.fork()
        if not child:
            signal.pause()
        say("fork", child)
seat.close()
"""


class Popper:
    """A process with a seat of its own, which does what it is told."""

    def __init__(self, path, name, ttl=CLAIM_TTL):
        command = [sys.executable, "-W", "error", "-c", POPPER, str(path), name, str(ttl)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=Path(__file__).parents[2],
        )
        self._lines = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def tell(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")

    def ask(self, *words):
        self.tell(*words)
        return self.hear(words[0])

    def hear(self, word):
        """Wait for a line that begins with a word, and return the rest of it."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._find(word) is not None, PATIENCE), self._lines
            found = self._find(word)
            self._lines.remove(found)
            return found[1:]

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self._reader.join()
            self.process.stdout.close()
        return code

    def _find(self, word):
        return next((line for line in self._lines if line[0] == word), None)

    def _read(self):
        for line in self.process.stdout:
            with self._changed:
                self._lines.append(line.split())
                self._changed.notify_all()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "orders.db-coordination"


@pytest.fixture
def popper(path):
    started = []

    def start(name, ttl=CLAIM_TTL):
        started.append(Popper(path, name, ttl))
        return started[-1]

    yield start
    for each in started:
        assert each.end() in (0, -signal.SIGKILL)


@pytest.fixture
def seat(path):
    coordinator = LocalCoordinator(str(path), SystemClock(), claim_ttl=CLAIM_TTL)
    yield coordinator
    coordinator.close()


def eventually(condition):
    clock, pause = SystemClock(), threading.Condition()
    end = clock.now() + PATIENCE
    while not condition():
        if clock.now() > end:
            return False
        with pause:
            clock.wait(pause, 0.01)
    return True


def test_a_live_process_keeps_its_claim_for_longer_than_the_ttl(popper, seat):
    a = popper("A")
    assert a.ask("claim", PIPE) == ["True"]
    clock, pause = SystemClock(), threading.Condition()
    end = clock.now() + 2.5 * CLAIM_TTL
    while clock.now() < end:
        assert not seat.claim("orders", PIPE, "B")
        with pause:
            clock.wait(pause, 0.05)
    assert a.ask("held", PIPE) == ["True", "True"]


def test_the_claims_of_a_killed_process_become_free(popper, seat):
    a = popper("A")
    assert a.ask("claim", PIPE) == ["True"]
    a.ask("announce")
    assert not seat.claim("orders", PIPE, "B")
    assert seat.hungry("orders") == 1
    a.process.kill()
    assert eventually(lambda: seat.claim("orders", PIPE, "B"))
    assert eventually(lambda: seat.hungry("orders") == 0)


def test_the_claims_of_a_killed_process_are_free_at_once_however_long_a_seat_stands(popper, seat):
    a = popper("A", ttl=1000.0)
    assert a.ask("claim", PIPE) == ["True"]
    a.ask("announce")
    assert not seat.claim("orders", PIPE, "B")
    a.process.kill()
    a.process.wait()
    assert seat.holders("orders") == {}
    assert seat.hungry("orders") == 0
    assert seat.claim("orders", PIPE, "B")


def test_a_child_that_was_forked_off_does_not_keep_the_claims_of_its_killed_parent(popper, seat):
    a = popper("A", ttl=1000.0)
    assert a.ask("claim", PIPE) == ["True"]
    child = int(a.ask("fork")[0])
    try:
        assert not seat.claim("orders", PIPE, "B")
        a.process.kill()
        a.process.wait()
        # A child closes its copy as the first thing it does, but nobody waits for a child to get so far.
        assert eventually(lambda: seat.claim("orders", PIPE, "B"))
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_store_that_is_closed_leaves_the_claims_of_another_one_of_its_process_alone(path, popper, seat):
    other = LocalCoordinator(str(path), SystemClock(), claim_ttl=1000.0)
    assert seat.claim("orders", PIPE, "A")
    assert other.claim("orders", uuid1(), "A")
    other.close()
    assert popper("B").ask("claim", PIPE) == ["False"]


def test_a_seat_that_takes_the_place_of_a_dead_one_has_nothing_of_it(popper, seat):
    a = popper("A", ttl=1000.0)
    assert a.ask("claim", PIPE) == ["True"]
    a.process.kill()
    a.process.wait()
    b = popper("B", ttl=1000.0)
    assert b.ask("claim", uuid1()) == ["True"]
    assert seat.claim("orders", PIPE, "C")


def test_beats_decide_where_the_lock_file_was_thrown_away(path, popper, seat):
    a = popper("A", ttl=1000.0)
    assert a.ask("claim", PIPE) == ["True"]
    Path(f"{path}-lock").unlink()
    assert not seat.claim("orders", PIPE, "B")
    assert seat.claim("orders", uuid1(), "B")


def test_beats_decide_where_the_system_has_no_such_locks(path, popper, monkeypatch):
    monkeypatch.setattr("cassq.coordination.local.seat_locks._SET", None)
    seat = LocalCoordinator(str(path), SystemClock(), claim_ttl=CLAIM_TTL)
    try:
        a = popper("A")
        assert a.ask("claim", PIPE) == ["True"]
        assert not seat.claim("orders", PIPE, "B")
        a.process.kill()
        assert eventually(lambda: seat.claim("orders", PIPE, "B"))
    finally:
        seat.close()


def test_a_stopped_process_loses_its_claims_and_knows_it_when_it_goes_on(popper, seat):
    a = popper("A")
    assert a.ask("claim", PIPE) == ["True"]
    a.ask("announce")
    a.process.send_signal(signal.SIGSTOP)
    assert eventually(lambda: seat.claim("orders", PIPE, "B"))
    a.tell("held", PIPE)
    a.process.send_signal(signal.SIGCONT)
    assert a.hear("held")[0] == "False"
    # It takes a new seat by itself, and wakes who was announced on the old one.
    a.hear("woken")
    assert a.ask("claim", PIPE) == ["False"]
    assert a.ask("claim", uuid1()) == ["True"]
    assert a.ask("announce") == []
    assert eventually(lambda: seat.hungry("orders") == 1)


def test_wake_ups_cross_processes(popper, seat):
    a = popper("A")
    clock = SystemClock()
    latencies = []
    for _ in range(50):
        a.ask("announce")
        begin = clock.now()
        assert seat.wake("orders", 1) == 1
        latencies.append(float(a.hear("woken")[0]) - begin)
    # For whoever runs this with -s; a figure to compare, not one to hold anybody to.
    sys.stdout.write(f"wake-up: median {sorted(latencies)[25]:.6f} s, worst {max(latencies):.6f} s\n")


def test_poppers_of_other_processes_are_told_that_they_have_company(popper):
    a, b = popper("A"), popper("B")
    a.ask("announce")
    b.ask("announce")
    a.hear("crowded")
    b.hear("crowded")
    assert b.ask("wake", 5) == ["2"]
    a.hear("woken")
    b.hear("woken")


def test_a_file_that_is_not_a_database_is_begun_anew(path, seat):
    path.write_bytes(b"not a database" * 1000)
    assert seat.claim("orders", PIPE, "A")
    assert seat.holders("orders") == {PIPE: "A"}


@pytest.mark.parametrize("damage", ["garbage", "cut short"])
def test_a_file_that_is_damaged_while_it_is_open_is_begun_anew(path, seat, popper, damage):
    a = popper("A")
    assert a.ask("claim", PIPE) == ["True"]
    assert not seat.claim("orders", PIPE, "B")
    for file in (path, Path(f"{path}-wal")):
        with file.open("r+b") as opened:
            if damage == "cut short":
                opened.truncate(0)
            else:
                opened.write(b"garbage!" * (file.stat().st_size // 8))

    def meet():
        with suppress(CoordinationUnavailableError):
            seat.announce_hunger("orders", "B", lambda: None)
            return a.ask("wake", 1) == ["1"]

    assert eventually(meet)


def test_processes_meet_again_after_the_file_was_thrown_away(path, seat, popper):
    a = popper("A")
    assert a.ask("claim", PIPE) == ["True"]
    assert not seat.claim("orders", PIPE, "B")
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    # Nobody knows of anybody in the new file; both turn to it by themselves.
    assert seat.claim("orders", PIPE, "B")
    assert eventually(lambda: a.ask("held", PIPE)[0] == "False")
    assert a.ask("claim", PIPE) == ["False"]
    a.ask("announce")
    assert seat.wake("orders", 1) == 1
    a.hear("woken")


def test_rows_from_before_a_reboot_count_for_nothing(path, seat):
    other = LocalCoordinator(str(path), SystemClock(), claim_ttl=1000.0)
    try:
        other._session._boot = "an earlier boot"
        assert other.claim("orders", PIPE, "A")
        other.announce_hunger("orders", "A", lambda: None)
        assert seat.hungry("orders") == 0
        assert seat.holders("orders") == {}
        assert seat.claim("orders", PIPE, "B")
    finally:
        other.close()

"""`cassq worker`: processes that are started, watched, replaced and stopped."""

import contextlib
import os
import signal
import socket
import textwrap
import time
import urllib.error
import urllib.request
from collections import Counter
from datetime import timedelta

import pytest
from command_line import CommandLine
from support.patience import until

import cassq

WAIT_S = 120.0

#: Writes a line for each message: process, body, attempt.
MODULE = """
    import os, time
    import cassq

    store = cassq.connect(os.environ["CASSQ_URL"])
    worker = cassq.Worker(store, concurrency=2)

    @worker.on("orders")
    def ship(delivery):
        with open("seen", "a") as seen:
            seen.write(f"{os.getpid()} {delivery.body.decode()} {delivery.attempt}\\n")
        while delivery.body == b"stuck":
            time.sleep(0.01)
        time.sleep(0.01)
"""


class Scene:
    """A folder with a module, a store, and workers in the background."""

    def __init__(self, folder):
        self.folder = folder
        self.line = CommandLine(f"sqlite:///{folder}/orders.db")
        (folder / "orders_app.py").write_text(textwrap.dedent(MODULE))
        self.store = cassq.connect(self.line.url)
        self.queue = self.store.queue(
            "orders", lease=timedelta(minutes=5), max_attempts=9, retry_delay=timedelta(0)
        )

    def start(self, *words, target="orders_app:worker", **environment):
        line = CommandLine(self.line.url, {**self.line.env, **environment})
        return line.start("worker", target, *words, cwd=self.folder)

    @contextlib.contextmanager
    def working(self, *words, ends_with=0, **environment):
        with self.start(*words, **environment) as worker:
            try:
                yield worker
            finally:
                worker.terminate()
            _, words = worker.communicate(timeout=WAIT_S)
            assert worker.returncode == ends_with, words.decode()

    def seen(self):
        """Return process, body and attempt of each message that was worked on."""
        try:
            lines = (self.folder / "seen").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [(int(pid), body, int(attempt)) for pid, body, attempt in map(str.split, lines)]

    def push(self, count):
        first = self.queue.stats().pushed
        self.queue.push_many(b"%d" % number for number in range(first, first + count))

    def push_until(self, count):
        """Push on until so many processes have worked; return how many messages there are."""

        def is_enough():
            if self.queue.stats().waiting < 20:
                self.push(20)
            return len({pid for pid, _, _ in self.seen()}) >= count

        until(is_enough)
        return self.queue.stats().pushed

    def check_all_once(self, count):
        """Check that each message was committed, and was delivered once."""
        assert self.queue.stats().committed == count
        assert Counter(body for _, body, _ in self.seen()) == Counter(str(number) for number in range(count))
        assert {attempt for _, _, attempt in self.seen()} == {1}


@pytest.fixture
def scene(tmp_path):
    made = Scene(tmp_path)
    yield made
    made.store.close()


def test_processes_share_the_work_and_a_stop_costs_no_attempt(scene):
    with scene.working("-p", "2"):
        count = scene.push_until(2)
    before = scene.queue.stats()
    assert (before.pending, before.rolled_back) == (0, 0)
    with scene.working():
        until(lambda: scene.queue.stats().committed == count)
    scene.check_all_once(count)


def test_a_reload_replaces_each_process_without_losing_or_repeating_anything(scene):
    with scene.working("-p", "2") as worker:
        scene.push_until(2)
        old = {pid for pid, _, _ in scene.seen()}
        worker.send_signal(signal.SIGHUP)
        count = scene.push_until(4)
        until(lambda: all(not is_alive(pid) for pid in old))
        until(lambda: scene.queue.stats().committed == count)
    scene.check_all_once(count)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_process_that_is_killed_is_started_again(scene):
    scene.store.alter_queue("orders", lease=timedelta(seconds=1))
    scene.push(50)
    with scene.working():
        first = until(scene.seen)[0][0]
        os.kill(first, signal.SIGKILL)
        until(lambda: scene.queue.stats().committed == 50)
    assert {pid for pid, _, _ in scene.seen()} > {first}


def test_processes_are_replaced_after_so_many_messages(scene):
    with scene.working("--messages-max", "50"):
        count = scene.push_until(3)
        until(lambda: scene.queue.stats().committed == count)
    scene.check_all_once(count)


def test_processes_that_hold_too_much_memory_are_replaced(scene):
    with scene.working("--memory-max", "1MiB"):
        count = scene.push_until(2)
        until(lambda: scene.queue.stats().committed == count)
    scene.check_all_once(count)


def test_where_the_one_that_watches_is_killed_the_others_end_and_give_back(scene):
    with scene.start("-p", "2") as worker:
        scene.push_until(2)
        pids = {pid for pid, _, _ in scene.seen()}
        worker.kill()
        until(lambda: all(not is_alive(pid) for pid in pids))
    stats = scene.queue.stats()
    assert (stats.pending, stats.rolled_back) == (0, 0)


def test_a_handler_that_does_not_end_holds_up_no_stop(scene):
    scene.queue.push(b"stuck")
    with scene.working("--drain", "100ms"):
        until(scene.seen)
    with scene.queue.popper() as popper:
        assert popper.pop(timeout=WAIT_S).attempt == 1


def test_a_second_signal_ends_it_at_once_and_the_message_goes_back(scene):
    scene.queue.push(b"stuck")
    with scene.start("--drain", "10m") as worker:
        until(scene.seen)
        worker.terminate()
        time.sleep(1.5)  # what comes again within a second is the same signal
        worker.terminate()
        worker.communicate(timeout=WAIT_S)
    assert worker.returncode == 128 + signal.SIGTERM
    with scene.queue.popper() as popper:
        assert popper.pop(timeout=WAIT_S).attempt == 1


def test_ctrl_c_stops_it_softly(scene):
    scene.push(100)
    with scene.start() as worker:
        until(scene.seen)
        worker.send_signal(signal.SIGINT)
        worker.communicate(timeout=WAIT_S)
    assert worker.returncode == 128 + signal.SIGINT
    stats = scene.queue.stats()
    assert (stats.pending, stats.rolled_back) == (0, 0)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("orders_app", "write MODULE:NAME"),
        ("no_such:worker", "there is no module 'no_such'"),
        ("orders_app:nothing", "has no 'nothing'"),
        ("orders_app:store", "is a Store, no cassq.Worker"),
    ],
)
def test_a_target_that_is_none_is_told_in_one_line(scene, target, words):
    with scene.start(target=target) as worker:
        _, told = worker.communicate(timeout=WAIT_S)
    assert worker.returncode == 64
    assert words in told.decode()
    assert "Traceback" not in told.decode()


def test_a_module_that_fails_is_told_with_its_traceback(scene):
    (scene.folder / "broken_app.py").write_text("import no_such_module_of_the_application\n")
    with scene.start(target="broken_app:worker") as worker:
        _, told = worker.communicate(timeout=WAIT_S)
    assert worker.returncode == 70
    assert "no_such_module_of_the_application" in told.decode()


def test_a_worker_may_be_made_by_a_function(scene):
    (scene.folder / "made_app.py").write_text(
        "import orders_app\n\ndef make():\n    return orders_app.worker\n"
    )
    scene.push(10)
    with scene.start(target="made_app:make") as worker:
        until(lambda: scene.queue.stats().committed == 10)
        worker.terminate()
        worker.communicate(timeout=WAIT_S)
    assert worker.returncode == 0


def test_supervisors_hear_that_it_is_ready_alive_and_stopping(scene, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hearing:
        hearing.bind(str(tmp_path / "notify"))
        hearing.settimeout(WAIT_S)
        with scene.working(NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="500000"):
            heard = [hearing.recv(100) for _ in range(3)]
        assert heard == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
        rest = b""
        while rest != b"STOPPING=1":
            rest = hearing.recv(100)


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def test_health_is_told_by_a_file_and_by_http(scene, tmp_path):
    port, file = free_port(), tmp_path / "alive"

    def status(path="/healthz"):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=WAIT_S) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return None

    with scene.working("--health-port", str(port), "--health-file", str(file)):
        until(lambda: status() == 200)
        until(file.exists)
        assert status("/") == 404
        before = file.stat().st_mtime_ns
        until(lambda: file.stat().st_mtime_ns > before)
    assert status() is None

"""`cassq worker`: processes that are started, watched, replaced and stopped."""

import contextlib
import json
import os
import signal
import socket
import textwrap
import time
import urllib.error
import urllib.request
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from command_line import CommandLine
from support.patience import until

import cassq

WAIT_S = 120.0

#: Writes a line for each message: process, body, attempt. Files in its folder make it slow, broken, or wait.
MODULE = """
    import os, subprocess, time
    import cassq

    while os.path.exists("slow"):
        time.sleep(0.01)
    if os.path.exists("broken"):
        raise RuntimeError("this version is broken")
    if os.path.exists("away"):
        raise cassq.StorageUnavailableError("the store is away")
    store = cassq.connect(os.environ["CASSQ_URL"])
    worker = cassq.Worker(store, concurrency=2)

    @worker.on("orders")
    def ship(delivery):
        with open("seen", "a") as seen:
            seen.write(f"{os.getpid()} {delivery.body.decode()} {delivery.attempt}\\n")
        while delivery.body == b"stuck" or (delivery.body == b"held" and not os.path.exists("go")):
            time.sleep(0.01)
        if delivery.body == b"program":
            subprocess.run(["cat"], check=True)
        if delivery.body == b"failing":
            raise RuntimeError("the handler fails")
        time.sleep(0.01)
"""


class Scene:
    """A folder with a module, a store, and workers in the background."""

    def __init__(self, folder):
        self.folder = folder
        self._told = set()
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
                self.tell_to_stop(worker)
            _, words = worker.communicate(timeout=WAIT_S)
            assert worker.returncode == ends_with, words.decode()

    def tell_to_stop(self, worker):
        """Tell a worker once: told again, it would not wait for its handlers."""
        if worker not in self._told:
            self._told.add(worker)
            worker.terminate()

    def seen(self):
        """Return process, body and attempt of each message that was worked on."""
        try:
            lines = (self.folder / "seen").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [(int(pid), body, int(attempt)) for pid, body, attempt in map(str.split, lines)]

    def put(self, file):
        (self.folder / file).touch()

    def take(self, file):
        (self.folder / file).unlink()

    def children(self, worker):
        """Return the processes of a worker that was started."""
        return set(map(int, Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()))

    def hold(self):
        """Have a handler work until a file is there; return its process."""
        self.queue.push(b"held")
        return until(lambda: [pid for pid, body, _ in self.seen() if body == "held"])[0]

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


def words_of(worker):
    """End what was started; return what it told."""
    worker.terminate()
    _, told = worker.communicate(timeout=WAIT_S)
    return told.decode()


class TestReload:
    def test_of_a_version_that_is_broken_leaves_the_old_one_at_work(self, scene):
        with scene.start("-p", "2") as worker:
            scene.push_until(2)
            old = scene.children(worker)
            for _ in range(2):
                scene.put("broken")
                worker.send_signal(signal.SIGHUP)
                until(lambda: scene.children(worker) > old)
                until(lambda: scene.children(worker) == old)
                scene.take("broken")
            worker.send_signal(signal.SIGHUP)
            until(lambda: len(scene.children(worker) - old) == 2 == len(scene.children(worker)))
            count = scene.queue.stats().pushed
            until(lambda: scene.queue.stats().committed == count)
            told = words_of(worker)
        assert worker.returncode == 0, told
        assert "this version is broken" in told
        assert "the old one goes on" in told
        scene.check_all_once(count)

    def test_many_leave_one_process_for_each_place(self, scene):
        with scene.working() as worker:
            scene.push_until(1)
            old = scene.children(worker)
            scene.put("slow")
            for _ in range(5):
                before = scene.children(worker)
                worker.send_signal(signal.SIGHUP)
                until(lambda before=before: scene.children(worker) - before)
            scene.take("slow")
            until(lambda: len(scene.children(worker)) == 1 and not scene.children(worker) & old)

    def test_lets_handlers_finish_though_a_stop_follows(self, scene):
        with scene.working("--drain", "10m") as worker:
            pid = scene.hold()
            worker.send_signal(signal.SIGHUP)
            until(lambda: scene.children(worker) > {pid})
            until(lambda: (scene.push(1), {pid for pid, _, _ in scene.seen()} > {pid})[1])
            scene.tell_to_stop(worker)
            until(lambda: scene.children(worker) == {pid})
            scene.put("go")
        assert scene.queue.stats().rolled_back == 0
        assert [attempt for _, body, attempt in scene.seen() if body == "held"] == [1]

    def test_that_has_not_come_to_its_end_starts_nothing_after_a_stop(self, scene):
        with scene.working("--drain", "10m") as worker:
            pid = scene.hold()
            scene.put("slow")
            worker.send_signal(signal.SIGHUP)
            until(lambda: scene.children(worker) > {pid})
            scene.tell_to_stop(worker)
            until(lambda: scene.children(worker) == {pid})
            scene.take("slow")
            scene.put("go")
        assert {pid for pid, _, _ in scene.seen()} == {pid}
        assert scene.queue.stats().rolled_back == 0

    def test_before_there_is_anything_to_reload_ends_nothing(self, scene):
        scene.push(1)
        with scene.working() as worker:
            until(lambda: heeds(worker.pid, signal.SIGHUP))
            until(lambda: scene.children(worker) or worker.send_signal(signal.SIGHUP))
            count = scene.push_until(1)
            until(lambda: scene.queue.stats().committed == count)


def heeds(pid, number):
    """Tell whether a process blocks or handles a signal: before it has begun to, nothing can."""
    told = dict(line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return (int(told["SigBlk"], 16) | int(told["SigCgt"], 16)) & 1 << (number - 1)


class TestStop:
    def test_by_two_signals_at_once_costs_no_attempt(self, scene):
        scene.queue.push(b"stuck")
        with scene.start("--drain", "10m") as worker:
            until(scene.seen)
            worker.send_signal(signal.SIGINT)
            worker.send_signal(signal.SIGTERM)
            worker.communicate(timeout=WAIT_S)
        assert worker.returncode in {128 + signal.SIGINT, 128 + signal.SIGTERM}
        with scene.queue.popper() as popper:
            assert popper.pop(timeout=WAIT_S).attempt == 1

    def test_tells_of_a_process_that_did_not_end_well(self, scene):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hearing:
            hearing.bind(str(scene.folder / "notify"))
            hearing.settimeout(WAIT_S)
            with scene.start("--drain", "10m", NOTIFY_SOCKET=str(scene.folder / "notify")) as worker:
                pid = scene.hold()
                worker.terminate()
                while hearing.recv(100) != b"STOPPING=1":
                    pass
                os.kill(pid, signal.SIGKILL)
                _, told = worker.communicate(timeout=WAIT_S)
        assert worker.returncode == 1
        assert f"process {pid} did not stop well (SIGKILL)" in told.decode()

    def test_kills_a_process_that_never_ends(self, scene):
        (scene.folder / "endless_app.py").write_text(
            "import threading\nfrom orders_app import worker\n"
            "threading.Thread(target=threading.Event().wait).start()\n"
        )
        scene.push(10)
        with scene.start("--drain", "100ms", target="endless_app:worker") as worker:
            until(lambda: scene.queue.stats().committed == 10)
            old = scene.children(worker)
            worker.send_signal(signal.SIGHUP)
            until(lambda: scene.children(worker) and not scene.children(worker) & old)
            assert "did not stop well (SIGKILL)" in words_of(worker)


def test_a_health_file_that_cannot_be_written_ends_nothing(scene):
    folder = scene.folder / "health"
    folder.mkdir()
    with scene.start("--health-file", str(folder / "alive")) as worker:
        until((folder / "alive").exists)
        (folder / "alive").unlink()
        folder.rename(scene.folder / "gone")
        count = scene.push_until(1)
        until(lambda: scene.queue.stats().committed == count)
        worker.stderr.readline()
        told = words_of(worker)
    assert worker.returncode == 0, told
    with scene.start("--health-file", str(folder / "alive")) as worker:
        _, told = worker.communicate(timeout=WAIT_S)
    assert worker.returncode == 64
    assert "is no folder to write in" in told.decode()


def test_a_port_that_is_taken_is_told(scene):
    with socket.socket() as listening:
        listening.bind(("", 0))
        listening.listen()
        port = listening.getsockname()[1]
        with scene.start("--health-port", str(port)) as worker:
            _, told = worker.communicate(timeout=WAIT_S)
    assert worker.returncode == 64
    assert f"--health-port {port}" in told.decode()


def test_where_the_store_is_out_of_reach_at_the_start_it_waits(scene):
    scene.put("away")
    with scene.working() as worker:
        seen = set()
        until(lambda: seen.update(scene.children(worker)) or len(seen) > 4)
        scene.take("away")
        count = scene.push_until(1)
        until(lambda: scene.queue.stats().committed == count)


def test_what_handlers_start_has_an_empty_input(scene):
    scene.queue.push(b"program")
    with scene.working():
        until(lambda: scene.queue.stats().committed == 1)


def test_the_errors_of_handlers_are_in_the_log(scene):
    scene.store.alter_queue("orders", max_attempts=1)
    scene.queue.push(b"failing")
    with scene.start() as worker:
        until(lambda: scene.queue.stats().dead == 1)
        assert "the handler fails" in words_of(worker)


def test_the_log_may_be_of_json(scene):
    scene.store.alter_queue("orders", max_attempts=1)
    scene.queue.push(b"failing")
    with scene.start("--log-format", "json") as worker:
        until(lambda: scene.queue.stats().dead == 1)
        told = [json.loads(line) for line in words_of(worker).splitlines() if line.startswith("{")]
    (failure,) = [each for each in told if each["logger"] == "cassq.worker"]
    assert (failure["level"], failure["code"]) == ("WARNING", "RuntimeError")
    assert "the handler fails" in failure["exception"]


def test_a_function_that_needs_arguments_makes_no_worker(scene):
    (scene.folder / "made_app.py").write_text("def make(url):\n    return None\n")
    with scene.start(target="made_app:make") as worker:
        _, told = worker.communicate(timeout=WAIT_S)
    assert worker.returncode == 64
    assert "missing a required argument: 'url'" in told.decode()

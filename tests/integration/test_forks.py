"""Forks of a process that has an embedded store open: what the child is told is stored stays stored.

Each test runs a program of its own, so that no thread of the tests is in it. `fork` below forks, has the
child do something and end, and returns what it told.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from cassq import connect

_HEAD = """
import ctypes, os, signal, sys, threading
if "CASSQ_PLANT" in os.environ:  # a bug that was planted in the test's own process
    import mutants
    mutants.plant(mutants.find(os.environ["CASSQ_PLANT"]))
from concurrent.futures import ThreadPoolExecutor
import cassq
from cassq.runtime import reentry
from cassq.runtime.clock import SystemClock
from cassq.storage.sqlite.file import SqliteFile

URL = sys.argv[1]
MEMORY = "memory:"

def start(child, fork=os.fork):
    told, telling = os.pipe()
    number = fork()
    if number:
        os.close(telling)
        return number, told
    try:
        said = str(child())
    except BaseException as error:
        said = f"{type(error).__name__}: {error}"
    os.write(telling, said.encode()[:4000])
    os._exit(0)

def hear(number, told):
    with open(told) as file:
        said = file.read()
    os.waitpid(number, 0)
    return said

def fork(child, fork=os.fork):
    return hear(*start(child, fork))

def push(count, url=URL):
    with cassq.connect(url) as store:
        return len([store.queue("jobs").push(b"c") for _ in range(count)])

def in_c():
    # Holds the interpreter's lock meanwhile; tells the interpreter nothing.
    return ctypes.PyDLL(None).fork()
"""


def _run(program: str, url: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _HEAD + program, url],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    with connect(url) as store:
        store.queue("jobs")
    return url


def _count(url: str) -> int:
    with connect(url) as store:
        return store.queue("jobs").stats().waiting


def test_what_a_child_pushes_is_there_when_its_parent_has_closed(url):
    program = """
store = cassq.connect(URL)
queue = store.queue("jobs")
queue.push(b"parent")
has_closed, closing = os.pipe()
def child():
    os.close(closing)
    with cassq.connect(URL) as own:
        queue = own.queue("jobs")
        queue.push(b"before")
        os.read(has_closed, 1)
        return len([queue.push(b"after") for _ in range(20)])
started = start(child)
store.close()
os.close(closing)
print(hear(*started))
"""
    assert _run(program, url).split() == ["20"]
    assert _count(url) == 22


def test_the_children_of_a_parent_that_pushes_and_pops_lose_nothing_and_never_hang(url):
    program = """
store = cassq.connect(URL)
queue = store.queue("jobs")
popper = queue.popper()
is_over = threading.Event()
pushed, committed = [0, 0], []
def work(number):
    while not is_over.is_set():
        queue.push(b"p")
        pushed[number] += 1
def consume():
    while not is_over.is_set():
        for delivery in popper.pop_many(10, timeout=0.01):
            delivery.commit()
            committed.append(delivery.message_id)
threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
threads.append(threading.Thread(target=consume))
for thread in threads:
    thread.start()
told = [fork(lambda: push(5)) for _ in range(20)]
is_over.set()
for thread in threads:
    thread.join()
store.close()
print(sum(pushed) - len(committed), *told)
"""
    left, *told = _run(program, url).split()
    assert told == ["5"] * 20
    assert _count(url) == int(left) + 100


def test_the_parent_keeps_its_claims_and_goes_on(url):
    program = """
store = cassq.connect(URL)
queue = store.queue("jobs")
popper = queue.popper()
queue.push(b"first")
held = popper.pop(timeout=30)
told = fork(lambda: push(1))
held.commit()
queue.push(b"third")
for _ in range(2):
    popper.pop(timeout=30).commit()
store.close()
print(told)
"""
    assert _run(program, url).split() == ["1"]
    assert _count(url) == 0


@pytest.mark.parametrize("how", ["in a transaction", "in C"])
def test_a_child_is_refused_a_file_that_was_open_as_it_was_forked_off(url, how):
    program = """
store = cassq.connect(URL)
store.queue("jobs").push(b"parent")
if HOW == "in C":
    told = fork(lambda: push(1), in_c)
else:
    with SqliteFile(URL.removeprefix('sqlite:///'), SystemClock()).writing():
        told = fork(lambda: push(1))
store.close()
print(told)
"""
    told = _run(f"HOW = {how!r}\n{program}", url)
    assert told.startswith("ClosedError")
    assert "connect after the fork alone" in told
    assert _count(url) == 1


def test_a_child_of_a_child_that_was_refused_is_refused_too(url):
    program = """
store = cassq.connect(URL)
with SqliteFile(URL.removeprefix('sqlite:///'), SystemClock()).writing():
    told = fork(lambda: fork(lambda: push(1)))
store.close()
print(told)
"""
    assert _run(program, url).startswith("ClosedError")


def test_a_child_of_a_transaction_uses_other_files(url, tmp_path):
    program = f"""
store = cassq.connect(URL)
OTHER = "sqlite:///{tmp_path / "other.db"}"
def child():
    # The thread that forked is in a transaction here, too.
    return ThreadPoolExecutor().submit(push, 3, OTHER).result()
with SqliteFile(URL.removeprefix('sqlite:///'), SystemClock()).writing():
    told = fork(child)
store.close()
print(told)
"""
    assert _run(program, url).split() == ["3"]


def test_a_fork_in_a_handler_that_interrupts_a_fork_leaves_the_file_usable(url):
    program = """
store = cassq.connect(URL)
queue = store.queue("jobs")
queue.push(b"parent")
told = []
signals = [signal.SIGUSR1]
signal.signal(signal.SIGUSR1, lambda *_: told.append(fork(lambda: push(1))))
os.register_at_fork(before=lambda: signals and signal.raise_signal(signals.pop()))
told.append(fork(lambda: push(1)))
queue.push(b"parent")
store.close()
print(*told)
"""
    assert set(_run(program, url).split()) == {"1"}
    assert _count(url) >= 4


def test_a_store_in_memory_does_not_hinder_a_child(url):
    program = """
store = cassq.connect(MEMORY)
queue = store.queue("jobs")
is_over = threading.Event()
def work():
    while not is_over.is_set():
        queue.push(b"p")
thread = threading.Thread(target=work)
thread.start()
told = [fork(lambda: push(2)) for _ in range(20)]
is_over.set()
thread.join()
store.close()
print(*told)
"""
    assert _run(program, url).split() == ["2"] * 20


def test_marks_of_threads_that_only_the_parent_has_hinder_no_thread_of_the_child(url):
    program = """
def child():
    return sorted(reentry.threads) == [threading.get_ident()]
with reentry.noted():
    reentry.threads.add(12345)
    print(fork(child))
"""
    assert _run(program, url).split() == ["True"]


def test_an_observer_is_told_nothing_by_a_child_that_was_forked_off(url):
    program = """
class Notes:
    def __init__(self):
        self.pids = []
    def note(self, event):
        self.pids.append(os.getpid())
def child():
    try:
        queue.push(b"of no store")
    except cassq.ClosedError:
        pass
    store.close()
    notes.pids.clear()
    own = Notes()
    with cassq.connect(URL, observer=own) as opened:
        opened.queue("jobs").push(b"c")
    return (len(notes.pids), set(own.pids) == {os.getpid()})
notes = Notes()
store = cassq.connect(URL, observer=notes)
queue = store.queue("jobs")
queue.push(b"p")
print(fork(child))
store.close()
print(set(notes.pids) == {os.getpid()})
"""
    assert _run(program, url).splitlines() == ["(0, True)", "True"]
    assert _count(url) == 2

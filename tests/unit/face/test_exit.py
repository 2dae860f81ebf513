"""What a program that ends has pushed and committed, however it ends and whatever it kept in a variable."""

import subprocess
import sys

import pytest

import cassq

PUSH = """
import sys, threading, os, cassq
url = sys.argv[1]
cassq.connect(url).queue("q").push_many([b"first"])
"""

ENDINGS = {
    "no variable": """
push = cassq.connect(url).queue("q").push_soon
for number in range(500):
    push(b"%d" % number)
del push
""",
    "an exception": """
queue = cassq.connect(url).queue("q")
for number in range(500):
    queue.push_soon(b"%d" % number)
raise ValueError("the end")
""",
    "sys.exit": """
def work():
    queue = cassq.connect(url).queue("q")
    for number in range(500):
        queue.push_soon(b"%d" % number)
    sys.exit(3)
work()
""",
    "a thread that outlives the main one": """
queue = cassq.connect(url).queue("q")
main = threading.main_thread()
def work():
    main.join()
    for number in range(500):
        queue.push_soon(b"%d" % number)
threading.Thread(target=work).start()
""",
    "a daemon thread": """
queue = cassq.connect(url).queue("q")
done = threading.Event()
def work():
    for number in range(500):
        queue.push_soon(b"%d" % number)
    done.set()
    threading.Event().wait()
threading.Thread(target=work, daemon=True).start()
done.wait()
""",
    "a forked child that ends first": """
queue = cassq.connect(url).queue("q")
for number in range(500):
    queue.push_soon(b"%d" % number)
child = os.fork()
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
""",
    "a child that connects anew": """
queue = cassq.connect(url).queue("q")
child = os.fork()
if child == 0:
    push = cassq.connect(url).queue("q").push_soon
    for number in range(500):
        push(b"%d" % number)
    del push
    sys.exit(0)
os.waitpid(child, 0)
""",
}


def run(url, script):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script, url],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'q.db'}"


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_was_pushed_soon_is_stored_when_the_program_has_ended(url, ending):
    ended = run(url, PUSH + ENDINGS[ending])

    assert ended.returncode == {"an exception": 1, "sys.exit": 3}.get(ending, 0), ended.stderr
    assert "Warning" not in ended.stderr
    with cassq.connect(url) as store:
        stats = store.queue("q").stats()
        assert (stats.pushed, stats.waiting) == (501, 501)


def test_grouped_commits_are_written_when_only_the_popper_was_kept(url):
    ended = run(
        url,
        PUSH
        + """
popper = cassq.connect(url).queue("q").popper(commit="grouped")
popper.pop(timeout=60).commit()
""",
    )

    assert ended.returncode == 0, ended.stderr
    with cassq.connect(url) as store:
        stats = store.queue("q").stats()
        assert (stats.committed, stats.waiting, stats.pending) == (1, 0, 0)


def test_a_store_that_does_nothing_is_let_go(url):
    ended = run(
        url,
        """
import sys, gc, weakref, cassq
store = cassq.connect(sys.argv[1])
store.queue("q").stats()
gone = weakref.ref(store)
del store
gc.collect()
assert gone() is None
""",
    )

    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_what_the_end_of_a_program_cannot_store_is_told(url):
    ended = run(
        url,
        PUSH
        + """
import logging, warnings
from cassq.errors import OutcomeUnknownError
warnings.simplefilter("always")
logging.basicConfig()
store = cassq.connect(url)
def away(*_): raise OutcomeUnknownError("the disk is away")
for name in ("append", "transact", "load_pipe"):
    setattr(store.storage._storage, name, away)  # below what each queue puts around it
queue = store.queue("q")
for number in range(5):
    queue.push_soon(b"%d" % number, timeout=1)
""",
    )

    assert "queue q: closed with 5 messages that are not known to be stored" in ended.stderr
    assert "ResourceWarning: <Store " in ended.stderr

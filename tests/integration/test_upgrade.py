"""An upgrade under load: the version before goes on working beside this one, and may start anew beside it."""

import os
import subprocess
import sys
import tarfile
from collections import Counter
from io import BytesIO
from pathlib import Path

import pytest
from support.patience import patiently

import cassq
from cassq import installation

ROOT = Path(__file__).parents[2]

#: The last commit with schema version 5.
BEFORE = "bd0e78b80b6e6bd75748875111dc30f6838478b7"

ENOUGH = 40

# Pushes, pops and commits until it is told to stop; each third message is rolled back once.
WORKER = """
import sys, threading
import cassq

assert cassq.__file__.startswith(sys.argv[2]), cassq.__file__
who, over = sys.argv[3], threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
with cassq.connect(sys.argv[1]) as store:
    queue = store.queue("orders")
    number = 0
    with queue.popper() as popper:
        while not over.is_set():
            number += 1
            body = f"{who}-{number}"
            queue.push(body.encode())
            print("pushed", body, flush=True)
            delivery = popper.pop(timeout=5)
            if delivery and number % 3 == 0 and delivery.attempt == 1:
                delivery.rollback()
            elif delivery:
                delivery.commit()
                print("committed", delivery.body.decode(), flush=True)
"""


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """The version before, from the history of the project."""
    archive = subprocess.run(
        ["git", "archive", BEFORE, "cassq", "schema"], cwd=ROOT, capture_output=True, check=False
    )
    if archive.returncode != 0:
        pytest.skip(f"this copy of the source has no history: {archive.stderr.decode()}")
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as packed:
        packed.extractall(folder, filter="data")
    return folder


class Worker:
    """A process that pushes and pops, of one version."""

    def __init__(self, version, url, who):
        self.bodies = {"pushed": [], "committed": []}
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, url, str(version), who],
            env={**os.environ, "PYTHONPATH": str(version)},
            cwd=version,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hear(self, count=1):
        """Read until so many more were committed."""
        until = len(self.bodies["committed"]) + count
        while len(self.bodies["committed"]) < until:
            assert self._note(self._process.stdout.readline()), "it ended"
        return self

    def stop(self):
        """Let it end; read what it still told."""
        self._process.stdin.close()
        while self._note(self._process.stdout.readline()):
            pass
        self._process.stdout.close()
        return self._process.wait()

    def _note(self, line):
        if line:
            what, body = line.split()
            self.bodies[what].append(body)
        return line


@pytest.fixture(params=["file", pytest.param("cassandra", marks=pytest.mark.service)])
def url(request, tmp_path, before):
    """The URL of a store that the version before has made."""
    if request.param == "file":
        return f"sqlite:///{tmp_path}/store.db"
    address, zookeeper = (request.getfixturevalue(f"{name}_address") for name in ("cassandra", "zookeeper"))
    made = f"cassandra://{address}/cassq_upgrade_{os.getpid()}?zookeeper={zookeeper}"
    applying = "import sys; from cassq import installation; installation.apply_schema(sys.argv[1])"
    subprocess.run([sys.executable, "-c", applying, made], cwd=before, check=True)
    return made


def test_the_version_before_works_on_beside_this_one_and_may_start_anew(before, url):
    workers = [Worker(before, url, f"before{number}").hear(ENOUGH) for number in range(2)]
    assert installation.schema_versions(url)[0] == 5

    installation.apply_schema(url)
    workers.append(Worker(ROOT, url, "now").hear(ENOUGH))
    workers.append(Worker(before, url, "restarted").hear(ENOUGH))
    workers[0].hear(ENOUGH)

    assert installation.schema_versions(url)[0] == installation.schema_versions(url)[1] > 5
    assert [worker.stop() for worker in workers] == [0] * len(workers)
    pushed = Counter(body for worker in workers for body in worker.bodies["pushed"])
    committed = Counter(body for worker in workers for body in worker.bodies["committed"])
    with cassq.connect(url) as store, store.queue("orders").popper() as popper:
        left = sum((pushed - committed).values())
        for _ in range(left):
            with popper.pop(timeout=120) as delivery:
                committed[delivery.body.decode()] += 1
        assert patiently(lambda: popper.pop(timeout=0)) is None
    assert committed == pushed
    assert set(pushed.values()) == {1}

"""Every Python example of the pages runs as it stands, as a program of its own."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pages import ROOT, Example, examples
from support.spark_home import make_spark_home

import cassq

_URL = re.compile(r"cassandra://[^\"'\s]+")
_BIN = str(Path(sys.executable).parent)
_EXAMPLES = list(examples())


def run(command: list[str], folder, *, is_activated: bool = True) -> None:
    bare = os.pathsep.join(each for each in os.environ["PATH"].split(os.pathsep) if each != _BIN)
    path = f"{_BIN}{os.pathsep}{bare}" if is_activated else bare
    ended = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, f"\n{command[-1]}\n{ended.stdout}{ended.stderr}"


def run_python(code: str, folder) -> None:
    # -W error: an example that leaves something open is a bad example.
    run([sys.executable, "-W", "error", "-c", code], folder)


def parameters(language: str, mark: str) -> list[object]:
    return [
        pytest.param(each, id=str(each).replace("/", "-"))
        for each in _EXAMPLES
        if (each.language, each.mark) == (language, mark)
    ]


@pytest.mark.parametrize("example", parameters("python", ""))
def test_an_embedded_example_runs(example: Example, tmp_path) -> None:
    assert not _URL.search(example.code), f"{example} needs a cluster: put <!-- test: service --> before it"
    run_python(example.code, tmp_path)


@pytest.mark.parametrize("example", parameters("python", "worker"))
def test_a_worker_that_is_told_to_stop_ends_well_and_counts_no_attempt(example: Example, tmp_path) -> None:
    with cassq.connect(f"sqlite:///{tmp_path}/orders.db") as store:
        orders = store.queue("orders")
        orders.push_many(b"%d" % number for number in range(2000))
        command = [sys.executable, "-u", "-W", "error", "-c", example.code]
        # No buffer: communicate() does not see what readline() read too much.
        with subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        ) as worker:
            first = worker.stdout.readline()
            worker.send_signal(signal.SIGTERM)
            rest, words = worker.communicate(timeout=600)
        stats = orders.stats()

    assert (worker.returncode, words) == (0, b"")
    assert (stats.rolled_back, stats.pending) == (0, 0)
    assert stats.committed == len((first + rest).splitlines())
    assert stats.committed + stats.waiting == 2000


@pytest.mark.service
@pytest.mark.parametrize("example", parameters("python", "service"))
def test_an_example_on_a_cluster_runs(example: Example, tmp_path, cluster_url) -> None:
    code, count = _URL.subn(cluster_url, example.code)
    assert count, f"{example} is marked as one for a cluster and connects to none"
    run_python(code, tmp_path)


@pytest.mark.parametrize("example", parameters("console", "shell"))
def test_an_example_on_the_command_line_runs(example: Example, tmp_path) -> None:
    lines = [line.removeprefix("$ ") for line in example.code.splitlines() if line.startswith("$ ")]
    run(["sh", "-e", "-c", "\n".join(lines)], tmp_path)


_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}:\d+")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.+]+")


def shown(output: str) -> list[str]:
    """Return what a command prints as lines that are the same in every run."""
    lines = _TIME.sub("TIME", _ID.sub("ID", output)).splitlines()
    return [" ".join(line.split()) for line in lines]


def test_the_tutorial_prints_what_it_shows(tmp_path) -> None:
    exports = []
    for step in (each for each in _EXAMPLES if each.mark == "step"):
        if step.language == "python":
            (tmp_path / step.code.partition("\n")[0].removeprefix("# ")).write_text(step.code)
            continue
        for block in re.split(r"^\$ ", step.code, flags=re.MULTILINE)[1:]:
            command, _, wanted = block.partition("\n")
            if command.startswith("export "):
                exports.append(command)
            lines = shown(wanted.partition("…\n")[0])
            status, printed = _run_step(exports, command, len(lines), tmp_path)
            found = [line for line in shown(printed) if line != "Killed"]  # the shell's own word
            is_cut = "…\n" in wanted
            assert status == 0, f"{step}: {command}\n{printed}"
            # A worker that is slow to start may find other messages first.
            ordered = list if is_cut else sorted
            found = found[: len(lines)] if is_cut else found
            assert ordered(found) == ordered(lines), f"{step}: {command}"


_STOPPED = re.compile(r"timeout --preserve-status \d+ ")


def _run_step(exports: list[str], command: str, lines: int, folder: Path) -> tuple[int, str]:
    """Run a command; one that the page stops after seconds, until it has told so many lines."""
    is_stopped = _STOPPED.match(command)
    command = _STOPPED.sub("exec ", command)
    with subprocess.Popen(
        ["sh", "-e", "-c", "\n".join([*exports, command])],
        cwd=folder,
        env=os.environ | {"PATH": f"{_BIN}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        hanging = threading.Timer(600, running.kill)
        hanging.start()
        printed = ""
        if is_stopped:
            printed = "".join(running.stdout.readline() for _ in range(lines))
            running.terminate()
        printed += running.stdout.read()
        hanging.cancel()
    return running.returncode, printed


@pytest.mark.parametrize("example", parameters("python", "pytest"))
def test_an_example_of_tests_passes(example: Example, tmp_path) -> None:
    (tmp_path / "test_example.py").write_text(example.code)
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), "test_example.py"]
    run(command, tmp_path)


#: What the fragments of docs/spark.md take for granted.
_SPARK = """
import cassq
from pyspark.sql import SparkSession

url, out, checkpoint = "sqlite:///fragments.db", "out", "checkpoint"
log, log_checkpoint = "log", "log_checkpoint"
with cassq.connect(url) as store:
    store.queue("orders").push_many([b"one", b"two"])
    store.topic("events")
builder = SparkSession.builder.master("local[1,4]")  # four attempts: a Python worker has 10 s to start in
spark = builder.config("spark.ui.enabled", "false").getOrCreate()
columns = "body string, headers map<string,string>, amount int"
orders = spark.createDataFrame([("three", {"type": "new"}, 1200)], columns)
"""
_SPARK_END = """
queries = spark.streams.active
while sum(batch["numInputRows"] for query in queries for batch in query.recentProgress) < 5:
    for query in queries:
        query.processAllAvailable()  # which is also done when a first look found nothing yet
for query in queries:
    query.stop()
assert (spark.read.parquet(out).count(), spark.read.parquet(log).count()) == (4, 1)
"""


@pytest.mark.parametrize("example", parameters("python", "spark"))
def test_an_example_on_spark_runs_in_an_environment_that_is_not_activated(
    example: Example, tmp_path, monkeypatch
) -> None:
    for variable in ("PYSPARK_PYTHON", "SPARK_HOME"):
        monkeypatch.delenv(variable, raising=False)
    run([sys.executable, "-c", example.code], tmp_path, is_activated=False)


def test_the_fragments_of_the_page_on_spark_run_one_after_the_other(tmp_path, monkeypatch) -> None:
    fragments = [each.code for each in _EXAMPLES if (each.language, each.mark) == ("python", "fragment")]
    assert fragments
    monkeypatch.setenv("SPARK_HOME", make_spark_home(tmp_path))
    run([sys.executable, "-c", "\n".join([_SPARK, *fragments, _SPARK_END])], tmp_path)


def test_the_readme_has_an_example_of_each_kind() -> None:
    kinds = {(each.language, each.mark) for each in _EXAMPLES if each.page == ROOT / "README.md"}
    assert kinds >= {("python", ""), ("python", "service"), ("python", "spark"), ("console", "shell")}


def test_every_mark_is_one_that_is_tested() -> None:
    marked = {(each.language, each.mark) for each in _EXAMPLES if each.language == "python" or each.mark}
    kinds = {
        ("python", mark)
        for mark in ("", "service", "spark", "fragment", "worker", "submit", "step", "pytest")
    }
    kinds |= {("console", mark) for mark in ("shell", "submit", "step")}
    # See test_http_examples, test_deployments and tests/integration/test_service_proxies.
    kinds |= {(language, "http") for language in ("sh", "javascript", "go")}
    kinds |= {("ini", "systemd"), ("yaml", "kubernetes"), ("nginx", "nginx"), ("caddy", "caddy")}
    assert marked <= kinds

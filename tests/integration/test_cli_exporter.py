"""`cassq exporter`: what a scrape shows, and what becomes of it in an outage."""

import json
import os
import re
import signal
import socket
import sys
import textwrap
import urllib.request
from datetime import timedelta

import pytest
from command_line import CommandLine
from prometheus_client.parser import text_string_to_metric_families
from support.patience import until

import cassq

WAIT_S = 60.0


class Exporter:
    """An exporter in the background, at a port that was free."""

    def __init__(self, url, *options):
        self.process = CommandLine(url).start("exporter", "--port", 0, "--host", "127.0.0.1", *options)
        self.words = []
        self.place = self.say(r"http://\S+/metrics")

    def say(self, pattern):
        """Wait until it says something on stderr."""
        while line := self.process.stderr.readline().decode():
            self.words.append(line)
            if found := re.search(pattern, line):
                return found[0]
        raise AssertionError(f"it ended, and said {self.words}")

    def text(self):
        with urllib.request.urlopen(self.place, timeout=WAIT_S) as answer:
            return answer.read().decode()

    def samples(self):
        """Return the value of each series, by name and labels in the order of their names."""
        families = text_string_to_metric_families(self.text())
        return {
            (each.name, *each.labels.values()): each.value for family in families for each in family.samples
        }

    def shows(self, *series):
        """Wait until a series is there; return its value."""
        until(lambda: series in self.samples())
        return self.samples()[series]

    def end(self):
        self.process.kill()
        with self.process:  # closes its pipes
            pass

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        _, words = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, "".join(self.words) + words.decode()


@pytest.fixture
def start(request):
    """Start exporters that end with the test."""

    def make(*arguments):
        exporter = Exporter(*arguments)
        request.addfinalizer(exporter.end)
        return exporter

    return make


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/orders.db"


def test_it_shows_what_the_figures_of_each_queue_say(url, start):
    with cassq.connect(url) as store:
        orders = store.queue("orders")
        orders.push_many([b"x"] * 5)
        store.queue("empty").pause()
        with orders.popper() as popper:
            popper.pop(timeout=60).commit()
            popper.pop(timeout=60).reject("no customer")
            popper.pop(timeout=60).rollback(timedelta(days=1))

    exporter = start(url, "--every", "100ms")
    assert exporter.shows("cassq_queue_messages", "orders", "waiting") == 2
    samples = exporter.samples()
    assert samples["cassq_queue_messages", "orders", "delayed"] == 1
    assert samples["cassq_messages_total", "pushed", "orders"] == 5
    assert samples["cassq_messages_total", "committed", "orders"] == 1
    assert samples["cassq_messages_total", "dead", "orders"] == 1
    assert samples["cassq_dead_letters", "orders"] == 1
    assert samples["cassq_oldest_age_seconds", "orders"] > 0
    assert samples["cassq_oldest_age_seconds", "empty"] == 0
    assert (samples["cassq_queue_paused", "empty"], samples["cassq_queue_paused", "orders"]) == (1, 0)
    assert samples["cassq_store_up",] == 1
    assert samples["cassq_queues_left_out",] == 0

    with cassq.connect(url) as store:
        store.queue("orders").push(b"one more")
    until(lambda: exporter.samples()["cassq_messages_total", "pushed", "orders"] == 6)
    code, words = exporter.stop()
    assert (code, words.count("\n")) == (0, 1)


def test_queues_beyond_the_most_are_counted(url, start):
    with cassq.connect(url) as store:
        for name in ("a", "b", "c"):
            store.queue(name)
    exporter = start(url, "--queues-max", 2)
    assert exporter.shows("cassq_queues_left_out") == 1
    assert {labels[0] for name, *labels in exporter.samples() if name == "cassq_pipes"} == {"a", "b"}


def test_an_outage_is_told_and_over_again(tmp_path, url, start):
    folder = tmp_path / "away"
    exporter = start(f"sqlite:///{folder}/orders.db", "--every", "100ms")
    exporter.say("orders.db")
    samples = exporter.samples()
    assert samples["cassq_store_up",] == 0
    assert samples["cassq_exporter_failures_total",] >= 1
    assert not any(name.startswith("cassq_queue") for name, *_ in samples)

    folder.mkdir()
    with cassq.connect(f"sqlite:///{folder}/orders.db") as store:
        store.queue("orders").push(b"x")
    exporter.say("the store is back")
    # It may have read the queue before the message was pushed.
    until(lambda: exporter.samples().get(("cassq_messages_total", "pushed", "orders")) == 1)
    code, words = exporter.stop()
    assert code == 0
    assert "Traceback" not in words


def test_a_port_that_is_taken_is_a_wrong_option(url):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = CommandLine(url).run("exporter", "--host", "127.0.0.1", "--port", port)
    assert ended.returncode == 64
    assert f"--port {port} cannot be used" in ended.stderr


def test_without_the_extra_one_line_names_it(tmp_path, url):
    (tmp_path / "sitecustomize.py").write_text(
        textwrap.dedent("""
        import sys
        sys.modules["prometheus_client"] = None
        """)
    )
    line = CommandLine(url)
    path = os.pathsep.join((str(tmp_path), *filter(None, sys.path)))
    ended = line.run("exporter", env={**line.env, "PYTHONPATH": path})
    assert (ended.returncode, ended.stderr.count("\n")) == (64, 1)
    assert "pip install 'cassq[metrics]'" in ended.stderr


def test_without_a_store_it_says_so():
    ended = CommandLine().run("exporter")
    assert ended.returncode == 64
    assert "no store is named" in ended.stderr


def test_with_json_every_line_is_an_object(tmp_path):
    exporter = Exporter(f"sqlite:///{tmp_path}/orders.db", "--log-format", "json")
    exporter.shows("cassq_store_up")
    code, words = exporter.stop()

    lines = [json.loads(line) for line in words.splitlines()]
    assert (code, lines[0]["logger"], lines[0]["message"]) == (0, "cassq.cli", f"metrics at {exporter.place}")

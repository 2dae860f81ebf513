"""A service as people run it: what it tells Prometheus, what it logs, and how it leaves a balancer."""

import json
import os
import re
import signal
import socket
import sys
import threading
from pathlib import Path

import httpx
import pytest
from command_line import CommandLine
from prometheus_client.parser import text_string_to_metric_families
from support.patience import until
from support.serving import Serving, keys_of

READY, ENDING = 200, 503


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/orders.db"


@pytest.fixture
def start(url):
    """Start a service that knows one application; return it and a key."""
    made = []

    def start(*options):
        (key,) = keys_of(url, "shop")
        made.append(Serving(url, *options))
        return made[-1], key

    yield start
    for each in made:
        each.end()


@pytest.fixture
def port():
    """A port that was free."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return bound.getsockname()[1]


def samples(port):
    """Return the values of all series, by name and labels in the order of their names."""
    text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    return {
        (each.name, *(each.labels[label] for label in sorted(each.labels))): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


def leased_and_committed(client, count):
    for _ in range(count):
        client.post("/v1/queues/orders/messages", content=b"x").raise_for_status()
        answer = client.post("/v1/queues/orders/lease", json={"wait_s": 20}).raise_for_status()
        token = answer.json()["leases"][0]["lease"]
        client.post("/v1/queues/orders/commit", json={"leases": [token]}).raise_for_status()


class TestMetrics:
    @pytest.mark.parametrize("processes", [1, 2])
    def test_one_port_tells_what_all_processes_did(self, start, port, processes):
        serving, key = start("--metrics", port, "--processes", processes)
        for _ in range(4):  # connections, which go to whichever process takes them
            with serving.client(key) as client:
                client.put("/v1/queues/orders").raise_for_status()
                leased_and_committed(client, 2)

        found = samples(port)

        assert found["cassq_http_seconds_count", "POST /v1/queues/{queue}/commit", "2xx"] == 8
        settled = [found.get(("cassq_settlements_total", where), 0) for where in ("home", "away")]
        assert sum(settled) == 8
        assert processes > 1 or settled == [8, 0]
        until(lambda: samples(port).get(("cassq_operation_messages_total", "push", "shop.orders")) == 8)
        assert found["cassq_waiting_clients",] == 0

    def test_a_client_that_waits_is_told_until_its_process_is_gone(self, start, port):
        serving, key = start("--metrics", port, "--processes", 2)
        with serving.client(key) as client:
            client.put("/v1/queues/orders").raise_for_status()

        def wait():
            with serving.client(key) as client:
                ended.append(_outcome(lambda: client.post("/v1/queues/orders/lease", json={"wait_s": 60})))

        ended = []
        waiting = threading.Thread(target=wait)
        waiting.start()
        until(lambda: samples(port)["cassq_waiting_clients",] == 1)

        for each in _children(serving.process.pid):
            os.kill(each, signal.SIGKILL)
        waiting.join(30)

        assert ended == ["cut off"]
        until(lambda: samples(port).get(("cassq_waiting_clients",)) == 0)
        assert samples(port)["cassq_http_seconds_count", "PUT /v1/queues/{queue}", "2xx"] == 1

    def test_a_port_that_is_taken_is_a_wrong_option(self, url, port):
        with socket.create_server(("127.0.0.1", port)):
            ended = CommandLine(url).run("serve", "--port", 0, "--metrics", port)

        assert (ended.returncode, f"--metrics {port} cannot be used" in ended.stderr) == (64, True)

    def test_only_a_service_that_tells_needs_the_extra(self, url, tmp_path):
        (tmp_path / "sitecustomize.py").write_text('import sys\n\nsys.modules["prometheus_client"] = None\n')
        path = os.pathsep.join((str(tmp_path), *filter(None, sys.path)))
        line = CommandLine(url)
        line.env["PYTHONPATH"] = path

        ended = line.run("serve", "--metrics", 9521)
        with line.start("serve", "--port", 0) as silent:
            assert b"serving at" in silent.stderr.readline()
            silent.terminate()
            silent.communicate()  # it may say something at its end

        assert silent.returncode == 0
        assert (ended.returncode, ended.stderr.count("\n")) == (64, 1)
        assert "pip install 'cassq[metrics]'" in ended.stderr


def _outcome(call):
    try:
        return call().status_code
    except httpx.TransportError:
        return "cut off"


def _children(pid):
    """Return the processes of a service, without the one that hands out semaphores."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    lines = {int(each): Path(f"/proc/{each}/cmdline").read_bytes() for each in found}
    return [each for each, line in lines.items() if b"spawn_main" in line]


class TestLogs:
    def test_each_request_is_a_line_of_json_without_what_is_secret(self, start):
        serving, key = start("--access-log", "--log-format", "json")
        with serving.client(key) as client:
            client.put("/v1/queues/orders").raise_for_status()
            client.post("/v1/queues/orders/messages", content=b"my secret").raise_for_status()
            leased = client.post("/v1/queues/orders/lease", json={}).json()["leases"][0]["lease"]
            client.post("/v1/queues/orders/commit", json={"leases": [leased]}).raise_for_status()
            client.get(f"/v1/queues/orders/messages/{leased}")
        with serving.client(None) as client:
            assert client.get("/v1/queues").status_code == 401

        code, words = serving.stop(signal.SIGTERM)

        lines = [json.loads(line) for line in words.splitlines()]
        told = [line for line in lines if line["logger"] == "cassq.http.access"]
        assert (code, lines[0]["message"]) == (0, f"serving at {serving.base}")
        push = next(line for line in told if line["route"] == "POST /v1/queues/{queue}/messages")
        key_id = key.split("_")[1]
        assert (push["status"], push["application"], push["key"], push["address"]) == (
            *(201, "shop", key_id, "127.0.0.1"),
        )
        assert push["bytes"] > 40
        assert push["ms"] > 0
        assert [line["status"] for line in told if line["route"] == "GET /v1/queues"] == [401]
        for secret in (key, key.split("_")[2], "my secret", leased, leased[:20], "orders"):
            assert secret not in words

    def test_nothing_is_told_of_requests_that_nobody_asked_for(self, start):
        serving, key = start()
        with serving.client(key) as client:
            client.put("/v1/queues/orders").raise_for_status()

        assert serving.stop(signal.SIGTERM) == (0, f"cassq: serving at {serving.base}\n")


class TestLeavingABalancer:
    @pytest.mark.parametrize("processes", [1, 2])
    def test_it_says_so_first_and_goes_on_answering_for_a_while(self, start, processes):
        serving, key = start("--grace-before", 3, "--processes", processes)
        with serving.client(key) as client:
            client.put("/v1/queues/orders").raise_for_status()
        assert httpx.get(f"{serving.base}/readyz").status_code == READY

        for each in (serving.process.pid, *_children(serving.process.pid)):  # as a supervisor may
            os.kill(each, signal.SIGTERM)

        until(lambda: httpx.get(f"{serving.base}/readyz").status_code == ENDING)
        answer = httpx.get(f"{serving.base}/readyz")
        assert (answer.json()["code"], answer.headers["retry-after"]) == ("ending", "1")
        assert httpx.get(f"{serving.base}/healthz").status_code == READY
        with serving.client(key) as client:
            leased_and_committed(client, 1)
        assert serving.process.wait(30) == 0

    def test_a_second_signal_ends_it_at_once(self, start):
        serving, _ = start("--grace-before", 600)
        serving.process.send_signal(signal.SIGTERM)
        until(lambda: httpx.get(f"{serving.base}/readyz").status_code == ENDING)

        code, words = serving.stop(signal.SIGTERM)

        assert (code, re.findall("Traceback", words)) == (0, [])

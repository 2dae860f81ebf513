"""`cassq serve` over real sockets: queues, messages, topics, streams, and how it ends."""

import base64
import json
import os
import signal
import sqlite3
import ssl
import subprocess
import sys
import threading
from itertools import pairwise

import httpx
import pytest
from command_line import CommandLine
from support.patience import until
from support.raw_sockets import ask
from support.serving import Serving, keys_of

import cassq
from cassq.gate.keys import Key

NDJSON = {"Content-Type": "application/x-ndjson"}


#: Of these each test has one: a service hears of a new one after a second or two.
APPLICATIONS = [f"app{number}" for number in range(80)]


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('service')}/orders.db"
    keys = keys_of(url, *APPLICATIONS)
    made = Serving(url)
    made.unused = dict(zip(APPLICATIONS, keys, strict=True))
    yield made
    made.end()


@pytest.fixture
def application(serving):
    """An application that no other test has, and its key."""
    return serving.unused.popitem()


@pytest.fixture
def name(application):
    return application[0]


@pytest.fixture
def client(serving, application):
    with serving.client(application[1]) as made:
        yield made


@pytest.fixture
def queue(client):
    assert client.put("/v1/queues/orders").status_code == 201
    return "/v1/queues/orders"


@pytest.fixture
def topic(client):
    assert client.put("/v1/topics/news", json={"partitions": 2}).status_code == 201
    return "/v1/topics/news"


def lines_of(*lines):
    return b"".join(json.dumps(each).encode() + b"\n" for each in lines)


def popped(serving, queue, count):
    with cassq.connect(serving.url) as store, store.queue(queue).popper() as popper:
        found = []
        while len(found) < count:
            found += popper.pop_many(count - len(found), timeout=10)
        popper.commit_many(found)
        return found


class TestQueues:
    def test_a_queue_from_its_creation_to_its_end(self, client, serving, name):
        made = client.put("/v1/queues/orders", json={"lease_ms": 20_000, "on_expired": "dead"})
        again = client.put("/v1/queues/orders", json={"lease_ms": 20_000})
        other = client.put("/v1/queues/orders", json={"lease_ms": 10_000})

        assert (made.status_code, again.status_code, other.status_code) == (201, 200, 409)
        assert made.json()["name"] == "orders"
        assert made.json()["settings"]["lease_ms"] == 20_000
        assert other.json()["detail"] == (
            "it is there, and lease_ms is 20000, not 10000: leave out what differs, or "
            "PATCH /v1/queues/orders gives it the others"
        )
        assert client.patch("/v1/queues/orders", json={"lease_ms": 10_000}).status_code == 200
        assert client.get("/v1/queues/orders").json()["settings"]["lease_ms"] == 10_000
        assert client.get("/v1/queues").json() == {"names": ["orders"]}
        with cassq.connect(serving.url) as store:
            assert f"{name}.orders" in store.queues()
        assert client.delete("/v1/queues/orders").json() == {"name": "orders", "state": "deleted"}
        assert client.get("/v1/queues/orders").status_code == 404
        assert client.delete("/v1/queues/orders").status_code == 404

    def test_names_come_in_pages(self, client):
        for each in "cab":
            client.put(f"/v1/queues/{each}")

        first = client.get("/v1/queues", params={"limit": 2}).json()
        rest = client.get("/v1/queues", params={"limit": 2, "after": first["next"]}).json()

        assert (first, rest) == ({"names": ["a", "b"], "next": "b"}, {"names": ["c"]})

    def test_pause_resume_purge_and_figures(self, client, queue):
        client.post(f"{queue}/messages", content=b"1")

        assert client.post(f"{queue}/pause").json()["state"] == "paused"
        stats = client.get(f"{queue}/stats").json()
        assert (stats["queue"], stats["state"], stats["waiting"]) == ("orders", "paused", 1)
        assert client.post(f"{queue}/resume").json()["state"] == "active"
        assert client.post(f"{queue}/purge", json={"confirm": "other"}).status_code == 400
        assert client.post(f"{queue}/purge", json={"confirm": "orders"}).json()["count"] == 1
        assert client.get(f"{queue}/stats").json()["waiting"] == 0

    def test_a_queue_that_another_process_deleted_and_made_anew_is_the_new_one(
        self, client, serving, queue, name
    ):
        client.post(f"{queue}/messages", content=b"old")
        with cassq.connect(serving.url) as store:
            store.delete_queue(f"{name}.orders")

            def is_gone():
                return client.post(f"{queue}/messages", content=b"lost").status_code == 404

            until(is_gone)
            store.queue(f"{name}.orders")

        assert client.post(f"{queue}/messages", content=b"new").status_code == 201
        assert [each["body"] for each in client.get(f"{queue}/messages").json()["messages"]] == ["new"]


class TestPushing:
    def test_a_message_is_its_bytes_with_its_headers_and_options(self, client, serving, queue, name):
        answer = client.post(
            f"{queue}/messages",
            params={"priority": 3, "type": "refund", "key": "customer 42"},
            content=b"\x00\xff",
            headers={"Cassq-Header-Colour": "blue", "Cassq-Header-Ort": "Köln".encode()},
        )

        assert answer.status_code == 201
        (found,) = popped(serving, f"{name}.orders", 1)
        assert str(found.message_id) == answer.json()["id"]
        assert (found.body, dict(found.headers)) == (b"\x00\xff", {"colour": "blue", "ort": "Köln"})
        assert (found.priority, found.type, found.key) == (3, "refund", "customer 42")

    def test_what_waits_can_be_looked_at(self, client, queue):
        client.post(f"{queue}/messages", content=b"\xff", headers={"Cassq-Header-Colour": "blue"})
        client.post(f"{queue}/messages", content="ü".encode())

        found = client.get(f"{queue}/messages", params={"limit": 5}).json()["messages"]

        assert [(each["body"], each["encoding"], each["headers"]) for each in found] == [
            (base64.b64encode(b"\xff").decode(), "base64", {"colour": "blue"}),
            ("ü", "utf-8", {}),
        ]

    def test_what_is_shown_has_four_mebibytes_at_most(self, client, queue, topic):
        for path in (queue, topic):
            for _ in range(6):
                answer = client.post(f"{path}/messages", content=bytes(1024 * 1024))
                assert answer.status_code == 201, answer.text

        shown = client.get(f"{queue}/messages", params={"limit": 100}).json()["messages"]
        pages = [
            client.get(f"{topic}/messages", params={"limit": 100, "partition": number}).json()
            for number in range(2)
        ]

        assert len(shown) == 4
        assert all(len(each["messages"]) == min(4, each["latest"] - 1) for each in pages)
        assert all((each.get("next") is None) is (each["latest"] <= 5) for each in pages)

    def test_a_delay_counts(self, client, queue):
        client.post(f"{queue}/messages", content=b"1", params={"delay_s": 3600})
        assert client.get(f"{queue}/stats").json()["delayed"] == 1

    def test_an_empty_body_is_a_message(self, client, serving, queue, name):
        assert client.post(f"{queue}/messages").status_code == 201
        assert popped(serving, f"{name}.orders", 1)[0].body == b""

    def test_lines_are_messages_in_their_order(self, client, serving, queue, name):
        answer = client.post(
            f"{queue}/messages",
            params={"ids": "1"},
            headers=NDJSON,
            content=b"\n"
            + lines_of({"body": "ä"}, {"body_base64": "AP8=", "headers": {"a": "b"}})
            + b'  \r\n{"body": "last"}',
        )

        told = answer.json()
        assert (answer.status_code, told["pushed"]) == (201, 3)
        found = popped(serving, f"{name}.orders", 3)
        assert [(each.body, dict(each.headers)) for each in found] == [
            ("ä".encode(), {}),
            (b"\x00\xff", {"a": "b"}),
            (b"last", {}),
        ]
        assert told["ids"] == [str(each.message_id) for each in found]
        assert (told["first_id"], told["last_id"]) == (told["ids"][0], told["ids"][-1])

    def test_ten_thousand_lines_are_streamed_in(self, client, serving, queue, name):
        def chunks():
            for number in range(10_000):
                yield b'{"body": "%d"}\n' % number

        answer = client.post(f"{queue}/messages", headers=NDJSON, content=chunks())

        assert answer.json()["pushed"] == 10_000
        assert [each.body for each in popped(serving, f"{name}.orders", 10_000)] == [
            b"%d" % number for number in range(10_000)
        ]

    @pytest.mark.parametrize("media", ["application/ndjson", "application/jsonl"])
    def test_lines_by_another_name_are_not_one_message(self, client, queue, media):
        answer = client.post(f"{queue}/messages", headers={"Content-Type": media}, content=b"{}\n")
        assert answer.status_code == 415
        assert "application/x-ndjson" in answer.json()["detail"]
        assert client.get(f"{queue}/stats").json()["waiting"] == 0

    def test_head_is_get_without_a_body_and_a_stream_has_none(self, client, queue, topic):
        head, get = client.head(queue), client.get(queue)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == get.headers["content-length"]
        assert client.head(f"{topic}/follow").status_code == 405

    def test_no_line_pushes_nothing(self, client, queue):
        assert client.post(f"{queue}/messages", headers=NDJSON, content=b"\n\n").json()["pushed"] == 0

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            (b"nonsense", "line 1500"),
            (b'{"body": "a", "body_base64": "AA=="}', "line 1500: it needs either"),
            (b"{}", "line 1500: it needs either"),
            (b'{"body": "a", "hat": 1}', "hat"),
            (b'{"body_base64": "?"}', "line 1500"),
            (b'{"body": "\\ud800"}', "line 1500"),
            (b'{"body": "\xff"}', "line 1500"),
            (b'{"body": "a", "headers": {"a": 1}}', "line 1500"),
            (b'{"body": "a", "headers": {"": "b"}}', "header"),
            (b'{"body": "a", "headers": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001, "line 1500"),
        ],
    )
    def test_a_bad_line_is_named_and_what_is_durable_before_it_is_told(
        self, client, serving, queue, name, line, words
    ):
        content = lines_of(*({"body": str(number)} for number in range(1499))) + line + b"\n"

        answer = client.post(f"{queue}/messages", headers=NDJSON, content=content)

        told = answer.json()
        assert (answer.status_code, told["code"]) == (400, "invalid-option")
        assert words in told["detail"]
        # A line that JSON refuses stops its part; what the library refuses is noticed as the part is sent.
        assert told["done"] in {1000, 1499}
        with cassq.connect(serving.url) as store:
            assert store.find_queue(f"{name}.orders").stats().waiting == told["done"]

    def test_a_body_beyond_the_queue_s_limit_is_413_and_nothing_is_pushed(self, client):
        client.put("/v1/queues/small", json={"body_bytes_max": 10})
        path = "/v1/queues/small/messages"

        assert client.post(path, content=b"x" * 10).status_code == 201
        assert client.post(path, content=b"x" * 11).status_code == 413
        assert client.post(path, content=iter([b"x" * 6, b"x" * 6])).status_code == 413
        assert client.post(path, headers=NDJSON, content=lines_of({"body": "x" * 11})).status_code == 413
        assert client.get("/v1/queues/small/stats").json()["waiting"] == 1

    @pytest.mark.parametrize(
        ("params", "words"),
        [
            ({"priority": "10"}, "priority"),
            ({"priority": "high"}, "priority"),
            ({"prio": "1"}, "prio"),
            ({"delay_s": "-1"}, "delay_s"),
            ({"due": "2027-01-01T00:00:00"}, "due"),
            ({"due": "1900000000"}, "due"),
            ({"due": "1900000000.5"}, "due"),
            ({"delay_s": "1", "due": "2027-01-01T00:00:00Z"}, "due"),
            ({"type": "a b"}, "type"),
            ({"key": "k" * 257}, "key"),
            ([("priority", "1"), ("priority", "2")], "twice"),
        ],
    )
    def test_a_bad_word_of_the_query_is_named_and_nothing_is_pushed(self, client, queue, params, words):
        answer = client.post(f"{queue}/messages", params=params, content=b"x")

        assert answer.status_code == 400
        assert words in answer.json()["detail"]
        assert client.get(f"{queue}/stats").json()["waiting"] == 0

    def test_many_clients_push_at_once_and_nothing_is_lost(self, serving, client, queue, name):
        key = client.headers["Authorization"].removeprefix("Bearer ")

        def push(number):
            with serving.client(key) as own:
                for each in range(25):
                    assert (
                        own.post(f"{queue}/messages", content=b"%d" % (number * 25 + each)).status_code == 201
                    )

        threads = [threading.Thread(target=push, args=(number,)) for number in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

        found = popped(serving, f"{name}.orders", 200)
        assert sorted(int(each.body) for each in found) == list(range(200))


class TestOneMessage:
    def test_is_told_of_from_its_push_to_its_end(self, client, queue):
        path = f"{queue}/messages"
        waits, delayed = (
            client.post(path, content=b"x", params=params).json()["id"] for params in ({}, {"delay_s": 3600})
        )

        assert client.get(f"{path}/{waits}").json() == {
            "id": waits,
            "state": "waiting",
            "attempt": 0,
            "reason": "",
        }
        assert client.get(f"{path}/{delayed}").json()["state"] == "delayed"
        client.post(f"{queue}/lease")
        assert client.get(f"{path}/{waits}").json()["state"] == "pending"

    def test_is_cancelled_unless_somebody_has_it_and_that_is_not_meant(self, client, queue):
        path = f"{queue}/messages"
        first, second = (client.post(path, content=b"x").json()["id"] for _ in range(2))

        assert client.delete(f"{path}/{second}").json() == {"id": second, "is_cancelled": True}
        client.post(f"{queue}/lease").raise_for_status()
        assert client.delete(f"{path}/{first}").json()["is_cancelled"] is False
        assert client.delete(f"{path}/{first}", params={"running": "true"}).json()["is_cancelled"] is True

    def test_of_another_queue_is_not_to_be_found(self, client, queue):
        client.put("/v1/queues/others")
        foreign = client.post("/v1/queues/others/messages", content=b"x").json()["id"]
        own = client.post(f"{queue}/messages", content=b"x").json()["id"]

        for each in (foreign, own.partition(":")[0] + ":99", "00000000-0000-1000-8000-000000000000:1"):
            answer = client.get(f"{queue}/messages/{each}")
            assert (answer.status_code, answer.json()["code"]) == (404, "message-not-found")
        assert client.delete(f"{queue}/messages/{foreign}").status_code == 404
        assert client.get(f"/v1/queues/others/messages/{foreign}").json()["state"] == "waiting"
        assert client.get(f"{queue}/messages/nonsense").status_code == 400


class Following:
    """A client of a stream."""

    def __init__(self, client, path, params=None, headers=None):
        self._stream = client.stream("GET", path, params=params, headers=headers)
        self.response = self._stream.__enter__()
        self._lines = self.response.iter_lines()
        self.last_id = None

    def next(self):
        """Return the next event: its kind and its data."""
        kind = data = None
        for line in self._lines:
            name, _, value = line.partition(": ")
            if name == "id":
                self.last_id = value
            elif name == "event":
                kind = value
            elif name == "data":
                data = json.loads(value)
            elif not line and kind:
                return kind, data
        return None

    def bodies(self, count):
        return [self.next()[1]["body"] for _ in range(count)]

    def close(self):
        self._stream.__exit__(None, None, None)


class TestTopics:
    def test_a_topic_from_its_creation_to_its_end(self, client):
        assert client.put("/v1/topics/news", json={"partitions": 2}).status_code == 201
        assert client.put("/v1/topics/news", json={"partitions": 2}).status_code == 200
        other = client.put("/v1/topics/news", json={"partitions": 3})
        assert (other.status_code, other.json()["code"]) == (409, "settings-differ")
        assert "partitions is 2, not 3" in other.json()["detail"]
        kept = client.patch("/v1/topics/news", json={"retention_ms": 3_600_000})
        assert kept.json()["settings"]["retention_ms"] == 3_600_000
        assert client.get("/v1/topics/news").json()["settings"]["partitions"] == 2
        assert client.get("/v1/topics").json()["names"] == ["news"]
        assert [each["latest"] for each in client.get("/v1/topics/news/stats").json()["partitions"]] == [1, 1]
        assert client.delete("/v1/topics/news").status_code == 200
        assert client.get("/v1/topics/news").status_code == 404

    def test_what_is_published_is_read_from_any_place_in_both_orders(self, client, topic):
        for body in "abc":
            answer = client.post(f"{topic}/messages", params={"partition": 1}, content=body)
        path = f"{topic}/messages"

        assert answer.json() == {"partition": 1, "offset": 3, "is_repeat": False, "published": 1}
        up = client.get(path, params={"partition": 1, "since": 2}).json()
        down = client.get(path, params={"partition": 1, "limit": 2, "order": "descending"}).json()
        assert [each["body"] for each in up["messages"]] == ["b", "c"]
        assert ([each["body"] for each in down["messages"]], down["next"]) == (["c", "b"], 1)
        assert (up["oldest"], up["latest"], up.get("next")) == (1, 4, None)

    def test_a_writer_s_number_publishes_once(self, client, topic):
        params = {"writer": "outbox", "number": 7}
        first = client.post(f"{topic}/messages", params=params, content="a").json()
        again = client.post(f"{topic}/messages", params=params, content="a").json()

        assert (first["published"], again["published"], again["is_repeat"]) == (1, 0, True)
        assert first["offset"] == again["offset"]

    def test_lines_are_published_in_their_order(self, client, topic):
        lines = lines_of(*({"body": str(n), "headers": {"type": "t"}} for n in range(2500)))

        answer = client.post(f"{topic}/messages", params={"partition": 0}, headers=NDJSON, content=lines)

        assert (answer.status_code, answer.json()["published"]) == (201, 2500)
        found = client.get(f"{topic}/messages", params={"limit": 1000, "since": 1501}).json()["messages"]
        assert [each["body"] for each in found] == [str(n) for n in range(1500, 2500)]

    def test_a_stream_has_what_was_there_and_what_comes_and_goes_on_where_it_ended(self, client, topic):
        for body in "ab":
            client.post(f"{topic}/messages", params={"partition": 0}, content=body)
        following = Following(client, f"{topic}/follow", {"start": "earliest"})
        assert following.response.headers["content-type"].startswith("text/event-stream")
        assert following.bodies(2) == ["a", "b"]
        client.post(f"{topic}/messages", params={"partition": 0}, content="c")
        assert following.bodies(1) == ["c"]
        following.close()
        for body in "de":
            client.post(f"{topic}/messages", params={"partition": 0}, content=body)

        later = Following(client, f"{topic}/follow", headers={"Last-Event-ID": following.last_id})

        assert later.bodies(2) == ["d", "e"]
        later.close()

    def test_a_stream_from_now_on_has_the_wanted_types_of_all_partitions(self, client, topic):
        client.post(f"{topic}/messages", content="old", params={"type": "order.new"})
        following = Following(client, f"{topic}/follow", {"types": "order.*,refund"})
        for number, kind in enumerate(["order.new", "mail", "refund"]):
            client.post(
                f"{topic}/messages", content=str(number), params={"type": kind, "partition": number % 2}
            )

        assert sorted(following.bodies(2)) == ["0", "2"]
        following.close()

    def test_many_follow_one_topic_and_each_has_all_of_it(self, client, topic):
        followers = [Following(client, f"{topic}/follow") for _ in range(20)]
        for number in range(50):
            client.post(f"{topic}/messages", content=str(number), params={"partition": 0})

        for each in followers:
            assert each.bodies(50) == [str(number) for number in range(50)]
        for each in followers:
            each.close()

    def test_a_stream_ends_when_its_key_is_revoked(self, client, serving, topic, name):
        following = Following(client, f"{topic}/follow")
        key = Key.parse(client.headers["Authorization"].removeprefix("Bearer "))

        serving.applications(lambda applications: applications.revoke_key(name, key.id))

        kind, told = following.next()
        assert (kind, told["code"]) == ("error", "key-refused")
        assert following.next() is None

    def test_a_stream_ends_when_its_topic_is_deleted(self, client, topic):
        following = Following(client, f"{topic}/follow")
        client.delete(topic)

        kind, told = following.next()

        assert kind == "error"
        assert told["code"] in {"topic-not-found", "unavailable"}  # this process deleted it, or another one
        assert client.get(f"{topic}/follow").status_code == 404

    @pytest.mark.parametrize("start", ["", "now", "0:1,", "2027-01-01T00:00:00", "0:99", "7:1", "0:-1"])
    def test_a_place_that_is_none_is_refused_by_name(self, client, topic, start):
        answer = client.get(f"{topic}/follow", params={"start": start})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-option")


@pytest.fixture
def start(request):
    """Start services that end with the test."""

    def make(*arguments):
        made = Serving(*arguments)
        request.addfinalizer(made.end)
        return made

    return make


class TestProcess:
    def test_requests_under_way_end_and_streams_do_when_it_is_told_to_stop(self, start, tmp_path):
        serving = start(f"sqlite:///{tmp_path}/orders.db")
        with serving.client(serving.key("shop")) as client:
            client.put("/v1/queues/orders")
            client.put("/v1/topics/news")
            following = Following(client, "/v1/topics/news/follow")
            with serving.connect() as raw:
                head = (
                    "POST /v1/queues/orders/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
                    f"Authorization: {client.headers['Authorization']}\r\nExpect: 100-continue\r\n\r\n"
                )
                raw.sendall(head.encode())
                assert raw.recv(1000).startswith(b"HTTP/1.1 100")  # by now it is under way
                serving.process.send_signal(signal.SIGTERM)
                assert following.next() is None  # by now it drains
                answer = ask(raw, b"5\r\nhello\r\n0\r\n\r\n")

        assert answer.startswith(b"HTTP/1.1 201")
        with pytest.raises(httpx.ConnectError):
            httpx.get(serving.base)
        assert serving.process.wait(30) == 0
        assert popped(serving, "shop.orders", 1)[0].body == b"hello"

    def test_who_is_cut_off_by_the_end_is_told_that_nobody_knows_and_the_log_tells(self, start, tmp_path):
        serving = start(f"sqlite:///{tmp_path}/orders.db", "--grace", "1")
        key = serving.key("shop")
        with serving.client(key) as client:
            client.put("/v1/queues/orders")
            client.post("/v1/queues/orders/messages", content=b"first")
        lock = sqlite3.connect(tmp_path / "orders.db", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        head = f"POST /v1/queues/orders/messages HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
        lines = "Content-Type: application/x-ndjson\r\n"
        with serving.connect() as one, serving.connect() as many:
            for raw, own in ((one, ""), (many, lines)):
                # The answer to Expect says that it is under way.
                raw.sendall(f"{head}{own}Expect: 100-continue\r\nContent-Length: 12\r\n\r\n".encode())
                assert raw.recv(1000).startswith(b"HTTP/1.1 100")
                raw.sendall(b'{"body": ""}')
            serving.process.send_signal(signal.SIGTERM)
            answers = [ask(raw, b"") for raw in (one, many)]
        lock.execute("ROLLBACK")
        lock.close()

        for answer in answers:
            told = json.loads(answer.partition(b"\r\n\r\n")[2])
            assert (told["status"], told["code"]) == (504, "outcome-unknown")
        assert b'"done":0' in answers[1]
        code, words = serving.stop(signal.SIGTERM)
        assert code == 0
        assert "Cancel 2 running task(s)" in words
        assert words.count("outcome-unknown") == 2

    def test_two_processes_answer_and_both_hear_of_a_revoked_key(self, start, tmp_path):
        serving = start(f"sqlite:///{tmp_path}/orders.db", "--processes", "2")
        key = serving.key("shop")
        with serving.client(key) as client:
            client.put("/v1/queues/orders")
            for number in range(20):
                own = {"Connection": "close"} if number % 2 else {}
                assert client.post("/v1/queues/orders/messages", content=b"x", headers=own).status_code == 201
            serving.applications(lambda applications: applications.revoke_key("shop", Key.parse(key).id))

            def refused_in_a_row():
                answers = [httpx.get(f"{serving.base}/v1/queues", headers=client.headers) for _ in range(20)]
                return all(each.status_code == 401 for each in answers)

            until(refused_in_a_row)
        assert serving.stop(signal.SIGTERM)[0] == 0
        assert len(popped(serving, "shop.orders", 20)) == 20

    def test_the_others_end_where_the_process_that_started_them_is_killed(self, start, tmp_path):
        serving = start(f"sqlite:///{tmp_path}/orders.db", "--processes", "2")

        serving.process.kill()

        def is_gone():
            try:
                serving.connect().close()
            except ConnectionRefusedError:
                return True
            return False

        until(is_gone)

    def test_it_listens_at_a_unix_socket_also_where_a_dead_one_left_its_own(self, start, tmp_path):
        path = tmp_path / "cassq.sock"
        url = f"sqlite:///{tmp_path}/orders.db"
        first = start(url, "--uds", path)
        first.process.kill()
        first.process.wait()
        assert path.is_socket()

        serving = start(url, "--uds", path)
        with serving.client(serving.key("shop")) as client:
            assert client.get("/v1/queues").status_code == 200
        assert serving.stop(signal.SIGTERM)[0] == 0
        assert not path.exists()

    def test_an_open_one_needs_no_key_and_names_queues_in_full(self, start, tmp_path):
        serving = start(f"sqlite:///{tmp_path}/orders.db", "--open")
        with serving.client(None) as client:
            assert client.put("/v1/queues/orders").status_code == 201
            assert client.get("/v1/queues").json()["names"] == ["orders"]
        assert "everybody" in serving.stop(signal.SIGTERM)[1]


def test_curl_pushes(serving, client, queue):
    done = subprocess.run(
        [
            *("curl", "-sS", "--fail", "-H", f"Authorization: {client.headers['Authorization']}"),
            *("--data-binary", "hello", f"{serving.base}{queue}/messages"),
        ],
        capture_output=True,
        check=True,
        timeout=30,
    )
    assert ":" in json.loads(done.stdout)["id"]


def test_offsets_of_events_rise(client, topic):
    following = Following(client, f"{topic}/follow", {"start": "earliest"})
    for number in range(5):
        client.post(f"{topic}/messages", content=str(number), params={"partition": 0})
    offsets = [following.next()[1]["offset"] for _ in range(5)]
    following.close()
    assert all(after == before + 1 for before, after in pairwise(offsets))


class TestTls:
    @pytest.fixture
    def files(self, tmp_path):
        command = (
            "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout k.pem -out c.pem"
        )
        subprocess.run(command.split(), cwd=tmp_path, capture_output=True, check=True, timeout=60)
        return tmp_path / "c.pem", tmp_path / "k.pem"

    def test_it_answers_by_tls(self, start, tmp_path, files):
        serving = start(f"sqlite:///{tmp_path}/orders.db", "--tls-cert", files[0], "--tls-key", files[1])
        (key,) = keys_of(serving.url, "shop")
        with serving.client(key, verify=False) as client:
            until(lambda: client.put("/v1/queues/orders").is_success)
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(serving.base.replace("https", "http"))

    def test_clients_need_a_certificate_where_it_is_asked_for(self, tmp_path, files):
        options = ["--tls-cert", files[0], "--tls-key", files[1], "--client-ca", files[0]]
        line = CommandLine(f"sqlite:///{tmp_path}/orders.db").start("serve", "--port", 0, *options)
        place = line.stderr.readline().decode().rpartition(" ")[2].strip()
        context = ssl.create_default_context(cafile=files[0])
        context.check_hostname = False
        with pytest.raises((httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError)):
            httpx.get(f"{place}/healthz", verify=context)
        context.load_cert_chain(*files)
        assert httpx.get(f"{place}/healthz", verify=context).status_code == 200
        line.kill()
        with line:
            pass


def test_without_the_extra_one_line_names_it(tmp_path):
    (tmp_path / "sitecustomize.py").write_text('import sys\n\nsys.modules["starlette"] = None\n')
    line = CommandLine(f"sqlite:///{tmp_path}/orders.db")
    path = os.pathsep.join((str(tmp_path), *filter(None, sys.path)))
    ended = line.run("serve", env={**line.env, "PYTHONPATH": path})
    assert (ended.returncode, ended.stderr.count("\n")) == (64, 1)
    assert "pip install 'cassq[http]'" in ended.stderr


def test_a_port_that_is_taken_is_a_wrong_option(serving, tmp_path):
    ended = CommandLine(f"sqlite:///{tmp_path}/orders.db").run("serve", "--port", serving.port)
    assert ended.returncode == 64
    assert "cannot be listened at" in ended.stderr


def test_a_store_that_is_none_is_said_before_anything_listens(tmp_path):
    (tmp_path / "orders.db").write_bytes(b"not a store at all" * 1000)
    ended = CommandLine(f"sqlite:///{tmp_path}/orders.db").run("serve", "--port", 0)
    assert (ended.returncode, ended.stderr.count("\n")) == (65, 1)

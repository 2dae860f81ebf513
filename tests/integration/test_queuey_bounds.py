"""What clients of Queuey once could have a service do: hold it, lose something, or be told nothing of it."""

import asyncio
import json
import socket
from contextlib import ExitStack
from datetime import timedelta

import httpx
import pytest
from support.patience import until
from support.serving import Serving, keys_of

import cassq
from cassq.errors import StorageUnavailableError
from cassq.http.app import Opening, make_app
from cassq.popping.leases import Leases

APPLICATIONS = [f"app{number}" for number in range(60)]
JSON = {"Content-Type": "application/json"}
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('queuey')}/store.db"
    keys = keys_of(url, *APPLICATIONS)
    made = Serving(url, "--queuey")
    made.unused = dict(zip(APPLICATIONS, keys, strict=True))
    yield made
    made.end()


class App:
    """One application's client.

    Attributes:
        root: of the queues that shipped.
    """

    def __init__(self, http, serving):
        self.name, self.secret = serving.unused.popitem()
        self.http, self.url, self.root = http, serving.url, f"/queuey/v1/{self.name}"
        self.key = {"Authorization": f"Application {self.secret}", "X-Application-Name": self.name}
        self.bearer = {"Authorization": f"Bearer {self.secret}"}

    def call(self, method, path, headers=None, **options):
        return self.http.request(method, path, headers={**self.key, **(headers or {})}, **options)

    def make(self, name="news", **words):
        assert self.call("POST", self.root, data={"queue_name": name, **words}).status_code == 201
        return f"{self.root}/{name}"

    def worker(self, name="jobs"):
        made = self.call("POST", "/queue", data={"queue_name": name, "type": "worker"})
        assert made.status_code == 201
        return f"/queue/{name}"

    def post(self, path, *messages, status=201):
        answer = self.call("POST", path, JSON, json={"messages": messages})
        assert answer.status_code == status, answer.text
        return answer.json()

    def bodies(self, path, **words):
        answer = self.call("GET", path, params=words)
        assert answer.status_code == 200, answer.text
        return [each["body"] for each in answer.json()["messages"]]

    def topic(self, name, work):
        with cassq.connect(self.url) as store:
            return work(store.find_topic(f"{self.name}.{name}"))

    def alter(self, name, **settings):
        with cassq.connect(self.url) as store:
            store.alter_topic(f"{self.name}.{name}", **settings)


@pytest.fixture
def http(serving):
    with serving.client(None) as made:
        yield made


@pytest.fixture
def app(serving, http):
    return App(http, serving)


def refused(answer):
    assert answer.json()["status"] == "error", answer.text
    return answer.status_code, sorted(answer.json()["error_msg"])


class TestOneRequestCostsLittle:
    def test_without_a_key_no_more_messages_are_read_than_one_answer_has(self, app, http):
        path = app.make(partitions=4, type="public")

        def fill(topic):
            for partition in range(4):
                topic.publish_many([b"x"] * 600, partition=partition)

        app.topic("news", fill)
        answer = http.get(path, params={"partitions": "1,2,3,4", "limit": 1000})
        assert refused(answer) == (400, ["partitions"])
        assert "1000 messages" in answer.json()["error_msg"]["partitions"]
        assert len(http.get(path, params={"partitions": "1,2,3,4", "limit": 250}).json()["messages"]) == 1000
        assert len(http.get(path, params={"limit": 1000}).json()["messages"]) == 600

    def test_many_refused_fields_are_counted_and_few_are_named(self, app):
        path = app.make()
        fields = ",".join(f'"{number:x}":1' for number in range(60_000))
        made = app.call("POST", app.root, JSON, content=f"{{{fields}}}")
        assert (made.status_code, len(made.json()["error_msg"])) == (400, 21)
        assert made.json()["error_msg"]["…"] == "and 59980 more"
        one = app.call("POST", path, JSON, content=f'{{"messages":[{{"body":"x",{fields}}}]}}')
        assert refused(one) == (400, ["0.0"])
        many = [{"body": ""}] * 1000
        assert app.post(path, *many, status=400)["error_msg"]["…"] == "and 980 more"

    @pytest.mark.parametrize("key", ["Application", "Bearer"])
    def test_no_error_tells_much_of_what_was_sent(self, app, key):
        headers = {"Authorization": f"{key} {app.secret}"}
        for path, body in (
            (app.root, f'{{"{"x" * 900_000}": 1}}'),
            (app.root, json.dumps({"queue_name": "y" * 900_000})),
            (f"/v1/queues/{app.name}/lease", f'{{"{"x" * 900_000}": 1}}'),
            (app.make("a"), f'{{"messages": [{{"body": "x", "{"x" * 4_000_000}": 1}}]}}'),
        ):
            answer = app.call("POST", path, {**headers, **JSON}, content=body)
            assert 400 <= answer.status_code < 500, answer.text
            assert len(answer.content) < 3000

    @pytest.mark.parametrize(
        ("text", "field"),
        [
            (b'{"messages":[' + b"{}," * 1_390_000 + b"{}]}", "0.body"),
            (b'{"messages":[' + b'{"body":"x"},' * 1000 + b'{"body":"x"}]}', "messages"),
            (b'{"messages":[{"body":"x"}],"ttl":5}', "ttl"),
            (b'{"partition":2,"messages":[{"body":"x"}]}', "partition"),
        ],
    )
    def test_a_batch_is_read_as_what_it_may_be(self, app, text, field):
        path = app.make()
        assert refused(app.call("POST", path, JSON, content=text)) == (400, [field])
        assert app.bodies(path) == []

    def test_a_list_with_details_opens_so_many_topics(self, app):
        with cassq.connect(app.url) as store:
            for number in range(51):
                store.topic(f"{app.name}.a{number:02}")
        assert refused(app.call("GET", app.root, params={"details": "true"})) == (400, ["limit"])
        page = app.call("GET", app.root, params={"details": "true", "limit": 50}).json()["queues"]
        assert len(page) == 50
        assert len(app.call("GET", app.root).json()["queues"]) == 51


class TestNothingIsDoneInSilence:
    @pytest.mark.parametrize("word", ["off", "n", "", "none", "False "])
    def test_a_word_that_is_neither_yes_nor_no_deletes_nothing(self, app, word):
        path = app.make()
        app.post(path, {"body": "a"})
        answer = app.call("DELETE", "/queue/news", params={"delete": word})
        assert refused(answer) == (400, ["delete"])
        assert app.bodies(path) == ["a"]

    @pytest.mark.parametrize("word", ["false", "False", "0", "no", "NO"])
    def test_no_is_written_in_several_ways(self, app, word):
        path = app.make()
        app.post(path, {"body": "a"})
        assert app.call("DELETE", "/queue/news", params={"delete": word}).status_code == 200
        assert app.bodies(path) == []

    @pytest.mark.parametrize("header", ["X-TTL", "X-Partition"])
    def test_headers_that_would_say_nothing_are_refused(self, app, header):
        path, worker = app.make(), app.worker()
        answer = app.call("POST", path, {**JSON, header: "1"}, json={"messages": [{"body": "x"}]})
        assert refused(answer) == (400, [header])
        assert app.bodies(path) == []
        assert refused(app.call("POST", worker, {header: "1"}, content=b"{}")) == (400, [header])
        assert app.call("GET", worker).json()["messages"] == []

    def test_a_batch_with_one_body_that_is_too_large_publishes_nothing(self, app):
        path = app.make(partitions=2)
        large = "y" * (MIB + 1)
        told = app.post(path, {"body": "a", "partition": 1}, {"body": large, "partition": 2}, status=413)
        assert list(told["error_msg"]) == ["1.body"]
        assert "done" not in told
        assert app.bodies(path, partitions="1,2") == []

    def test_a_topic_is_not_made_where_a_queue_for_workers_has_the_name(self, app):
        worker = app.worker()
        assert refused(app.call("POST", app.root, data={"queue_name": "jobs"})) == (409, ["queue_name"])
        assert app.call("POST", worker, content=b'{"order":17}').status_code == 201
        got = app.call("POST", f"{worker}/reserve", data={"wait": 5}).json()["reservations"]
        assert got[0]["messages"][0]["body"] == '{"order":17}'

    def test_principles_are_cleared(self, app):
        path = app.make(principles="app:other")
        assert app.call("GET", path).status_code == 403
        cleared = app.call("PUT", path, data={"principles": ""})
        assert (cleared.status_code, cleared.json()["principles"]) == (200, [])
        assert app.bodies(path) == []

    def test_partitions_that_are_none_are_refused(self, app):
        path = app.make(partitions=2)
        for words in ("0", "3", "1,9"):
            assert refused(app.call("GET", path, params={"partitions": words})) == (400, ["partitions"])


class TestNoClientGetsStuck:
    def test_a_reader_goes_on_where_a_page_ends_by_its_bytes(self, app):
        path = app.make()
        app.alter("news", body_bytes_max=4 * MIB)
        ids = app.topic("news", lambda topic: [topic.publish(b"%d" % n + b"m" * 3 * MIB) for n in range(3)])
        assert len(ids) == 3
        seen, words = [], {}
        while True:
            told = app.call("GET", path, params={"limit": 10, **words}).json()
            seen += [each["body"][0] for each in told["messages"]]
            if "next" not in told:
                break
            words = {"since": told["next"]}
        assert seen == ["0", "1", "2"]
        back = app.call("GET", path, params={"limit": 10, "order": "descending"}).json()
        on = app.call("GET", path, params={"order": "descending", "since": back["next"]}).json()
        assert [each["messages"][0]["body"][0] for each in (back, on)] == ["2", "1"]

    def test_what_new_settings_allow_is_taken_at_once(self, app):
        path = app.make()
        app.post(path, {"body": "open"})
        with cassq.connect(app.url) as store:
            store.queue(f"{app.name}.jobs")
        jobs = "/v1/queues/jobs/messages"
        assert app.call("POST", jobs, app.bearer, content=b"{}").status_code == 201
        large = b"n" * 2 * MIB
        assert app.call("POST", path, content=large).status_code == 413
        assert app.call("POST", jobs, app.bearer, content=large).status_code == 413
        app.alter("news", body_bytes_max=4 * MIB, retention=timedelta(days=7))
        assert app.call("POST", path, {"X-TTL": "604800"}, content=b"x").status_code == 201
        app.alter("news", body_bytes_max=5 * MIB)
        for body in (large, b"n" * (4 * MIB + 1)):
            assert app.call("POST", path, content=body).status_code == 201
        app.alter("news", body_bytes_max=6 * MIB)
        publish = "/v1/topics/news/messages"
        assert app.call("POST", publish, app.bearer, content=b"n" * (5 * MIB + 1)).status_code == 201
        with cassq.connect(app.url) as store:
            store.alter_queue(f"{app.name}.jobs", body_bytes_max=4 * MIB)
        assert app.call("POST", jobs, app.bearer, content=large).status_code == 201

    def test_a_lease_that_is_larger_than_its_part_comes(self, app):
        with cassq.connect(app.url) as store:
            queue = store.queue(f"{app.name}.bin", body_bytes_max=8 * MIB)
            queue.push_many([b"\x01" * 1_000_000] * 10)
        wanted = {**app.bearer, **JSON}
        leased = app.call("POST", "/v1/queues/bin/lease", wanted, json={"count": 10, "wait_s": 10})
        assert leased.status_code == 200, leased.text[:200]
        assert len(leased.content) > 32 * MIB
        with cassq.connect(app.url) as store:
            queue = store.queue(f"{app.name}.one", body_bytes_max=8 * MIB)
            queue.push(b"\x01" * 6 * MIB)
        one = app.call("POST", "/v1/queues/one/lease", wanted, json={"wait_s": 10})
        assert (one.status_code, len(one.content) > 36 * MIB) == (200, True), one.text[:200]

    def test_a_number_of_many_digits_is_refused(self, app):
        worker = app.worker()
        for field in ("wait", "limit"):
            answer = app.call("POST", f"{worker}/reserve", JSON, content=f'{{"{field}": 1{"0" * 400}}}')
            assert refused(answer) == (400, [field])

    def test_a_delay_is_no_longer_than_one_may_be(self, app):
        worker = app.worker()
        assert app.call("POST", worker, content=b"{}").status_code == 201
        told = app.call("POST", f"{worker}/reserve", data={"wait": 10}).json()
        given = {"reservations": told["reservations"][0]["reservation"]}
        over = app.call("POST", f"{worker}/retry", data={**given, "delay": 604_801})
        assert refused(over) == (400, ["delay"])
        assert app.call("POST", f"{worker}/retry", data={**given, "delay": 604_800}).status_code == 200


class TestOthersAreInTheWay:
    @pytest.mark.parametrize("now", ["worker", "user"])
    def test_a_queue_that_another_process_made_anew_takes_the_message_or_says_why(self, app, now):
        app.make()
        assert app.call("POST", "/queue/news", content=b'{"n":1}').status_code == 201
        with cassq.connect(app.url) as store:
            store.delete_topic(f"{app.name}.news")
            (store.queue if now == "worker" else store.topic)(f"{app.name}.news")
        told = []

        def push():
            told.append(app.call("POST", "/queue/news", content=b'{"n":2}').status_code)
            return told[-1] == 201

        assert until(push)
        assert set(told) <= {201, 404, 503}
        assert app.bodies("/queue/news") == ['{"n":2}']

    def test_who_reads_nothing_without_a_key_leaves_room_for_other_addresses(self, app, serving):
        path = app.make(type="public")
        app.topic("news", lambda topic: topic.publish_many([b"q" * 1_000_000] * 4))
        with ExitStack() as stack:
            for _ in range(3):
                unread = stack.enter_context(socket.socket())
                unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                unread.connect(("127.0.0.1", serving.port))
                unread.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            assert until(lambda: app.http.get(path).status_code == 503)
            assert app.http.get(path, params={"limit": 1, "since": "99999999999"}).status_code == 200
            with httpx.HTTPTransport(local_address="127.0.0.2") as transport:
                other = httpx.Client(base_url=serving.base, transport=transport, timeout=30)
                assert other.get(path).status_code == 200
            assert app.call("GET", path).status_code == 200


def test_where_the_database_goes_away_half_way_it_is_told_what_is_done(tmp_path, monkeypatch):
    settle, calls = Leases.settle, []

    def fail_second(self, *args):
        calls.append(args)
        if len(calls) == 2:
            raise StorageUnavailableError("gone")
        return settle(self, *args)

    monkeypatch.setattr(Leases, "settle", fail_second)

    async def run(call):
        assert (
            await call("POST", "/queue", data={"queue_name": "jobs", "type": "worker"})
        ).status_code == 201
        tokens = []
        for _ in range(3):
            await call("POST", "/queue/jobs", content=b"{}")
            told = (await call("POST", "/queue/jobs/reserve", data={"wait": 10})).json()
            tokens.append(told["reservations"][0]["reservation"])
        given = {"reservations": [tokens[0], *tokens]}
        first = await call("POST", "/queue/jobs/fail", json=given)
        assert (first.status_code, first.json()["outcomes"]) == (
            200,
            ["committed", "committed", "unknown", "unknown"],
        )
        assert "retry-after" not in first.headers
        again = await call("POST", "/queue/jobs/fail", json={"reservations": tokens[1:]})
        assert again.json()["outcomes"] == ["committed", "committed"]
        calls.clear()
        calls.append(None)
        alone = await call("POST", "/queue/jobs/fail", json={"reservations": tokens})
        assert (alone.status_code, "outcomes" in alone.json()) == (503, False)

    async def live():
        made = make_app(Opening(f"sqlite:///{tmp_path}/store.db", is_open=True, is_queuey=True))
        async with made.lifespan_context(made) as state:

            async def with_state(scope, receive, send):
                await made({**scope, "state": dict(state)}, receive, send)

            transport = httpx.ASGITransport(with_state, client=("127.0.0.1", 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                client.headers["X-Application-Name"] = "shop"
                await run(client.request)

    asyncio.run(live())


class TestWords:
    @pytest.mark.parametrize("path", ["/queue/news/1/2", "/queuey/v1/app/news/1/2", "/queuey", "/queue/"])
    def test_a_path_that_is_none_is_told_in_queueys_form(self, app, path):
        assert refused(app.call("GET", path)) == (404, ["path-not-found"])

    def test_other_paths_are_told_as_ever(self, http):
        assert http.get("/blah").headers["content-type"] == "application/problem+json"

    def test_a_method_that_is_none(self, app):
        answer = app.call("PATCH", app.make())
        assert answer.headers["allow"] == "DELETE, GET, HEAD, POST, PUT"
        assert app.call("HEAD", f"{app.root}/news").status_code == 200

    def test_who_has_a_wrong_key_hears_of_queueys_scheme(self, http, app):
        told = http.get(app.root, headers={"Authorization": "Application x"}).json()["error_msg"]
        assert "Authorization: Application KEY" in told["InvalidApplicationKey"]

    def test_an_error_has_no_field_that_is_null(self, app):
        assert "null" not in app.call("POST", app.make(), content=b"").text

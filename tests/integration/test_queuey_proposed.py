"""The interface that Queuey proposed first, call by call, and its worker calls, over real sockets."""

import json
from datetime import timedelta

import pytest
from support.patience import until
from support.serving import ALL, Serving, keys_of

import cassq
from cassq.gate.applications import Right

APPLICATIONS = [f"app{number}" for number in range(150)]

#: Applications that lack one right each.
LACKING = {right: f"no-{right.value}" for right in ALL}


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('queuey')}/store.db"
    keys = keys_of(url, *APPLICATIONS)
    lacking = {right: keys_of(url, name, rights=ALL - {right})[0] for right, name in LACKING.items()}
    made = Serving(url, "--queuey")
    made.unused, made.lacking = dict(zip(APPLICATIONS, keys, strict=True)), lacking
    yield made
    made.end()


@pytest.fixture
def application(serving):
    return serving.unused.popitem()


@pytest.fixture
def http(serving):
    with serving.client(None) as made:
        yield made


@pytest.fixture
def ask(http, application):
    """Call with the headers that the proposal had; return the answer."""
    headers = {"X-Application-Name": application[0], "ApplicationKey": application[1]}

    def call(method, path, without=(), **options):
        sent = {name: value for name, value in headers.items() if name not in without}
        return http.request(method, path, headers={**sent, **options.pop("headers", {})}, **options)

    return call


@pytest.fixture
def queue(ask):
    assert ask("POST", "/queue", data={"queue_name": "news"}).status_code == 201
    return "/queue/news"


@pytest.fixture
def worker(ask):
    assert ask("POST", "/queue", data={"queue_name": "jobs", "type": "worker"}).status_code == 201
    return "/queue/jobs"


def ok(answer, status=200):
    assert (answer.status_code, answer.json()["status"]) == (status, "ok"), answer.text
    return answer.json()


def refused(answer):
    assert answer.json()["status"] == "error"
    return answer.status_code, sorted(answer.json()["error_msg"])


def bodies(told):
    return [json.loads(each["body"]) for each in told["messages"]]


def reservations(told):
    return [each["reservation"] for each in told["reservations"]]


class TestEachCall:
    def test_create_with_partitions(self, ask, serving, application):
        told = ok(ask("POST", "/queue", data={"queue_name": "a", "partitions": 4}), 201)
        assert told == {"status": "ok", "queue_name": "a", "partitions": 4, "type": "user"}
        with cassq.connect(serving.url) as store:
            assert store.find_topic(f"{application[0]}.a").partitions == 4

    def test_create_without_a_name(self, ask):
        told = ok(ask("POST", "/queue"), 201)
        assert (len(told["queue_name"]), told["partitions"]) == (32, 1)

    def test_create_by_json(self, ask):
        told = ok(ask("POST", "/queue", json={"queue_name": "a", "partitions": 2, "type": "public"}), 201)
        assert (told["partitions"], told["type"]) == (2, "public")

    def test_delete(self, ask, queue):
        ok(ask("DELETE", queue))
        assert refused(ask("GET", queue)) == (404, ["InvalidQueueName"])
        assert refused(ask("DELETE", queue)) == (404, ["InvalidQueueName"])

    def test_empty(self, ask, queue):
        ok(ask("POST", queue, json={"n": 1}), 201)
        ok(ask("DELETE", queue, params={"delete": "false"}))
        assert bodies(ok(ask("GET", queue))) == []
        ok(ask("POST", queue, json={"n": 2}), 201)
        assert bodies(ok(ask("GET", queue))) == [{"n": 2}]

    def test_push_an_object_and_get_it(self, ask, queue):
        key = ok(ask("POST", queue, json={"n": 1}), 201)
        (message,) = ok(ask("GET", queue))["messages"]
        assert (message["message_id"], message["timestamp"]) == (key["key"], key["timestamp"])
        assert (json.loads(message["body"]), message["partition"]) == ({"n": 1}, 1)

    @pytest.mark.parametrize("text", [b"", b"[1]", b"1", b'"a"', b"{", b"\xff"])
    def test_what_is_no_object_is_not_pushed(self, ask, queue, worker, text):
        for path in (queue, worker):
            assert refused(ask("POST", path, content=text)) == (400, ["InvalidParameter"])
            assert bodies(ok(ask("GET", path))) == []

    def test_get_has_the_newest_first_and_a_hundred(self, ask, queue, serving, application):
        with cassq.connect(serving.url) as store:
            store.find_topic(f"{application[0]}.news").publish_many(
                b'{"n": %d}' % each for each in range(120)
            )
        found = bodies(ok(ask("GET", queue)))
        assert [each["n"] for each in found] == list(range(119, 19, -1))

    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            ({"limit": 2}, [3, 2]),
            ({"order": "ascending"}, [1, 2, 3]),
            ({"order": "ascending", "limit": 1}, [1]),
            ({"since_timestamp": "KEY"}, [3, 2]),
            ({"since_timestamp": "KEY", "order": "ascending"}, [2, 3]),
            ({"since_timestamp": "0"}, [3, 2, 1]),
            ({"since_timestamp": "99999999999"}, []),
            ({"since_timestamp": "99999999999", "order": "ascending"}, []),
        ],
    )
    def test_get_since_with_limit_and_order(self, ask, queue, words, expected):
        ok(ask("POST", queue, json={"n": 1}), 201)
        second = ok(ask("POST", queue, json={"n": 2}), 201)
        ok(ask("POST", queue, json={"n": 3}), 201)
        sent = {name: second["key"] if value == "KEY" else value for name, value in words.items()}
        found = [each["n"] for each in bodies(ok(ask("GET", queue, params=sent)))]
        assert found == expected

    @pytest.mark.parametrize(
        ("words", "field"),
        [
            ({"limit": 0}, "limit"),
            ({"order": "up"}, "order"),
            ({"since_timestamp": "now"}, "since_timestamp"),
            ({"since": "0"}, "since"),
        ],
    )
    def test_get_names_the_field_that_is_wrong(self, ask, queue, words, field):
        assert refused(ask("GET", queue, params=words)) == (400, [field])

    def test_info(self, ask, queue):
        told = ok(ask("GET", f"{queue}/info"))
        assert (told["partitions"], told["type"]) == (1, "user")
        assert told["created"] > 1_700_000_000

    def test_a_public_queue_is_read_and_told_of_without_a_key(self, ask, queue):
        ok(ask("POST", "/queue", data={"queue_name": "open", "type": "public"}), 201)
        ok(ask("POST", "/queue/open", json={"n": 1}), 201)
        assert bodies(ok(ask("GET", "/queue/open", without=["ApplicationKey"]))) == [{"n": 1}]
        assert ok(ask("GET", "/queue/open/info", without=["ApplicationKey"]))["partitions"] == 1
        for path in (queue, f"{queue}/info", "/queue/never-made", "/queue/never-made/info"):
            assert refused(ask("GET", path, without=["ApplicationKey"])) == (403, ["AccessDenied"])


CALLS = [
    ("POST", "/queue", Right.STEER),
    ("DELETE", "/queue/news", Right.STEER),
    ("POST", "/queue/news", Right.PUSH),
    ("GET", "/queue/news", Right.POP),
    ("GET", "/queue/news/info", Right.LOOK),
    ("POST", "/queue/jobs/reserve", Right.POP),
    ("POST", "/queue/jobs/verify", Right.POP),
    ("POST", "/queue/jobs/retry", Right.POP),
    ("POST", "/queue/jobs/fail", Right.POP),
    ("POST", "/queue/jobs/extend", Right.POP),
]


@pytest.mark.parametrize(("method", "path", "right"), CALLS)
class TestWhoMayCall:
    def test_the_application_has_to_be_named(self, ask, method, path, right):
        for headers in ({}, {"X-Application-Name": ""}):
            answer = ask(method, path, without=["X-Application-Name"], headers=headers)
            assert refused(answer) == (400, ["X-Application-Name"])

    def test_nobody_gets_in_without_a_key(self, ask, method, path, right):
        answer = ask(method, path, without=["ApplicationKey"])
        assert refused(answer) == (403, ["AccessDenied"])

    def test_nobody_gets_in_with_a_wrong_key_or_with_two(self, ask, method, path, right):
        for headers in ({"ApplicationKey": "x"}, {"Authorization": "Bearer x"}):
            assert refused(ask(method, path, headers=headers)) == (401, ["InvalidApplicationKey"])

    def test_the_key_needs_the_right(self, ask, serving, method, path, right):
        headers = {"X-Application-Name": LACKING[right], "ApplicationKey": serving.lacking[right]}
        assert refused(ask(method, path, headers=headers)) == (403, ["AccessDenied"])

    def test_another_application_is_not_named(self, ask, serving, method, path, right):
        headers = {"X-Application-Name": "somebody"}
        assert refused(ask(method, path, headers=headers)) == (404, ["InvalidApplication"])


class TestWorkers:
    def test_create_a_queue_for_workers(self, ask, serving, application):
        told = ok(ask("POST", "/queue", data={"queue_name": "jobs", "type": "worker"}), 201)
        assert told == {"status": "ok", "queue_name": "jobs", "partitions": 1, "type": "worker"}
        with cassq.connect(serving.url) as store:
            assert f"{application[0]}.jobs" in store.queues()
        assert ok(ask("GET", "/queue/jobs/info"))["type"] == "worker"

    def test_a_queue_for_workers_has_no_partitions(self, ask):
        answer = ask("POST", "/queue", data={"type": "worker", "partitions": 2})
        assert refused(answer) == (400, ["partitions"])

    @pytest.mark.parametrize(("first", "then"), [("user", "worker"), ("worker", "user")])
    def test_one_name_is_one_queue(self, ask, first, then):
        ok(ask("POST", "/queue", data={"queue_name": "a", "type": first}), 201)
        answer = ask("POST", "/queue", data={"queue_name": "a", "type": then})
        assert refused(answer) == (409, ["queue_name"])
        ok(ask("POST", "/queue", data={"queue_name": "a", "type": first}), 201)

    def test_get_shows_what_waits_and_takes_nothing(self, ask, worker):
        key = ok(ask("POST", worker, json={"n": 1}), 201)["key"]
        for _ in range(2):
            (message,) = ok(ask("GET", worker))["messages"]
            assert (message["message_id"], json.loads(message["body"])) == (key, {"n": 1})
        assert refused(ask("GET", worker, params={"order": "ascending"})) == (400, ["order"])

    def test_get_needs_the_right_to_look(self, ask, serving):
        name, key = LACKING[Right.LOOK], serving.lacking[Right.LOOK]
        mine = {"headers": {"X-Application-Name": name, "ApplicationKey": key}}
        ok(ask("POST", "/queue", data={"queue_name": "jobs", "type": "worker"}, **mine), 201)
        assert refused(ask("GET", "/queue/jobs", **mine)) == (403, ["AccessDenied"])

    def test_reserve_and_verify(self, ask, worker, serving, application):
        for number in range(3):
            ok(ask("POST", worker, json={"n": number}), 201)
        told = ok(ask("POST", f"{worker}/reserve", json={"limit": 3, "wait": 5}))
        assert [body["n"] for each in told["reservations"] for body in bodies(each)] == [0, 1, 2]
        assert all(0 < each["left"] <= 30 and each["attempt"] == 1 for each in told["reservations"])
        done = ok(ask("POST", f"{worker}/verify", json={"reservations": reservations(told)}))
        assert set(done["outcomes"]) == {"committed"}
        again = ok(ask("POST", f"{worker}/verify", data={"reservations": ",".join(reservations(told))}))
        assert set(again["outcomes"]) <= {"committed", "ended"}
        with cassq.connect(serving.url) as store:
            assert store.find_queue(f"{application[0]}.jobs").stats().committed == 3

    def test_reserve_where_nothing_waits(self, ask, worker):
        assert ok(ask("POST", f"{worker}/reserve")) == {"status": "ok", "reservations": []}

    def test_retry_brings_it_back_with_another_attempt(self, ask, worker):
        ok(ask("POST", worker, json={"n": 1}), 201)
        told = ok(ask("POST", f"{worker}/reserve", json={"wait": 5}))
        back = {"reservations": reservations(told), "delay": 0, "reason": "no connection"}
        assert ok(ask("POST", f"{worker}/retry", json=back))["outcomes"] == ["committed"]
        (again,) = ok(ask("POST", f"{worker}/reserve", json={"wait": 20}))["reservations"]
        assert (again["attempt"], bodies(again)) == (2, [{"n": 1}])

    def test_fail_makes_dead_letters_with_the_reason(self, ask, worker, serving, application):
        ok(ask("POST", worker, json={"n": 1}), 201)
        told = ok(ask("POST", f"{worker}/reserve", json={"wait": 5}))
        given = {"reservations": ",".join(reservations(told)), "reason": "no such customer"}
        ok(ask("POST", f"{worker}/fail", data=given))
        with cassq.connect(serving.url) as store:
            queue = store.find_queue(f"{application[0]}.jobs")
            (letter,) = until(lambda: queue.reap() and queue.dead.peek(10))
            assert (letter.reason, letter.body) == ("no such customer", b'{"n":1}')

    def test_extend_tells_how_long_it_runs_now(self, ask, worker):
        ok(ask("POST", worker, json={"n": 1}), 201)
        told = ok(ask("POST", f"{worker}/reserve", json={"wait": 5}))
        (outcome,) = ok(ask("POST", f"{worker}/extend", json={"reservations": reservations(told)}))[
            "outcomes"
        ]
        assert (outcome["outcome"], 29 < outcome["left"] <= 30) == ("extended", True)

    @pytest.mark.parametrize("call", ["verify", "retry", "fail", "extend"])
    def test_a_reservation_that_is_over_is_told_so(self, ask, worker, serving, application, call):
        ok(ask("POST", worker, json={"n": 1}), 201)
        told = ok(ask("POST", f"{worker}/reserve", json={"wait": 5}))
        given = {"reservations": reservations(told)}
        ok(ask("POST", f"{worker}/retry", json={**given, "delay": 0}))
        ok(ask("POST", f"{worker}/reserve", json={"wait": 20}))
        answer = ask("POST", f"{worker}/{call}", json=given)
        assert refused(answer) == (409, ["delivery-expired"])
        assert answer.json()["outcomes"] == ["expired"]

    @pytest.mark.parametrize("call", ["verify", "retry", "fail", "extend"])
    @pytest.mark.parametrize(
        ("given", "field"),
        [
            ({}, "reservations"),
            ({"reservations": []}, "reservations"),
            ({"reservations": [1]}, "reservations"),
            ({"reservations": 1}, "reservations"),
            ({"reservations": ["x"]}, "InvalidParameter"),
            ({"reservations": ["x"], "colour": "red"}, "colour"),
        ],
    )
    def test_what_names_no_reservation_is_refused(self, ask, worker, call, given, field):
        answer = ask("POST", f"{worker}/{call}", json=given)
        assert refused(answer) == (400, [field])

    @pytest.mark.parametrize(
        ("given", "field"), [({"limit": 0}, "limit"), ({"wait": 61}, "wait"), ({"wait": "nan"}, "wait")]
    )
    def test_reserve_names_the_field_that_is_wrong(self, ask, worker, given, field):
        assert refused(ask("POST", f"{worker}/reserve", json=given)) == (400, [field])

    def test_a_token_of_another_queue_touches_nothing(self, ask, worker):
        ok(ask("POST", "/queue", data={"queue_name": "other", "type": "worker"}), 201)
        ok(ask("POST", worker, json={"n": 1}), 201)
        told = ok(ask("POST", f"{worker}/reserve", json={"wait": 5}))
        for call in ("verify", "retry", "fail", "extend"):
            answer = ask("POST", f"/queue/other/{call}", json={"reservations": reservations(told)})
            assert refused(answer) == (400, ["InvalidParameter"])
            assert reservations(told)[0] not in answer.text
        assert ok(ask("POST", f"{worker}/verify", json={"reservations": reservations(told)}))

    def test_empty_and_delete(self, ask, worker, serving, application):
        ok(ask("POST", worker, json={"n": 1}), 201)
        ok(ask("DELETE", worker, params={"delete": "0"}))
        assert bodies(ok(ask("GET", worker))) == []
        ok(ask("DELETE", worker))
        assert refused(ask("GET", worker)) == (404, ["InvalidQueueName"])
        with cassq.connect(serving.url) as store:
            assert f"{application[0]}.jobs" not in store.queues()

    def test_a_topic_has_no_reservations(self, ask, queue):
        assert refused(ask("POST", f"{queue}/reserve")) == (404, ["InvalidQueueName"])


def test_a_topic_keeps_three_days_and_says_so(ask, queue, serving, application):
    with cassq.connect(serving.url) as store:
        assert store.find_topic(f"{application[0]}.news").settings.retention == timedelta(days=3)
    answer = ask("POST", queue, json={"n": 1}, headers={"X-TTL": "60"})
    assert refused(answer) == (501, ["ttl"])

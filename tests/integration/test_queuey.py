"""What Queuey shipped, over real sockets: each case that its own integration tests have, and what differs."""

import uuid
from datetime import timedelta

import pytest
from support.serving import Serving, keys_of

import cassq
from cassq.gate.keys import Key
from cassq.http.queuey import ROUTES
from cassq.http.queuey_ids import MessagePlace, parse_since

#: Of these each test has one: a service hears of a new one after a second or two.
APPLICATIONS = [f"app{number}" for number in range(200)]

JSON = {"Content-Type": "application/json"}

THREE_DAYS = 259_200


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('queuey')}/store.db"
    keys = keys_of(url, *APPLICATIONS)
    made = Serving(url, "--queuey")
    made.unused = dict(zip(APPLICATIONS, keys, strict=True))
    yield made
    made.end()


class App:
    """One application's client, in Queuey's way.

    Attributes:
        root: of its queues.
        key: its headers.
    """

    def __init__(self, http, name, key):
        self.http, self.name, self.root = http, name, f"/queuey/v1/{name}"
        self.key = {"Authorization": f"Application {key}"} if key else {}

    def call(self, method, path="", headers=None, **options):
        return self.http.request(method, self.root + path, headers={**self.key, **(headers or {})}, **options)

    def make(self, **words):
        answer = self.call("POST", data=words)
        assert answer.status_code == 201, answer.text
        return answer.json()["queue_name"]

    def post(self, queue, *messages, **headers):
        if headers or isinstance(messages[0], str):
            answer = self.call("POST", f"/{queue}", headers=headers, content=messages[0])
        else:
            answer = self.call("POST", f"/{queue}", headers=JSON, json={"messages": messages})
        assert answer.status_code == 201, answer.text
        return answer.json()["messages"]

    def messages(self, queue, **words):
        answer = self.call("GET", f"/{queue}", params=words)
        assert answer.status_code == 200, answer.text
        return answer.json()["messages"]

    def bodies(self, queue, **words):
        return [each["body"] for each in self.messages(queue, **words)]

    def info(self, queue, **words):
        told = self.call("GET", params={"details": "true", "offset": queue, "limit": 1, **words}).json()
        return told["queues"][0]


@pytest.fixture
def http(serving):
    with serving.client(None) as made:
        yield made


@pytest.fixture
def app(serving, http):
    """An application that no other test has."""
    return App(http, *serving.unused.popitem())


@pytest.fixture
def other(serving, http):
    return App(http, *serving.unused.popitem())


@pytest.fixture
def nobody(http, app):
    """Who has no key, at the application's queues."""
    return App(http, app.name, None)


def told(answer):
    return answer.status_code, answer.json()["status"], sorted(answer.json().get("error_msg", {}))


# The cases of Queuey's own server tests.


def test_who_has_no_key_makes_nothing_and_hears_of_no_application(app, nobody, http):
    refused = nobody.call("POST")
    assert told(refused) == (403, "error", ["AccessDenied"])
    assert "Access was denied" in refused.text
    assert app.call("GET").json() == {"status": "ok", "queues": []}
    # Queuey said 404 to everybody; here without a key all are alike.
    assert told(http.get("/queuey/v1/fredrick")) == (403, "error", ["AccessDenied"])
    assert told(http.get("/queuey/v1/fredrick", headers=app.key)) == (404, "error", ["InvalidApplication"])


def test_queues_are_listed(app):
    names = sorted(app.make() for _ in range(3))
    assert all(uuid.UUID(hex=each).version == 4 for each in names)
    answer = app.call("GET").json()
    assert answer == {"status": "ok", "queues": [{"queue_name": each} for each in names]}
    page = app.call("GET", params={"offset": names[1], "limit": 1}).json()
    assert page["queues"] == [{"queue_name": names[1]}]


def test_since_an_id_is_inclusive_and_exact(app):
    queue = app.make()
    app.post(queue, "1")
    (second,) = app.post(queue, "2")
    app.post(queue, "3")
    assert app.bodies(queue, since=second["key"]) == ["2", "3"]
    assert app.messages(queue, since=second["key"])[0]["partition"] == 1
    assert app.bodies(queue, since=second["key"], order="descending") == ["2", "1"]
    assert app.bodies(queue, since=second["timestamp"])[-2:] == ["2", "3"]
    assert app.bodies(queue, since=second["timestamp"], order="descending")[-2:] == ["2", "1"]


def test_a_queue_is_updated(app):
    queue = app.make(principles=f"app:{app.name}")
    info = app.info(queue, include_count="true")
    assert (info["count"], info["principles"], info["partitions"]) == (0, f"app:{app.name}", 1)

    named = app.call("PUT", f"/{queue}", data={"principles": f"app:{app.name},app:notifications"})
    assert (named.status_code, named.json()["principles"]) == (200, [f"app:{app.name}", "app:notifications"])
    weak = app.call("PUT", f"/{queue}", data={"consistency": "weak", "partitions": 1}).json()
    assert (weak["consistency"], weak["type"], weak["partitions"]) == ("weak", "user", 1)
    assert weak["principles"] == [f"app:{app.name}", "app:notifications"]


@pytest.mark.parametrize(
    ("has", "wanted", "status", "field"),
    [
        (2, 1, 400, "InvalidUpdate"),
        (1, 2, 501, "partitions"),
        (1, 201, 400, "partitions"),
        (1, 0, 400, "partitions"),
    ],
)
def test_partitions_are_never_fewer_and_a_topic_gets_no_more(app, has, wanted, status, field):
    queue = app.make(partitions=has)
    assert told(app.call("PUT", f"/{queue}", data={"partitions": wanted})) == (status, "error", [field])
    assert app.info(queue)["partitions"] == has


def test_a_public_queue_is_read_without_a_key(app, nobody):
    queue = app.make(type="public")
    (posted,) = app.post(queue, "for all")
    assert app.info(queue)["type"] == "public"
    assert nobody.bodies(queue) == ["for all"]
    assert nobody.bodies(f"{queue}/1:{posted['key']}") == ["for all"]


def test_batches_by_partition(app):
    queue = app.make(partitions=3)
    answer = app.post(
        queue,
        {"body": "1", "partition": 2},
        {"body": "2", "partition": 2},
        {"body": "3", "partition": 1, "ttl": THREE_DAYS},
    )
    assert [each["partition"] for each in answer] == [2, 2, 1]
    found = app.messages(queue, partitions="1,2,3")
    assert [(each["body"], each["partition"]) for each in found] == [("3", 1), ("1", 2), ("2", 2)]
    assert [each["message_id"] for each in found] == [answer[place]["key"] for place in (2, 0, 1)]
    assert app.bodies(queue, partitions="2") == ["1", "2"]
    assert app.bodies(queue, partitions="2,1", limit=1) == ["1", "3"]
    assert told(app.call("GET", f"/{queue}", params={"partitions": "2,7"})) == (400, "error", ["partitions"])
    (somewhere,) = app.post(queue, {"body": "4"})
    assert somewhere["partition"] in {1, 2, 3}


def test_a_queue_is_deleted(app):
    queue = app.make(partitions=3)
    assert (app.info(queue)["type"], app.info(queue)["partitions"]) == ("user", 3)
    assert app.call("DELETE", f"/{queue}").json() == {"status": "ok"}
    assert told(app.call("GET", f"/{queue}")) == (404, "error", ["InvalidQueueName"])
    assert told(app.call("DELETE", f"/{queue}")) == (404, "error", ["InvalidQueueName"])


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_messages_are_neither_changed_nor_deleted_by_their_ids(app, method):
    queue = app.make(partitions=2)
    posted = app.post(queue, {"body": "a", "partition": 2}, {"body": "b", "partition": 1})
    ids = ",".join(f"{each['partition']}:{each['key']}" for each in posted)
    refused = app.call(method, f"/{queue}/{ids}", content=b"x" if method == "PUT" else b"")
    assert told(refused) == (501, "error", ["messages"])
    assert "stays as it is" in refused.text
    fresh = app.call(method, f"/{queue}/1:{uuid.uuid1().hex}")
    assert told(fresh) == (501, "error", ["messages"])
    assert app.bodies(queue, partitions="1,2") == ["b", "a"]


def test_messages_by_their_ids(app):
    queue = app.make(partitions=2)
    posted = app.post(
        queue, {"body": "1", "partition": 1}, {"body": "2", "partition": 1}, {"body": "3", "partition": 2}
    )
    ids = [f"{each['partition']}:{each['key']}" for each in posted]
    fake = f"3:{uuid.uuid1().hex}"
    assert app.messages(f"{queue}/{fake}") == []
    assert [each["message_id"] for each in app.messages(f"{queue}/{ids[0]}")] == [posted[0]["key"]]
    assert app.bodies(f"{queue}/{ids[0]},{fake}") == ["1"]
    assert app.bodies(f"{queue}/{','.join(ids)}") == ["1", "2", "3"]
    assert app.bodies(f"{queue}/{posted[1]['key']}") == ["2"]
    assert app.bodies(f"{queue}/2:{posted[1]['key']}") == []


@pytest.mark.parametrize(
    ("ttl", "status", "field"),
    [
        ("259200", 201, []),
        ("300", 501, ["ttl"]),
        (str(2**25), 501, ["ttl"]),
        ("0", 400, ["ttl"]),
        ("x", 400, ["ttl"]),
    ],
)
def test_a_message_has_the_time_of_its_queue_and_no_other(app, ttl, status, field):
    queue = app.make()
    answer = app.call("POST", f"/{queue}", headers={"X-TTL": ttl}, content=b"a")
    assert (answer.status_code, sorted(answer.json().get("error_msg", {}))) == (status, field)
    assert len(app.messages(queue)) == (status == 201)


def test_a_time_that_a_topic_has_is_taken(serving, app):
    with cassq.connect(serving.url) as store:
        store.topic(f"{app.name}.short", retention=timedelta(hours=1))
        store.topic(f"{app.name}.ever")
    app.post("short", "a", **{"X-TTL": "3600"})
    app.post("ever", "a")
    refused = app.call("POST", "/ever", headers={"X-TTL": "3600"}, content=b"b")
    assert "keeps all of its for ever" in refused.json()["error_msg"]["ttl"]


@pytest.mark.parametrize(
    ("partition", "words"),
    [
        ("fred", '"fred" is not a number'),
        ("4", "4 is greater than maximum value 1"),
        ("0", "0 is less than minimum value 1"),
    ],
)
def test_a_partition_that_is_none(app, partition, words):
    queue = app.make()
    one = app.call("POST", f"/{queue}", headers={"X-Partition": partition}, content=b"a")
    assert (one.status_code, one.json()["error_msg"]) == (400, {"partition": words})
    batch = {"messages": [{"body": "a"}, {"body": "b", "partition": partition}]}
    many = app.call("POST", f"/{queue}", headers=JSON, json=batch)
    assert (many.status_code, many.json()["error_msg"]) == (400, {"1.partition": words})
    assert app.messages(queue) == []


def test_a_message_needs_a_body(app):
    queue = app.make()
    for options in ({"content": b""}, {"content": b"\xff"}):
        assert told(app.call("POST", f"/{queue}", **options)) == (400, "error", ["body"])
    assert app.call("POST", f"/{queue}", content=b"").json()["error_msg"]["body"] == "Required"


@pytest.mark.parametrize("name", ["blip", "blip" * 13, "a%2fb", "..", "%00", "ü", "-"])
def test_a_queue_that_there_is_not(app, name):
    answer = app.call("POST", f"/{name}", content=b"a")
    assert answer.status_code == (405 if "2f" in name else 404)
    assert app.call("GET").json()["queues"] == []


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ({"partitions": "1,fred"}, "partitions"),
        ({"partitions": ",".join(["1"] * 201)}, "partitions"),
        ({"order": "undefined"}, "order"),
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"since": "yesterday"}, "since"),
        ({"since": "1,5"}, "since"),
        ({"sinec": "1"}, "sinec"),
    ],
)
def test_a_read_that_is_refused_names_the_field(app, words, field):
    assert told(app.call("GET", f"/{app.make()}", params=words)) == (400, "error", [field])


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ({"principles": "app:queuey,apple:oranges"}, "principles"),
        ({"principles": "apple:oranges"}, "principles"),
        ({"partitions": "-1"}, "partitions"),
        ({"partitions": "201"}, "partitions"),
        ({"type": "worker"}, "type"),
        ({"consistency": "none"}, "consistency"),
        ({"queue_name": "a" * 51}, "queue_name"),
        ({"queue_name": "a/b"}, "queue_name"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_queue_that_cannot_be_made(app, words, field):
    assert told(app.call("POST", data=words)) == (400, "error", [field])
    assert app.call("GET").json()["queues"] == []


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_an_id_that_is_no_hex(app, method):
    assert told(app.call(method, f"/{app.make()}/2:asdfasdfasdfadsfasdf")) == (
        400,
        "error",
        ["InvalidMessageID"],
    )


@pytest.mark.parametrize(
    "text",
    [b"[this isnt good}", b"[]", b'{"messages": 1}', b'{"messages": ["a"]}', b"{}", b"\xff", b"[" * 5000],
)
def test_json_that_is_none(app, text):
    answer = app.call("POST", f"/{app.make()}", headers=JSON, content=text)
    assert told(answer) == (400, "error", ["InvalidParameter"])


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"body": 1}, "0.body"),
        ({"body": ""}, "0.body"),
        ({}, "0.body"),
        ({"body": "a", "colour": "red"}, "0.colour"),
        ({"body": "a", "partition": True}, "0.partition"),
        ({"body": "a", "ttl": 1.5}, "0.ttl"),
    ],
)
def test_a_message_of_a_batch_that_is_refused(app, message, field):
    queue = app.make()
    answer = app.call("POST", f"/{queue}", headers=JSON, json={"messages": [message, {"body": "fine"}]})
    assert told(answer) == (400, "error", [field])
    assert app.messages(queue) == []


def test_a_text_that_is_no_unicode_is_refused(app):
    text = b'{"messages": [{"body": "\\ud800"}]}'
    assert app.call("POST", f"/{app.make()}", headers=JSON, content=text).status_code == 400


@pytest.mark.parametrize("key", ["Application OOPS", "Application", "Basic OOPS", "OOPS"])
def test_a_key_that_is_none(http, app, key):
    answer = http.post(app.root, headers={"Authorization": key})
    assert told(answer) == (401, "error", ["InvalidApplicationKey"])


def test_a_path_that_is_none(http):
    assert http.post("/blah").status_code == 404


# What is ours besides.


def test_a_queue_is_a_topic_that_python_has_too(serving, app):
    queue = app.make(queue_name="news", partitions=2)
    with cassq.connect(serving.url) as store:
        topic = store.find_topic(f"{app.name}.news")
        assert (topic.partitions, topic.settings.retention) == (2, timedelta(days=3))
        topic.publish("from Python: ü".encode(), partition=0)
        topic.publish(b"\xff\x00", partition=0)
        (posted,) = app.post(queue, "from Queuey", **{"X-Partition": "2"})
        assert topic.read(1).messages[0].body == b"from Queuey"
    found = app.messages("news", partitions="1,2")
    assert [(each["body"], each.get("encoding")) for each in found] == [
        ("from Python: ü", None),
        ("/wA=", "base64"),
        ("from Queuey", None),
    ]
    assert found[2]["message_id"] == posted["key"]


def test_a_queue_that_is_made_again_is_opened_and_keeps_its_messages(app):
    queue = app.make(queue_name="a", partitions=2)
    app.post(queue, {"body": "1", "partition": 1})
    assert app.make(queue_name="a", type="public") == "a"
    assert (app.info("a")["type"], app.info("a")["partitions"]) == ("public", 2)
    assert app.bodies("a") == ["1"]


def test_a_later_queue_of_a_name_has_nothing_of_the_earlier_one(serving, app, nobody, other):
    queue = app.make(queue_name="a", type="public", principles=f"app:{other.name}")
    first = app.info("a")["created"]
    assert nobody.bodies(queue) == []
    with cassq.connect(serving.url) as store:  # whoever deletes it there knows nothing of Queuey
        store.delete_topic(f"{app.name}.a")
        store.topic(f"{app.name}.a").publish(b"secret")
    assert told(nobody.call("GET", "/a")) == (403, "error", ["AccessDenied"])
    info = app.info("a")
    assert (info["type"], info["principles"], info["created"]) == ("user", "", None)
    assert first is not None
    assert app.bodies("a") == ["secret"]


def test_principles_say_who_reads(app, other, serving, http, nobody):
    queue = app.make(principles=f"app:{other.name}, bid:ben@mozilla.org")
    app.post(queue, "for another")
    theirs = App(http, app.name, None)
    theirs.key = other.key
    assert theirs.bodies(queue) == ["for another"]
    assert told(app.call("GET", f"/{queue}")) == (403, "error", ["AccessDenied"])
    assert told(nobody.call("GET", f"/{queue}")) == (403, "error", ["AccessDenied"])
    for method, path in (("POST", f"/{queue}"), ("DELETE", f"/{queue}"), ("PUT", f"/{queue}"), ("GET", "")):
        assert told(theirs.call(method, path)) == (404, "error", ["InvalidApplication"])
    hidden = app.make()
    for path in (f"/{hidden}", "/never-made"):
        assert theirs.call("GET", path).json() == theirs.call("GET", "/x").json()
    third = App(http, app.name, None)
    third.key = {"Authorization": f"Application {serving.unused.popitem()[1]}"}
    assert told(third.call("GET", f"/{queue}")) == (404, "error", ["InvalidApplication"])


def test_since_for_several_partitions_is_a_time(app):
    queue = app.make(partitions=2)
    first = app.post(queue, {"body": "1", "partition": 1}, {"body": "2", "partition": 2})
    app.post(queue, {"body": "3", "partition": 2})
    assert app.bodies(queue, since=first[0]["key"], partitions="1,2")[-2:] == ["2", "3"]
    assert app.bodies(queue, since=uuid.uuid1().hex, partitions="1,2") == []
    assert app.bodies(queue, since="99999999999", partitions="1,2") == []
    assert app.bodies(queue, since="99999999999", partitions="1,2", order="descending") == ["1", "3", "2"]
    assert app.bodies(queue, since="0", partitions="1,2", order="descending") == []


def test_an_id_that_no_message_has_says_a_time_alone(app):
    queue = app.make()
    app.post(queue, "1")
    (posted,) = app.post(queue, "2")
    place = parse_since(posted["key"]).place
    before = place._replace(published_at_ms=place.published_at_ms - 3_600_000).hex
    after = place._replace(published_at_ms=place.published_at_ms + 3_600_000).hex
    assert app.bodies(queue, since=before) == ["1", "2"]
    assert app.bodies(queue, since=after) == []
    assert app.bodies(queue, since=after, order="descending") == ["2", "1"]
    assert app.bodies(f"{queue}/1:{before},1:{after}") == []


def test_a_page_is_read_on_by_the_id_of_its_last_message(app):
    queue = app.make()
    app.post(queue, *({"body": str(number)} for number in range(250)))
    found, since = [], None
    while page := app.messages(queue, limit=100, **({"since": since} if since else {})):
        fresh = [each for each in page if each["message_id"] != since]
        if not fresh:
            break
        found += [each["body"] for each in fresh]
        since = page[-1]["message_id"]
    assert found == [str(number) for number in range(250)]


def test_since_an_id_that_retention_deleted_begins_with_what_is_left(serving, app):
    queue = app.make(queue_name="a")
    (gone,) = app.post(queue, "1")
    with cassq.connect(serving.url) as store:
        store.find_topic(f"{app.name}.a").clear()
    app.post(queue, "2")
    assert app.bodies(queue, since=gone["key"]) == ["2"]
    assert app.bodies(queue, since=gone["key"], order="descending") == []
    assert app.messages(f"{queue}/1:{gone['key']}") == []


def test_more_than_one_answer_has_is_refused_where_something_would_be_left_out(app):
    queue = app.make(partitions=2)
    large = "x" * 900_000
    for partition in (1, 2):
        for _ in range(3):
            app.post(queue, large, **{"X-Partition": str(partition)})
    assert len(app.messages(queue, partitions="1")) == 3
    assert told(app.call("GET", f"/{queue}", params={"partitions": "1,2"})) == (400, "error", ["partitions"])
    assert len(app.messages(queue, partitions="1,2", limit=2)) == 4


def test_bodies_that_are_too_large_are_refused(app):
    queue = app.make()
    assert app.call("POST", f"/{queue}", content=b"x" * (1024 * 1024 + 1)).status_code == 413
    assert app.call("POST", f"/{queue}", headers=JSON, content=b" " * 5_000_000).status_code == 413


def test_an_operator_names_all_applications(serving, http, app):
    from cassq.gate.applications import Right  # noqa: PLC0415

    chief = App(http, app.name, serving.key("chief", rights=set(Right)))
    queue = app.make(principles="app:nobody")
    app.post(queue, "1")
    assert chief.bodies(queue) == ["1"]
    assert [each["queue_name"] for each in chief.call("GET").json()["queues"]] == [queue]


LOCKED = [each for each in ROUTES if each.path != "/__heartbeat__"]


@pytest.mark.parametrize("route", LOCKED, ids=[f"{each.method} {each.path}" for each in LOCKED])
class TestEachRoute:
    """A route that is added is here by itself."""

    @pytest.fixture
    def ask(self, app, route, serving):
        """Call the route for a queue that holds a secret, which is its application's alone."""
        with cassq.connect(serving.url) as store:
            store.topic(f"{app.name}.a").publish(b'"secret"')
            store.queue(f"{app.name}.w").push(b'"secret"')
        place = MessagePlace(1, 0, 1).hex
        queue = "w" if route.path.startswith("/queue/{queue}/") else "a"
        path = route.path.format(application=app.name, queue=queue, ids=f"1:{place}")

        def call(**headers):
            named = {"X-Application-Name": app.name}
            return app.http.request(route.method, path, headers={**named, **headers})

        yield call
        with cassq.connect(serving.url) as store:
            assert len(store.find_topic(f"{app.name}.a").read(0).messages) == 1
            assert store.find_queue(f"{app.name}.w").stats().waiting == 1
            assert store.find_queue(f"{app.name}.w").stats().committed == 0

    def test_nobody_without_a_key_gets_in(self, ask):
        assert told(ask()) == (403, "error", ["AccessDenied"])

    def test_nobody_with_a_wrong_key_gets_in(self, ask, app):
        good = app.key["Authorization"]
        for wrong in ("Application x", f"Application {Key.new()}", good[:-1] + "_", good.replace("App", "B")):
            assert told(ask(Authorization=wrong)) == (401, "error", ["InvalidApplicationKey"])
        assert told(ask(Authorization=good, ApplicationKey="x")) == (401, "error", ["InvalidApplicationKey"])

    def test_another_application_does_not_hear_what_there_is(self, ask, other):
        answer = ask(**other.key)
        assert told(answer) == (404, "error", ["InvalidApplication"])
        assert "secret" not in answer.text


def test_no_token_or_key_is_told_in_an_error(app):
    key = app.key["Authorization"].partition(" ")[2]
    token = cassq.Lease(bytes(4), uuid.uuid1(), 1, 1, uuid.uuid4(), 1).to_text()
    for given in ({"reservations": [token], token: 1}, {"reservations": [token], "limit": token}):
        for call in ("reserve", "verify"):
            headers = {"X-Application-Name": app.name}
            answer = app.http.post(f"/queue/a/{call}", headers={**headers, **app.key}, json=given)
            assert answer.status_code == 400
            assert token not in answer.text
            assert token[12:40] not in answer.text
            assert key not in answer.text


def test_heartbeat_needs_no_key(http):
    assert http.head("/__heartbeat__").status_code == 200
    assert http.get("/__heartbeat__").json() == {"status": "ok"}


def test_without_the_option_nothing_of_it_is_there(tmp_path):
    plain = Serving(f"sqlite:///{tmp_path}/store.db", "--open")
    try:
        with plain.client(None) as client:
            for path in ("/queue/a", "/queuey/v1/shop", "/__heartbeat__"):
                assert client.get(path).status_code == 404
    finally:
        plain.end()


def test_with_open_everybody_is_an_operator(tmp_path):
    serving = Serving(f"sqlite:///{tmp_path}/store.db", "--open", "--queuey")
    try:
        with serving.client(None) as client:
            shop = App(client, "shop", None)
            queue = shop.make()
            shop.post(queue, "1")
            assert shop.bodies(queue) == ["1"]
            page = {"Origin": "https://evil.example"}
            for path in (f"/{queue}", ""):
                assert told(shop.call("GET", path, headers=page)) == (403, "error", ["AccessDenied"])
    finally:
        serving.end()

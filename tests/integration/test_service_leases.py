"""Leases over HTTP: two services on one store, clients that come and go, and tokens that are none."""

import base64
import json
import signal
import threading

import pytest
from support.patience import until
from support.raw_sockets import ask
from support.serving import WAIT_S, Serving, keys_of

import cassq

#: Of these each test has one: a service hears of a new one after a second or two.
APPLICATIONS = [f"app{number}" for number in range(60)]

LEASE_MS = 300_000


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('service')}/orders.db"


@pytest.fixture(scope="module")
def keys(url):
    return dict(zip(APPLICATIONS, keys_of(url, *APPLICATIONS), strict=True))


@pytest.fixture(scope="module")
def servings(url, keys):
    """Two processes of one store."""
    assert keys
    made = [Serving(url), Serving(url)]
    yield made
    for each in made:
        each.end()


@pytest.fixture
def application(keys):
    """An application that no other test has, and its key."""
    return keys.popitem()


class Client:
    """A client of one queue at one process.

    Attributes:
        path: of the queue.
    """

    def __init__(self, serving, key, name="orders"):
        self.serving = serving
        self.path = f"/v1/queues/{name}"
        self._http = serving.client(key)
        self._key = key

    def put(self, **options):
        return self._http.put(self.path, **options)

    def post(self, path, **options):
        return self._http.post(self.path + path, **options)

    def wait(self, seconds=60):
        """Return a raw connection whose request for a lease is under way."""
        raw = self.serving.connect()
        body = json.dumps({"wait_s": seconds}).encode()
        head = (
            f"POST {self.path}/lease HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {self._key}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\nExpect: 100-continue\r\n\r\n"
        )
        raw.sendall(head.encode())
        assert raw.recv(1000).startswith(b"HTTP/1.1 100")
        raw.sendall(body)
        return raw

    def close(self):
        self._http.close()


@pytest.fixture
def at(request):
    """Make clients that are closed with the test."""

    def make(*values):
        made = Client(*values)
        request.addfinalizer(made.close)
        return made

    return make


@pytest.fixture
def start(url, request):
    """Start a further process, which ends with the test at the latest."""

    def make():
        made = Serving(url)
        request.addfinalizer(made.end)
        return made

    return make


@pytest.fixture
def here(at, servings, application):
    client = at(servings[0], application[1])
    assert client.put(json={"lease_ms": LEASE_MS, "max_attempts": 3}).status_code == 201
    return client


@pytest.fixture
def there(at, servings, application, here):
    """The same application at the other process."""
    assert here
    return at(servings[1], application[1])


@pytest.fixture
def queue(url, application, here):
    """The queue, as a program of the store has it."""
    with cassq.connect(url) as store:
        yield store.find_queue(f"{application[0]}.orders")


def push(client, *bodies):
    lines = b"".join(json.dumps({"body": each}).encode() + b"\n" for each in bodies)
    answer = client.post("/messages", content=lines, headers={"Content-Type": "application/x-ndjson"})
    assert answer.json()["pushed"] == len(bodies)


def lease(client, count=1, wait_s=20, **options):
    answer = client.post("/lease", json={"count": count, "wait_s": wait_s}, **options)
    assert answer.status_code in {200, 204}, answer.text
    return answer.json()["leases"] if answer.status_code == 200 else []


def lease_one(client, count=1):
    (leased,) = lease(client, count)
    return leased


def bodies(leased):
    return [each["body"] for each in leased["messages"]]


def commit(client, *tokens):
    answer = client.post("/commit", json={"leases": tokens})
    return answer.status_code, answer.json()["outcomes"]


class TestALease:
    def test_has_the_messages_and_what_they_were_pushed_with(self, here):
        here.post(
            "/messages", params={"priority": 3, "type": "new"}, headers={"Cassq-Header-A": "ü".encode()}
        )
        here.post("/messages", content=b"\xff", params={"priority": 3, "type": "new"})

        found = []
        while len(found) < 2:
            leased = lease_one(here, 2)
            assert 0 < leased["left_s"] <= LEASE_MS / 1000
            assert (len(leased["lease"]), leased["attempt"]) == (76, 1)
            found += leased["messages"]

        first, second = found
        assert (first["body"], first["encoding"], first["headers"]) == ("", "utf-8", {"a": "ü"})
        assert (second["body"], second["encoding"]) == (base64.b64encode(b"\xff").decode(), "base64")
        assert (first["priority"], first["type"]) == (3, "new")

    def test_is_none_where_nothing_waits(self, here):
        assert here.post("/lease").status_code == 204
        assert here.post("/lease", json={"wait_s": 0.2}).status_code == 204

    def test_is_told_as_lines(self, here):
        push(here, "one", "two")
        answer = here.post("/lease", json={"count": 2}, headers={"Accept": "application/x-ndjson"})

        assert answer.headers["content-type"] == "application/x-ndjson"
        lines = [json.loads(line) for line in answer.text.splitlines()]
        assert [each["message"]["body"] for each in lines] == ["one", "two"]
        assert commit(here, *{each["lease"] for each in lines}) == (200, ["committed"])

    def test_of_one_message_is_told_as_it_is(self, here, queue):
        queue.push(b"\x00\xff", {"colour": "blau", "ort": "Köln", "Big": "a", "two": " a\x1fb"})
        answer = here.post("/lease", headers={"Accept": "application/octet-stream"})

        assert answer.content == b"\x00\xff"
        told = {name.decode().lower(): value.decode() for name, value in answer.headers.raw}
        assert (told["cassq-header-colour"], told["cassq-header-ort"]) == ("blau", "Köln")
        assert json.loads(told["cassq-headers"]) == {"Big": "a", "two": " a\x1fb"}
        assert commit(here, told["cassq-lease"]) == (200, ["committed"])

    def test_as_it_is_has_one_message(self, here):
        headers = {"Accept": "application/octet-stream"}
        answer = here.post("/lease", json={"count": 2}, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-option")

    def test_comes_to_who_waits_at_whatever_process(self, here, there):
        found = []
        waiting = [threading.Thread(target=lambda c=c: found.extend(lease(c, 1, 60))) for c in (here, there)]
        for each in waiting:
            each.start()
        push(here, "one", "two")
        for each in waiting:
            each.join(WAIT_S)

        assert sorted(body for leased in found for body in bodies(leased)) == ["one", "two"]

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            ({"count": 0}, "count"),
            ({"count": 1001}, "count"),
            ({"wait_s": 61}, "wait_s"),
            ({"wait_s": -1}, "wait_s"),
            ({"wait": 1}, "wait"),
        ],
    )
    def test_that_breaks_a_rule_is_refused_by_name(self, here, body, words):
        answer = here.post("/lease", json=body)
        assert answer.status_code == 400
        assert words in answer.json()["detail"]

    def test_is_refused_where_messages_have_keys(self, here):
        here.post("/messages", params={"key": "customer"}, content=b"x")
        answer = here.post("/lease")
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-option")
        assert "keys" in answer.json()["detail"]


class TestACommit:
    def test_at_another_process_is_as_good(self, here, there, queue):
        push(here, "one", "two", "three")
        first, second = lease_one(here), lease_one(there)
        third = lease_one(here)

        assert commit(there, first["lease"], third["lease"]) == (200, ["committed", "committed"])
        assert commit(here, second["lease"]) == (200, ["committed"])
        assert commit(there, first["lease"], first["lease"]) == (200, ["ended", "ended"])
        assert queue.stats().committed == 3

    def test_tells_of_each_and_fails_where_none_stands(self, here, there):
        push(here, "one", "two")
        gone, stays = lease_one(here), lease_one(here)
        here.post("/settle", json={"lease": gone["lease"], "rollback": [{"delay_s": 0}]}).raise_for_status()

        assert commit(there, gone["lease"], stays["lease"]) == (200, ["expired", "committed"])
        answer = there.post("/commit", json={"leases": [gone["lease"]]})
        assert (answer.status_code, answer.json()["code"]) == (409, "delivery-expired")
        assert answer.json()["outcomes"] == ["expired"]

    def test_of_a_thousand_is_one_call(self, here, there):
        push(here, *map(str, range(40)))
        tokens = [lease_one(here)["lease"] for _ in range(40)]

        assert commit(there, *(tokens * 25)) == (200, ["committed"] * 1000)

    def test_of_a_process_that_was_killed_is_taken_by_another_one(self, start, at, here, queue, application):
        push(here, "one")
        serving = start()
        leased = lease_one(at(serving, application[1]))
        serving.end()

        assert commit(here, leased["lease"]) == (200, ["committed"])
        assert queue.stats().committed == 1


class TestASettlement:
    def test_rolls_back_rejects_and_commits(self, here, there, queue):
        push(here, "one", "two", "three")
        leased = lease_one(here, 3)
        _, second, third = (each["id"] for each in leased["messages"])

        answer = there.post(
            "/settle",
            json={
                "lease": leased["lease"],
                "rollback": [{"id": second, "delay_s": 0, "reason": "later"}],
                "reject": [{"id": third, "reason": "never"}],
            },
        )

        assert answer.json() == {"outcome": "committed"}
        again = lease_one(here)
        assert (bodies(again), again["attempt"]) == (["two"], 2)
        letters = until(lambda: queue.reap() and list(queue.dead.peek(10)))
        assert [(each.body, each.reason) for each in letters] == [(b"three", "never")]
        assert queue.stats().committed == 1
        assert there.post("/settle", json={"lease": leased["lease"]}).status_code == 409

    def test_without_an_id_is_of_all_that_are_not_named(self, here, there, queue):
        push(here, "one", "two", "three")
        leased = lease_one(here, 3)
        first = leased["messages"][0]["id"]

        there.post(
            "/settle",
            json={"lease": leased["lease"], "rollback": [{"delay_s": 3600}], "reject": [{"id": first}]},
        ).raise_for_status()

        stats = queue.stats()
        assert (stats.delayed, stats.committed) == (2, 0)

    @pytest.mark.parametrize(
        ("settlement", "words"),
        [
            ({"rollback": [{}, {}]}, "two entries have no id"),
            ({"rollback": [{}], "reject": [{}]}, "two entries have no id"),
            ({"rollback": [{"id": "ID"}], "reject": [{"id": "ID"}]}, "twice"),
            ({"reject": [{"id": "00000000-0000-1000-8000-000000000000:1"}]}, "is not of lease"),
            ({"reject": [{"id": "nonsense"}]}, "is no id"),
            ({"rollback": [{"delay_s": 8 * 86_400}]}, "604800s"),
            ({"rollback": [{"delay_s": -1}]}, "delay_s"),
        ],
    )
    def test_that_breaks_a_rule_writes_nothing(self, here, settlement, words):
        push(here, "one")
        leased = lease_one(here)
        text = json.dumps({"lease": leased["lease"], **settlement})
        answer = here.post(
            "/settle",
            content=text.replace('"ID"', json.dumps(leased["messages"][0]["id"])),
            headers={"Content-Type": "application/json"},
        )

        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-option")
        assert words in answer.json()["detail"]
        assert commit(here, leased["lease"]) == (200, ["committed"])


class TestTime:
    @pytest.fixture
    def brief(self, at, servings, application):
        """Clients of a queue with a short lease, at two processes."""
        here, there = (at(serving, application[1], "brief") for serving in servings)
        here.put(json={"lease_ms": 1000, "clock_skew_max_ms": 100}).raise_for_status()
        return here, there

    def test_what_nobody_settles_comes_to_the_next_client(self, brief):
        here, there = brief
        push(here, "one")
        gone = lease_one(here)

        (again,) = until(lambda: lease(there))

        assert (bodies(again), again["attempt"]) == (["one"], 2)
        assert commit(here, gone["lease"])[0] == 409
        assert commit(here, again["lease"]) == (200, ["committed"])

    def test_what_is_extended_anywhere_does_not(self, brief):
        here, there = brief
        push(here, "one")
        leased = lease_one(here)
        left = []

        def extend(client):
            (told,) = client.post("/extend", json={"leases": [leased["lease"]]}).json()["outcomes"]
            assert told["outcome"] == "extended"
            left.append(told["left_s"])

        for client in (there, here) * 3:
            extend(client)
            assert lease(client, wait_s=0.4) == []

        assert all(0 < each <= 1 for each in left)
        assert commit(there, leased["lease"]) == (200, ["committed"])
        answer = here.post("/extend", json={"leases": [leased["lease"]]})
        assert answer.json()["outcomes"] == [{"outcome": "ended", "left_s": 0.0}]


def test_a_client_that_left_gets_nothing_and_no_attempt_counts(here, queue):
    for number in range(30):
        raw = here.wait()
        if number % 2:
            raw.close()
        queue.push(b"%d" % number)
        raw.close()
        # Whatever was on its way when the client left comes to the next one, as it was.
        leased = lease_one(here)
        assert (bodies(leased), leased["attempt"]) == ([str(number)], 1)
        assert commit(here, leased["lease"]) == (200, ["committed"])


def test_who_waits_when_the_queue_is_deleted_hears_of_it_and_a_new_one_is_leased_from(here, queue, url):
    raw = here.wait()
    until(lambda: queue._context.coordinator.hungry(queue.name))
    with cassq.connect(url) as store:
        store.delete_queue(queue.name)
        assert ask(raw, b"").startswith(b"HTTP/1.1 404")
        raw.close()
        made = store.queue(queue.name)
        made.push(b"new")

        def leased():
            answer = here.post("/lease", json={"wait_s": 20})
            return answer.status_code == 200 and answer.json()["leases"]

        (found,) = until(leased)

    assert bodies(found) == ["new"]


def test_who_waits_and_whose_key_is_revoked_gets_nothing(here, there, queue, application):
    raw = here.wait()
    until(lambda: queue._context.coordinator.hungry(queue.name))
    here.serving.applications(lambda found: found.delete(application[0]))
    until(lambda: here.post("/lease", json={}).status_code == 401)

    queue.push(b"one")

    assert ask(raw, b"").startswith(b"HTTP/1.1 401")
    raw.close()
    with queue.lessor() as lessor:
        (leased,) = lessor.lease(1, WAIT_S)
    assert [(each.body, each.attempt) for each in leased.messages] == [(b"one", 1)]


def test_who_waits_when_the_process_ends_gets_an_empty_answer_and_leases_stand(
    start, at, here, application, queue
):
    push(here, "one")
    serving = start()
    ending = at(serving, application[1])
    leased = lease_one(ending)
    waiting = [ending.wait() for _ in range(5)]
    until(lambda: queue._context.coordinator.hungry(queue.name))

    code, _ = serving.stop(signal.SIGTERM)

    assert code == 0
    for raw in waiting:
        assert ask(raw, b"").startswith(b"HTTP/1.1 204")
        raw.close()
    assert commit(here, leased["lease"]) == (200, ["committed"])


class TestTokens:
    @pytest.mark.parametrize("call", ["commit", "extend", "settle"])
    def test_that_are_none_are_refused_and_hardly_told(self, here, there, call):
        push(here, "one")
        leased = lease_one(here)["lease"]

        def post(token):
            body = {"lease": token} if call == "settle" else {"leases": [token]}
            return there.post(f"/{call}", json=body)

        for place in range(0, len(leased), 5):
            altered = leased[:place] + ("A" if leased[place] != "A" else "B") + leased[place + 1 :]
            answer = post(altered)
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid-option")
            assert altered[12:] not in answer.text
            assert altered[12:30] not in answer.text
        for wrong in ("", "x", leased[:-1], leased + "A", "ü" * 76, "\0" * 76):
            assert post(wrong).status_code == 400
        assert commit(there, leased) == (200, ["committed"])

    def test_that_are_put_where_none_belongs_are_hardly_told(self, here):
        push(here, "one")
        token = lease_one(here)["lease"]
        for path, body in (
            (f"/{token}", {}),
            (f"$/../{token}$/lease", {}),
            (f"/messages/{token}", {}),
            (f"/commit?{token}=1", {}),
            (f"/commit?a={token}", {}),
            ("/commit", {token: 1}),
            ("/commit", {"leases": [f"x{token}"]}),
            ("/commit", {"leases": {token: token}}),
            ("/settle", {"lease": token, "reject": [{"id": token}]}),
            ("/settle", {"lease": token, "reject": [{token: token}]}),
        ):
            answer = here.post(path, json=body)
            assert 400 <= answer.status_code < 500
            assert token[12:24] not in answer.text
        assert commit(here, token) == (200, ["committed"])

    @pytest.mark.parametrize("call", ["commit", "extend", "settle"])
    def test_of_another_queue_or_application_do_nothing(
        self, at, here, there, keys, servings, application, call
    ):
        push(here, "one")
        leased = lease_one(here)["lease"]
        _, foreign = keys.popitem()
        for other in (at(servings[0], foreign), at(servings[0], application[1], "others")):
            other.put().raise_for_status()
            body = {"lease": leased} if call == "settle" else {"leases": [leased]}
            answer = other.post(f"/{call}", json=body)
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid-option")
            assert "of another queue" in answer.json()["detail"]
            assert leased[12:] not in answer.text
        assert commit(there, leased) == (200, ["committed"])

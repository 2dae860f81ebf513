"""Dead letters, figures and the tail of a queue over HTTP."""

import json
from datetime import UTC, datetime

import pytest
from support.patience import until
from support.serving import Serving, keys_of

import cassq
from cassq.gate.keys import Key
from cassq.http import letter_forms
from cassq.http import letters as letters_module
from cassq.http.letters import REDRIVES_MAX

#: Of these each test has one: a service hears of a new one after a second or two.
APPLICATIONS = [f"app{number}" for number in range(40)]

QUEUE = "/v1/queues/orders"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('service')}/orders.db"


@pytest.fixture(scope="module")
def keys(url):
    return dict(zip(APPLICATIONS, keys_of(url, *APPLICATIONS), strict=True))


@pytest.fixture(scope="module")
def serving(url, keys):
    assert keys
    made = Serving(url)
    yield made
    made.end()


@pytest.fixture
def application(keys):
    return keys.popitem()


@pytest.fixture
def client(serving, application):
    with serving.client(application[1]) as made:
        assert made.put(QUEUE).status_code == 201
        yield made


def push(client, *bodies, **headers):
    lines = b"".join(json.dumps({"body": each, "headers": headers}).encode() + b"\n" for each in bodies)
    many = {"Content-Type": "application/x-ndjson"}
    assert client.post(f"{QUEUE}/messages", content=lines, headers=many).json()["pushed"] == len(bodies)


@pytest.fixture
def bury(client, url, application):
    """Return what has messages become dead letters."""
    with cassq.connect(url) as store, store.find_queue(f"{application[0]}.orders").popper() as popper:

        def call(*bodies, reason="no such item", **headers):
            before = buried(client)
            push(client, *bodies, **headers)
            left = len(bodies)
            while left:
                popped = popper.pop_many(left, timeout=20)
                popper.reject_many(popped, reason)
                left -= len(popped)
            until(lambda: buried(client) == before + len(bodies))

        yield call


def buried(client):
    return client.get(f"{QUEUE}/stats").json()["dead_letters"]


def letters(client, **query):
    answer = client.get(f"{QUEUE}/dead", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["letters"]


def redrive(client, **given):
    """Return the lines of a redrive."""
    answer = client.post(f"{QUEUE}/dead/redrive", json=given)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


def waiting(client, queue=QUEUE):
    return sorted(each["body"] for each in client.get(f"{queue}/messages?limit=100").json()["messages"])


class TestLetters:
    def test_tell_why_they_died_and_come_in_pages(self, client, bury):
        bury(*"abcde", shop="north")

        first = client.get(f"{QUEUE}/dead", params={"limit": 3}).json()
        second = client.get(f"{QUEUE}/dead", params={"limit": 3, "after": first["next"]}).json()

        assert [each["body"] for each in first["letters"] + second["letters"]] == list("abcde")
        assert second["next"] is None
        letter = first["letters"][0]
        assert (letter["reason"], letter["attempts"], letter["headers"]) == (
            "no such item",
            1,
            {"shop": "north"},
        )
        assert datetime.fromisoformat(letter["died_at"]) >= datetime.fromisoformat(letter["pushed_at"])

    def test_of_large_messages_end_a_page_and_the_next_one_goes_on(self, client, bury):
        assert client.patch(QUEUE, json={"body_bytes_max": 2_000_000}).status_code == 200
        bodies = [str(number) * 1_500_000 for number in range(5)]
        bury(*bodies)
        found, after = [], None
        while after is not None or not found:
            page = client.get(
                f"{QUEUE}/dead", params={"limit": 5} | ({"after": after} if after else {})
            ).json()
            assert len(page["letters"]) <= 2
            found += [each["body"] for each in page["letters"]]
            after = page["next"]
        assert sorted(found) == bodies

    @pytest.mark.parametrize("query", [{"after": "x"}, {"limit": 0}, {"limit": 1001}, {"all": 1}])
    def test_asked_for_by_what_is_none_are_refused(self, client, query):
        answer = client.get(f"{QUEUE}/dead", params=query)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-option")


class TestRedrive:
    def test_of_all_pushes_them_again_and_tells_the_reasons(self, client, bury):
        bury("a", reason="busy")
        bury("b", "c", reason="gone")
        told = redrive(client, all=True)
        assert told[-1] == {"redriven": 3, "is_done": True, "reasons": {"busy": 1, "gone": 2}}
        assert waiting(client) == ["a", "b", "c"]
        assert letters(client) == []

    def test_of_ids_leaves_the_others(self, client, bury):
        bury(*"abc")
        ids = [each["id"] for each in letters(client)]
        assert redrive(client, ids=ids[:2])[-1]["redriven"] == 2
        assert [each["id"] for each in letters(client)] == ids[2:]

    def test_of_some_by_reason_header_and_age(self, client, bury):
        bury("a", reason="time-out of x", shop="north")
        bury("b", reason="time-out of y", shop="south")
        bury("c", reason="gone", shop="north")
        assert redrive(client, where={"older_s": 3600})[-1]["redriven"] == 0
        assert (
            redrive(client, where={"reason": "time-out*", "headers": {"shop": "north"}})[-1]["redriven"] == 1
        )
        assert waiting(client) == ["a"]

    def test_into_another_queue_or_not_at_all(self, client, bury):
        bury(*"ab")
        assert client.put("/v1/queues/others").status_code == 201
        assert redrive(client, all=True, dry_run=True)[-1]["redriven"] == 2
        assert len(letters(client)) == 2
        assert redrive(client, all=True, target="others", limit=1)[-1]["redriven"] == 1
        assert waiting(client, "/v1/queues/others") == ["a"]
        assert [each["body"] for each in letters(client)] == ["b"]

    def test_that_is_slow_tells_how_far_it_is_and_ends_with_its_client(self, client, bury):
        bury(*map(str, range(9)))
        with client.stream("POST", f"{QUEUE}/dead/redrive", json={"all": True, "rate_max": 1}) as answer:
            for line in answer.iter_lines():
                if json.loads(line)["redriven"] >= 2:
                    break
        left = len(letters(client))
        assert 0 < left <= 7
        seen = []
        until(lambda: seen.append(len(letters(client))) or seen.count(seen[-1]) > 20)
        assert len(waiting(client)) + len(letters(client)) == 9
        assert letters(client)

    @pytest.mark.parametrize(
        ("given", "status"),
        [
            ({}, 400),
            ({"all": True, "ids": ["x"]}, 400),
            ({"ids": ["x"]}, 400),
            ({"ids": []}, 400),
            ({"all": True, "rate_max": 0}, 400),
            ({"all": True, "target": "none"}, 404),
            ({"all": True, "target": "../x"}, 400),
        ],
    )
    def test_of_what_is_none_or_by_a_slip_is_refused(self, client, bury, given, status):
        bury("a")
        assert client.post(f"{QUEUE}/dead/redrive", json=given).status_code == status
        assert len(letters(client)) == 1

    def test_into_a_queue_of_another_application_finds_none(self, client, bury, url):
        with cassq.connect(url) as store:
            store.queue("bank.orders")
        bury("a")
        answer = client.post(f"{QUEUE}/dead/redrive", json={"all": True, "target": "bank.orders"})
        assert (answer.status_code, answer.json()["code"]) == (404, "queue-not-found")


class TestDiscard:
    def test_removes_those_that_are_named_or_all(self, client, bury):
        bury(*"abc")
        ids = [each["id"] for each in letters(client)]
        assert client.delete(f"{QUEUE}/dead", params={"ids": ",".join(ids[:2])}).json()["count"] == 2
        assert client.delete(f"{QUEUE}/dead", params={"confirm": "orders"}).json()["count"] == 1
        assert letters(client) == []

    def test_tells_of_those_that_are_not_there_how_many_were(self, client, bury):
        bury("a")
        ids = [letters(client)[0]["id"], "00000000-0000-1000-8000-000000000000:1"]
        answer = client.delete(f"{QUEUE}/dead", params={"ids": ",".join(ids)})
        assert (answer.status_code, answer.json()["code"]) == (404, "dead-letter-not-found")
        assert answer.json()["done"] == 1

    @pytest.mark.parametrize(
        "query", [{}, {"confirm": "others"}, {"ids": ""}, {"ids": "x", "confirm": "orders"}]
    )
    def test_by_a_slip_removes_nothing(self, client, bury, query):
        bury("a")
        assert client.delete(f"{QUEUE}/dead", params=query).status_code == 400
        assert len(letters(client)) == 1


class TestFigures:
    def test_of_pipes_and_runs_are_those_of_the_library(self, client, url, application):
        push(client, *"abc")
        leased = client.post(f"{QUEUE}/lease", json={"count": 2, "wait_s": 20}).json()["leases"][0]
        (pipe,) = client.get(f"{QUEUE}/pipes").json()["pipes"]
        (run,) = client.get(f"{QUEUE}/runs").json()["runs"]
        assert (pipe["pushed"], pipe["pending"]) == (3, 2)
        assert leased["messages"][0]["id"].startswith(run["pipe"])
        assert leased["lease"] not in json.dumps(run)
        with cassq.connect(url) as store:
            queue = store.find_queue(f"{application[0]}.orders")
            assert [each.to_json()["pipe"] for each in queue.pipes()] == [pipe["pipe"]]
            assert [each.to_json() for each in queue.runs()] == [run]

    def test_of_a_day_are_those_that_were_counted(self, client):
        for query in ({}, {"day": datetime.now(UTC).date().isoformat()}):
            assert client.get(f"{QUEUE}/rollups", params=query).json() == {"rollups": []}
        assert client.get(f"{QUEUE}/rollups", params={"day": "yesterday"}).status_code == 400

    def test_of_a_topic_settings_can_be_altered(self, client):
        client.put("/v1/topics/news")
        answer = client.patch("/v1/topics/news", json={"retention_ms": 3_600_000})
        assert answer.json()["settings"]["retention_ms"] == 3_600_000
        assert client.patch("/v1/topics/news", json={"retention_ms": -1}).status_code == 400
        assert client.patch("/v1/topics/none", json={}).status_code == 404


class TestTail:
    def events(self, answer):
        kind = None
        for line in answer.iter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield kind, json.loads(line.removeprefix("data: "))

    def test_tells_figures_again_and_again_and_what_waits_and_takes_nothing(self, client):
        push(client, "a")
        with client.stream("GET", f"{QUEUE}/tail") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            events = self.events(answer)
            kind, told = next(events)
            assert (kind, told["queue"], told["waiting"]) == ("stats", "orders", 1)
            kind, told = next(events)
            assert (kind, [each["body"] for each in told["messages"]]) == ("messages", ["a"])
            push(client, "b")
            found = next(told for kind, told in events if kind == "messages")
            assert sorted(each["body"] for each in found["messages"]) == ["a", "b"]
        assert waiting(client) == ["a", "b"]

    def test_ends_when_the_key_is_revoked_or_the_queue_is_deleted(self, client, serving, application):
        with client.stream("GET", f"{QUEUE}/tail") as answer:
            events = self.events(answer)
            assert next(events)[0] == "stats"
            assert client.delete(QUEUE).status_code == 200
            assert [told["code"] for kind, told in events if kind == "error"] == ["queue-not-found"]
        client.put(QUEUE)
        with client.stream("GET", f"{QUEUE}/tail") as answer:
            events = self.events(answer)
            assert next(events)[0] == "stats"
            key = Key.parse(application[1]).id
            serving.applications(lambda found: found.revoke_key(application[0], key))
            assert [told["code"] for kind, told in events if kind == "error"] == ["key-refused"]

    def test_of_no_queue_is_404(self, client):
        assert client.get("/v1/queues/none/tail").status_code == 404


class TestRedrivesAtOnce:
    """How many run at once, and how they end."""

    def test_as_many_as_are_allowed_run_and_their_clients_leave(self, client, bury):
        bury(*map(str, range(2 * REDRIVES_MAX)))
        given, held = {"all": True, "rate_max": 0.02}, []
        url = f"{QUEUE}/dead/redrive"
        for _ in range(REDRIVES_MAX):
            request = client.build_request("POST", url, json=given)
            held.append(client.send(request, stream=True))
        assert [each.status_code for each in held] == [200] * REDRIVES_MAX
        assert client.post(url, json=given).status_code == 503
        for each in held:
            each.close()
        # Though each would rest for 50 s.
        until(lambda: client.post(url, json={"all": True, "dry_run": True}).status_code == 200)

    def test_one_whose_client_left_looks_at_no_further_letter(self):
        given = letter_forms.Redrive(all=True)
        redriving = letters_module._Redriving(lambda _: False, given)
        redriving.end()
        with pytest.raises(letters_module._EndedError):
            redriving._is_meant(None)

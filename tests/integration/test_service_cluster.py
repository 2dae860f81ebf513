"""`cassq serve` on real Cassandra and ZooKeeper: two processes, one store."""

import json
import secrets
import signal

import pytest
from support.patience import until
from support.serving import Serving

import cassq
from cassq.gate.keys import Key

pytestmark = pytest.mark.service


@pytest.fixture
def servings(cluster_url):
    """Two services of one store, each a process of its own."""
    made = [Serving(cluster_url), Serving(cluster_url)]
    yield made
    for each in made:
        each.end()


def test_two_services_push_publish_follow_and_hear_of_a_revoked_key(servings, cluster_url):
    name = f"app{secrets.token_hex(4)}"
    first, second = servings
    key = first.key(name)
    with first.client(key) as one, second.client(key) as other:
        until(lambda: other.get("/v1/queues").status_code == 200)
        assert one.put("/v1/queues/orders").status_code == 201
        assert other.put("/v1/queues/orders").status_code == 200
        lines = b"".join(b'{"body": "%d"}\n' % number for number in range(2500))
        many = {"Content-Type": "application/x-ndjson"}
        assert one.post("/v1/queues/orders/messages", content=lines, headers=many).json()["pushed"] == 2500
        for number in range(2500, 2520):
            assert other.post("/v1/queues/orders/messages", content=b"%d" % number).status_code == 201
        assert one.get("/v1/queues/orders/stats").json()["waiting"] == 2520
        one.put("/v1/topics/news", json={"partitions": 2})

        with other.stream("GET", "/v1/topics/news/follow", params={"start": "earliest"}) as stream:
            for number in range(20):
                place = {"partition": number % 2}
                assert (
                    one.post("/v1/topics/news/messages", params=place, content=b"%d" % number).status_code
                    == 201
                )
            events, found = stream.iter_lines(), []
            for line in events:
                if line.startswith("data: "):
                    found.append(json.loads(line.removeprefix("data: "))["body"])
                if len(found) == 20:
                    break
            assert sorted(map(int, found)) == list(range(20))
            assert [each for each in found if int(each) % 2] == [str(number) for number in range(1, 20, 2)]
            second.applications(lambda applications: applications.revoke_key(name, Key.parse(key).id))
            told = [line for line in events if line.startswith("data: ")]
            assert json.loads(told[-1].removeprefix("data: "))["code"] == "key-refused"

        until(lambda: one.get("/v1/queues").status_code == 401)
        assert other.get("/v1/queues").status_code == 401
    with cassq.connect(cluster_url) as store, store.queue(f"{name}.orders").popper() as popper:
        found = []
        while len(found) < 2520:
            found += popper.pop_many(2520 - len(found), timeout=30)
        popper.commit_many(found)
        assert sorted(int(each.body) for each in found) == list(range(2520))
        store.delete_queue(f"{name}.orders")
        store.delete_topic(f"{name}.news")
    for each in servings:
        assert each.stop(signal.SIGTERM)[0] == 0


def test_what_one_service_leases_another_one_settles_also_once_the_first_was_killed(servings, cluster_url):
    name = f"app{secrets.token_hex(4)}"
    first, second = servings
    key = first.key(name)
    with first.client(key) as one, second.client(key) as other:
        until(lambda: other.get("/v1/queues").status_code == 200)
        path = "/v1/queues/orders"
        brief = {"lease_ms": 2000, "clock_skew_max_ms": 500}
        assert one.put(path, json=brief).status_code == 201

        def lease(client, count):
            answer = client.post(f"{path}/lease", json={"count": count, "wait_s": 60})
            assert answer.status_code == 200
            return answer.json()["leases"]

        lines = b"".join(b'{"body": "%d"}\n' % number for number in range(40))
        many = {"Content-Type": "application/x-ndjson"}
        assert one.post(f"{path}/messages", content=lines, headers=many).status_code == 201
        (leased,) = lease(one, 4)
        told = other.post(f"{path}/extend", json={"leases": [leased["lease"]]}).json()["outcomes"]
        assert told[0]["outcome"] == "extended"
        back = {"id": leased["messages"][0]["id"], "delay_s": 0}
        settled = other.post(f"{path}/settle", json={"lease": leased["lease"], "rollback": [back]})
        assert settled.json() == {"outcome": "committed"}
        ended = [each["body"] for each in leased["messages"][1:]]
        dropped = lease(one, 5)  # whose client is never heard of again
        late = lease(one, 5)
        first.process.kill()
        tokens = [each["lease"] for each in late]
        told = other.post(f"{path}/commit", json={"leases": tokens}).json()["outcomes"]
        assert set(told) <= {"committed", "expired"}  # by a slow machine its time may be over
        ended += [
            message["body"]
            for each, how in zip(late, told, strict=True)
            if how == "committed"
            for message in each["messages"]
        ]
        while len(ended) < 40:
            found = lease(other, 10)
            outcomes = other.post(f"{path}/commit", json={"leases": [each["lease"] for each in found]})
            for each, how in zip(found, outcomes.json()["outcomes"], strict=True):
                ended += [message["body"] for message in each["messages"]] if how == "committed" else []
        assert sorted(map(int, ended)) == list(range(40))
        assert all(each["attempt"] == 1 for each in dropped)
        assert other.get(f"{path}/stats").json()["committed"] == 40
        other.delete(path)


def test_two_services_answer_clients_of_queuey_on_one_store(cluster_url, request):
    first, second = (Serving(cluster_url, "--queuey") for _ in range(2))
    request.addfinalizer(first.end)
    request.addfinalizer(second.end)
    name = f"app{secrets.token_hex(4)}"
    key = first.key(name)
    with first.client(key) as one, second.client(key) as other, second.client(None) as nobody:
        until(lambda: other.get("/v1/queues").status_code == 200)
        root, named = f"/queuey/v1/{name}", {"X-Application-Name": name}
        queue = one.post(root, data={"partitions": 2, "type": "public"}).json()["queue_name"]
        batch = {"messages": [{"body": str(number), "partition": number % 2 + 1} for number in range(40)]}
        posted = one.post(f"{root}/{queue}", json=batch).json()["messages"]
        for client in (other, nobody):
            for number in (0, 17, 39):
                words = {"since": posted[number]["key"], "partitions": number % 2 + 1}
                found = client.get(f"{root}/{queue}", params=words).json()["messages"]
                assert [each["body"] for each in found] == [str(each) for each in range(number, 40, 2)]
                assert found[0]["timestamp"] == posted[number]["timestamp"]
        assert one.put(f"{root}/{queue}", data={"type": "user"}).status_code == 200
        assert nobody.get(f"{root}/{queue}").status_code == 403

        one.post("/queue", headers=named, data={"queue_name": "jobs", "type": "worker"})
        one.post("/queue/jobs", headers=named, json={"n": 1})
        reserved = one.post("/queue/jobs/reserve", headers=named, json={"wait": 20}).json()["reservations"]
        given = {"reservations": [each["reservation"] for each in reserved]}
        done = other.post("/queue/jobs/verify", headers=named, json=given)
        assert (done.status_code, done.json()["outcomes"]) == (200, ["committed"])


def test_the_clients_of_a_group_lose_nothing_when_a_service_is_killed(servings, cluster_url):
    name = f"app{secrets.token_hex(4)}"
    first, second = servings
    key = first.key(name)
    with first.client(key) as one, second.client(key) as other:
        until(lambda: other.get("/v1/queues").status_code == 200)
        path = "/v1/topics/news/groups/readers"
        assert one.put("/v1/topics/news", json={"partitions": 2}).status_code == 201
        assert other.put(path).status_code == 201
        for partition in range(2):
            lines = b"".join(b'{"body": "%d"}\n' % (30 * partition + each) for each in range(30))
            many = {"Content-Type": "application/x-ndjson"}
            place = {"partition": partition}
            told = one.post("/v1/topics/news/messages", params=place, content=lines, headers=many)
            assert told.json()["published"] == 30
        done = []

        def work(client, committer):
            answer = client.post(f"{path}/lease", json={"count": 5, "wait_s": 60})
            assert answer.status_code == 200
            told = committer.post(f"{path}/commit", json={"lease": answer.json()["lease"]})
            assert told.status_code == 200
            done.extend(int(each["body"]) for each in answer.json()["messages"])

        work(one, other)
        work(one, one)
        left = one.post(f"{path}/lease", json={"count": 5, "wait_s": 60}).json()
        first.process.kill()
        assert other.post(f"{path}/commit", json={"lease": left["lease"]}).status_code == 200
        done.extend(int(each["body"]) for each in left["messages"])
        while len(done) < 60:
            work(other, other)
        assert sorted(done) == list(range(60))
        assert [each["lag"] for each in other.get(path).json()["partitions"]] == [0, 0]
        other.delete("/v1/topics/news")

"""Groups over HTTP: two services on one store, clients that come and go, and tokens that are none."""

import json
import re
import signal
import threading
from pathlib import Path

import pytest
from support.patience import until
from support.serving import Serving, keys_of

import cassq

WAIT_S = 20

#: Of these each test has one: a service hears of a new one after a second or two.
APPLICATIONS = [f"app{number}" for number in range(20)]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('service')}/news.db"


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
    """A client of one group at one process."""

    topic = "/v1/topics/news"
    path = "/v1/topics/news/groups/readers"

    def __init__(self, serving, key):
        self._http = serving.client(key)

    def post(self, path, **options):
        return self._http.post(self.path + path, **options)

    def get(self, path=""):
        return self._http.get(self.path + path)

    def put(self, path="", **options):
        return self._http.put(path or self.path, **options)

    def publish(self, partition, *bodies):
        lines = b"".join(json.dumps({"body": each}).encode() + b"\n" for each in bodies)
        many = {"Content-Type": "application/x-ndjson"}
        answer = self._http.post(
            f"{self.topic}/messages", params={"partition": partition}, content=lines, headers=many
        )
        assert answer.json()["published"] == len(bodies)

    def lease(self, wait_s=WAIT_S, **options):
        answer = self.post("/lease", json={"wait_s": wait_s, **options})
        assert answer.status_code in {200, 204}, answer.text
        return answer.json() if answer.status_code == 200 else None

    def commit(self, leased):
        return self.post("/commit", json={"lease": leased["lease"]})

    def lags(self):
        return [each["lag"] for each in self.get().json()["partitions"]]

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
def here(at, servings, application):
    client = at(servings[0], application[1])
    assert client.put(Client.topic, json={"partitions": 2}).status_code == 201
    assert client.put().status_code == 201
    return client


@pytest.fixture
def there(at, servings, application, here):
    """The same application at the other process."""
    assert here
    return at(servings[1], application[1])


def bodies(leased):
    return [each["body"] for each in leased["messages"]]


def test_each_partition_has_one_client_at_a_time_and_what_is_committed_comes_no_more(here):
    here.publish(0, "a", "b", "c")
    here.publish(1, "x")

    first, second = here.lease(count=2), here.lease(count=2)
    nothing = here.lease(0)

    assert sorted([bodies(first), bodies(second)]) == [["a", "b"], ["x"]]
    assert nothing is None
    assert here.commit(first).json() == {"outcome": "committed"}
    assert here.commit(second).status_code == 200
    third = here.lease()
    assert bodies(third) == ["c"]
    assert (third["partition"], third["messages"][0]["offset"]) == (0, 3)
    assert here.commit(third).status_code == 200
    assert here.lags() == [0, 0]


def test_a_client_that_waits_hears_of_what_is_published(here):
    found = []
    waiting = threading.Thread(target=lambda: found.append(here.lease(60)))
    waiting.start()
    here.publish(1, "new")
    waiting.join()
    assert bodies(found[0]) == ["new"]


def test_what_one_process_leases_another_one_commits_and_a_commit_may_be_repeated(here, there):
    here.publish(0, *"abcd")
    leased = here.lease(count=2)

    assert there.commit(leased).json() == {"outcome": "committed"}
    assert here.commit(leased).json() == {"outcome": "committed"}
    rest = here.lease(count=10)
    assert bodies(rest) == ["c", "d"]
    assert here.commit(leased).status_code == 200
    assert there.commit(rest).status_code == 200
    assert there.lags() == [0, 0]


def test_who_takes_too_long_is_given_up_and_is_told_so_and_touches_nothing(here):
    here.publish(0, *"ab")
    slow = here.lease(lease_s=1)
    other = here.lease()

    answer = here.commit(slow)

    assert bodies(slow) == bodies(other) == ["a", "b"]
    assert other["epoch"] > slow["epoch"]
    assert (answer.status_code, answer.json()["code"]) == (409, "partition-lost")
    assert here.lags() == [2, 0]
    assert here.commit(other).status_code == 200
    assert here.commit(slow).status_code == 409
    assert here.lags() == [0, 0]


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_what_is_given_back_comes_at_once_and_its_token_is_good_no_more(here, there, is_elsewhere):
    here.publish(0, "a")
    leased = here.lease()
    client = there if is_elsewhere else here

    assert client.post("/release", json={"lease": leased["lease"]}).json() == {"outcome": "released"}
    again = here.lease()

    assert bodies(again) == ["a"]
    assert client.commit(leased).status_code == 409
    assert here.commit(again).status_code == 200


def test_a_process_without_clients_lets_others_have_what_it_has(here, there):
    here.publish(0, "a")
    here.publish(1, "x")
    leased = here.lease()  # its process has both partitions
    assert here.commit(leased).status_code == 200
    other = there.lease(60)
    assert there.commit(other).status_code == 200
    assert sorted(bodies(leased) + bodies(other)) == ["a", "x"]


def test_the_partitions_of_a_process_that_is_killed_go_to_others_and_nothing_is_skipped(
    at, url, here, application
):
    doomed = Serving(url)
    client = at(doomed, application[1])
    here.publish(0, *map(str, range(40)))
    here.publish(1, *map(str, range(40, 80)))
    until(lambda: client.get().status_code == 200)
    done = []
    for _ in range(3):
        leased = client.lease(count=5)
        assert here.commit(leased).status_code == 200
        done += bodies(leased)
    left = client.lease(count=5)
    doomed.process.kill()
    assert here.commit(left).status_code == 200  # nobody has taken its partition yet
    done += bodies(left)
    while len(done) < 80:
        leased = here.lease(60, count=7)
        assert here.commit(leased).status_code == 200
        done += bodies(leased)
    assert sorted(map(int, done)) == list(range(80))
    doomed.end()


def test_a_process_that_ends_tells_who_waits_and_lets_others_have_its_partitions(at, url, here, application):
    ending = Serving(url)
    client = at(ending, application[1])
    until(lambda: client.get().status_code == 200)
    found = []
    waiting = threading.Thread(target=lambda: found.append(client.lease(60)))
    waiting.start()
    until(lambda: here.get().json()["partitions"][0]["owner"])
    assert ending.stop(signal.SIGTERM)[0] == 0
    waiting.join()
    here.publish(0, "a")
    assert found == [None]
    assert bodies(here.lease()) == ["a"]


def test_a_client_that_left_while_it_waited_takes_nothing_along(here, servings, application):
    body = b'{"wait_s": 60}'
    with servings[0].connect() as raw:
        raw.sendall(
            f"POST {Client.path}/lease HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {application[1]}\r\nContent-Length: {len(body)}\r\n"
            "Expect: 100-continue\r\n\r\n".encode()
        )
        assert raw.recv(1000).startswith(b"HTTP/1.1 100")
        raw.sendall(body)
    here.publish(0, "a")
    assert bodies(here.lease()) == ["a"]


def test_a_reset_fences_those_who_have_something_and_all_comes_again(here):
    here.publish(0, "a", "b")
    leased = here.lease()
    assert here.commit(leased).status_code == 200
    told = here.post("/reset", json={"to": "earliest"}).json()
    assert [each["lag"] for each in told["partitions"]] == [2, 0]
    assert here.commit(leased).status_code == 409
    again = here.lease()
    assert bodies(again) == ["a", "b"]
    assert here.post("/reset", json={"to": "0:2"}).status_code == 200
    assert here.commit(again).status_code == 409
    assert bodies(here.lease()) == ["b"]


@pytest.mark.parametrize("to", ["never", "7:1", "1:0", "2026-01-01T00:00:00"])
def test_a_reset_to_what_is_no_place_is_refused(here, to):
    answer = here.post("/reset", json={"to": to})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-option")


def test_a_token_of_another_group_or_altered_is_refused_and_moves_nothing(here, application):
    here.publish(0, "a")
    leased = here.lease()
    other = here.put(f"{Client.topic}/groups/others")
    assert other.status_code == 201
    token = leased["lease"]
    places = range(0, len(token), 7)
    altered = [token[:each] + ("A" if token[each] != "A" else "B") + token[each + 1 :] for each in places]
    others = f"{Client.topic}/groups/others"
    for path, given in [(others, token), *((Client.path, each) for each in [*altered, "", "x"])]:
        answer = here._http.post(f"{path}/commit", json={"lease": given})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-option")
        assert token not in answer.text
    assert here.lags() == [1, 0]
    assert here.commit(leased).status_code == 200


def test_a_group_that_is_none_is_404_and_one_that_was_made_anew_knows_no_old_tokens(here):
    here.publish(0, "a")
    leased = here.lease()
    assert here._http.delete(Client.path).json()["state"] == "deleted"
    for answer in (here.commit(leased), here.post("/lease", json={}), here.get()):
        assert (answer.status_code, answer.json()["code"]) == (404, "group-not-found")
    assert here.put(json={"start": "latest"}).status_code == 201
    assert here.put(json={"start": "earliest"}).status_code == 200
    assert here.commit(leased).status_code == 400
    assert here.lease(0) is None
    assert here._http.get(f"{Client.topic}/groups").json()["names"] == ["readers"]


def test_a_subscription_is_no_group_of_clients(here, url, application):
    with cassq.connect(url) as store:
        store.queue(f"{application[0]}.orders")
        store.find_topic(f"{application[0]}.news").declare_subscription(f"{application[0]}.orders")
    path = f"{Client.topic}/groups/{application[0]}.orders"
    answer = here._http.post(f"{path}/lease", json={})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-option")


def test_consumers_in_python_share_a_group_with_clients(here, url, application):
    here.publish(0, "a")
    here.publish(1, "x")
    found = []
    with (
        cassq.connect(url) as store,
        store.find_topic(f"{application[0]}.news").consumer("readers") as consumer,
    ):
        while len(found) < 2:
            for message in consumer.poll(10, 0.2):
                message.done()
                found.append(message.body.decode())
            if leased := here.lease(0.2):
                assert here.commit(leased).status_code == 200
                found += bodies(leased)
    assert sorted(found) == ["a", "x"]


def test_waits_need_no_thread_each(servings, here, application):
    until(lambda: here.lags() == [0, 0])
    process = servings[0].process

    def threads():
        status = Path(f"/proc/{process.pid}/status").read_text("utf-8")
        return int(re.search(r"Threads:\s+(\d+)", status)[1])

    assert here.lease(0) is None
    before = threads()
    clients = [servings[0].client(application[1]) for _ in range(80)]
    answers = []

    def wait(client):
        answers.append(client.post(f"{Client.path}/lease", json={"wait_s": 5}, timeout=60).status_code)

    waiting = [threading.Thread(target=wait, args=(each,)) for each in clients]
    for each in waiting:
        each.start()
    most = 0
    while any(each.is_alive() for each in waiting):
        most = max(most, threads())
        waiting[0].join(0.1)
    for each in waiting:
        each.join()
    for each in clients:
        each.close()
    assert answers == [204] * 80
    assert most < before + 40  # those of the executor, which all requests share

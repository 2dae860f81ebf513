"""What a service refuses: each route without a key, with a wrong one, without the right; names and bodies
that lead elsewhere; and that no secret is told or logged.
"""

import json
import re
import signal
import time
from pathlib import Path

import httpx
import pytest
from support.patience import until
from support.raw_sockets import ask, receive
from support.serving import ALL, Serving, keys_of

import cassq
from cassq.gate import Right, to_networks
from cassq.gate.keys import Key
from cassq.http.bodies import JSON_MAX
from cassq.http.table import ROUTES

NDJSON = {"Content-Type": "application/x-ndjson"}
LOCKED = [route for route in ROUTES if route.right is not None]
MESSAGE_ID = "00000000-0000-1000-8000-000000000000:1"
#: What each route is sent so that it does what it says, if it is let in.
BODIES = {
    "purge": {"confirm": "orders"},
    "commit": {"leases": ["x"]},
    "extend": {"leases": ["x"]},
    "settle": {"lease": "x"},
    "redrive": {"all": True},
}
OF_GROUPS = {"reset": {"to": "earliest"}, "commit": {"lease": "x"}, "release": {"lease": "x"}}


def _id(route):
    return f"{route.method} {route.path}"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('service')}/orders.db"


@pytest.fixture(scope="module")
def keys(url):
    """Keys by the names of their applications."""
    found = dict(zip(("shop", "bank"), keys_of(url, "shop", "bank"), strict=True))
    for right in Right:
        found[f"no-{right.value}"] = keys_of(url, f"no-{right.value}", rights=ALL - {right})[0]
    found["chief"] = keys_of(url, "chief", rights=set(Right))[0]
    found["slow"] = keys_of(url, "slow", rate=0.001)[0]
    found["remote"] = keys_of(url, "remote", allow=to_networks(["192.0.2.0/24"]))[0]
    return found


@pytest.fixture(scope="module")
def serving(url, keys):
    assert keys
    made = Serving(url)
    yield made
    made.end()


@pytest.fixture
def ask_as(serving):
    """Call a route with a key; return the answer."""
    clients = []

    def call(route, key, **options):
        client = serving.client(key)
        clients.append(client)
        path = route.path.format(queue="orders", topic="news", group="readers", id=MESSAGE_ID)
        call = path.rpartition("/")[2]
        body = (OF_GROUPS if "/groups/" in path else BODIES).get(call)
        with client.stream(route.method, path, json=body, **options) as answer:
            if answer.status_code != httpx.codes.OK or not route.path.endswith(("/follow", "/tail")):
                answer.read()
            return answer

    yield call
    for each in clients:
        each.close()


def changed(key):
    return key[:-1] + ("a" if key[-1] != "a" else "b")


@pytest.mark.parametrize("route", LOCKED, ids=_id)
class TestEachRoute:
    @pytest.mark.parametrize("wrong", ["none", "nonsense", "unknown", "altered", "basic", "two"])
    def test_nobody_without_a_key_gets_in(self, ask_as, serving, keys, route, wrong):
        key = {"nonsense": "x", "unknown": str(Key.new()), "altered": changed(keys["shop"])}.get(wrong)
        headers = {
            "basic": [("Authorization", f"Basic {keys['shop']}")],
            "two": [("Authorization", f"Bearer {keys['shop']}"), ("Authorization", "Bearer x")],
        }.get(wrong, [])

        answer = ask_as(route, key, headers=headers)

        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert answer.json()["code"] == "key-refused"

    def test_a_key_without_the_right_is_refused(self, ask_as, keys, route):
        answer = ask_as(route, keys[f"no-{route.right.value}"])
        assert (answer.status_code, answer.json()["code"]) == (403, "access-denied")

    def test_a_key_from_elsewhere_is_refused_whatever_it_says_of_itself(self, ask_as, keys, route):
        forged = {"X-Forwarded-For": "192.0.2.1", "X-Real-IP": "192.0.2.1", "Forwarded": "for=192.0.2.1"}
        answer = ask_as(route, keys["remote"], headers=forged)
        assert (answer.status_code, answer.json()["code"]) == (403, "access-denied")

    def test_a_key_of_another_application_sees_and_does_nothing_here(self, ask_as, url, keys, route):
        with cassq.connect(url) as store:
            store.queue("shop.orders").push(b"secret")
            store.topic("shop.news").publish(b"secret")
            store.topic("shop.news").declare_group("readers")
            answer = ask_as(route, keys["bank"])
            assert b"secret" not in getattr(answer, "_content", b"")
            assert b"shop" not in getattr(answer, "_content", b"")
            assert store.find_queue("shop.orders").stats().waiting > 0
            assert [each.next for each in store.find_topic("shop.news").lag("readers")] == [1]
            for name in [each for each in store.queues() if each.startswith("bank.")]:
                store.delete_queue(name)
            for name in [each for each in store.topics() if each.startswith("bank.")]:
                store.delete_topic(name)


def test_errors_name_no_queue_of_others_nor_the_store(serving, keys, url):
    with cassq.connect(url) as store:
        store.queue("shop.hidden")
        store.topic("shop.hidden")
    with serving.client(keys["bank"]) as client:
        for path in ("/v1/queues/none", "/v1/topics/none"):
            told = client.get(path).text
            assert "hidden" not in told
            assert "sqlite" not in told


def test_an_operator_names_the_queues_of_all(serving, keys, url):
    with cassq.connect(url) as store:
        store.queue("shop.orders")
    with serving.client(keys["chief"]) as client:
        assert client.get("/v1/queues/shop.orders").status_code == 200
        assert client.get("/v1/queues/orders").status_code == 404


def test_a_key_that_is_used_too_often_is_told_when_it_may_be_used_again(serving, keys):
    with serving.client(keys["slow"]) as client:
        assert client.get("/v1/queues").status_code == 200
        answer = client.get("/v1/queues")
    assert (answer.status_code, answer.json()["code"]) == (429, "rate-exceeded")
    assert 900 < int(answer.headers["retry-after"]) < 1100


@pytest.mark.parametrize(
    "name",
    [
        *(
            "..",
            ".",
            "..%2fother",
            "%2e%2e%2fother",
            "a%2fb",
            "a%00b",
            "%00",
            "%c3%bc",
            "%ff",
            ".a",
            "-a",
            "a%20b",
        ),
        *("a" * 130, "a%0d%0ab", "%252e%252e", "a\\b", "a;b", "cassq.journal/../x"),
    ],
)
@pytest.mark.parametrize("kind", ["queues", "topics"])
def test_a_path_that_leads_elsewhere_creates_nothing(serving, keys, url, name, kind):
    with serving.connect() as raw:
        answer = ask(
            raw,
            f"PUT /v1/{kind}/{name} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n"
            f"Authorization: Bearer {keys['bank']}\r\n\r\n".encode(),
        )

    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 404", b"HTTP/1.1 405"))
    with cassq.connect(url) as store:
        assert [each for each in [*store.queues(), *store.topics()] if not each.startswith("shop.")] == []


class TestBodies:
    @pytest.fixture
    def client(self, serving, keys):
        with serving.client(keys["shop"]) as client:
            client.put("/v1/queues/orders")
            yield client

    @pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "gzip, identity", "IDENTITY, gzip"])
    @pytest.mark.parametrize("media", ["application/octet-stream", "application/x-ndjson"])
    def test_what_is_compressed_is_refused(self, client, coding, media):
        headers = {"Content-Encoding": coding, "Content-Type": media}
        answer = client.post("/v1/queues/orders/messages", content=b"\x1f\x8b", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (415, "content-encoding")

    @pytest.mark.parametrize("how", ["declared", "counted"])
    @pytest.mark.parametrize(
        ("path", "headers", "size"),
        [
            ("/v1/queues/orders/messages", {}, 2 * 1024 * 1024),
            ("/v1/queues/orders/messages", NDJSON, 65 * 1024 * 1024),
            ("/v1/queues/orders/purge", {}, JSON_MAX + 65_536),
        ],
    )
    def test_what_is_too_large_is_refused(self, serving, client, keys, path, headers, size, how):
        # By hand: a client that sends all of it first may not read an answer that comes before.
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {keys['shop']}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        with serving.connect() as raw:
            if how == "declared":
                answer = ask(raw, f"{head}Content-Length: {size}\r\n\r\n".encode())
            else:
                raw.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
                chunk = b"10000\r\n" + b"{}\n" * 21845 + b"x" + b"\r\n"
                _, answer = send_until_answered(raw, chunk, size // 65536 + 1)

        expected = (
            (b"HTTP/1.1 413",) if how == "declared" or not headers else (b"HTTP/1.1 413", b"HTTP/1.1 400")
        )
        if how == "declared" or answer:
            assert answer.startswith(expected)

    def test_a_line_without_end_is_refused_and_is_not_kept(self, serving, client, keys):
        before = peak_memory(serving)
        with serving.connect() as raw:
            raw.sendall(
                b"POST /v1/queues/orders/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
                b"Content-Type: application/x-ndjson\r\n"
                + f"Authorization: Bearer {keys['shop']}\r\n\r\n".encode()
            )
            sent, answer = send_until_answered(raw, b"10000\r\n" + b"x" * 65536 + b"\r\n", 1000)

        assert sent < 1000
        # Of a client that goes on sending the kernel may throw away what it was answered.
        assert not answer or answer.startswith(b"HTTP/1.1 413")
        assert peak_memory(serving) - before < 100 * 1024 * 1024
        assert client.get("/healthz").status_code == 200

    @pytest.mark.parametrize("opened", [b"[", b'{"confirm":'])
    def test_json_ten_thousand_deep_is_refused(self, client, opened):
        answer = client.post(
            "/v1/queues/orders/purge", content=opened * 5000, headers={"Content-Type": "application/json"}
        )
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-option")

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b'{"confirm": 1}', "confirm"),
            (b"{}", "confirm"),
            (b'{"confirm": "orders", "all": 1}', "all"),
            (b"\xff", ""),
        ],
    )
    def test_a_body_that_breaks_the_form_is_refused_by_name(self, client, content, words):
        answer = client.post(
            "/v1/queues/orders/purge", content=content, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 400
        assert words in answer.json()["detail"]

    def test_a_form_of_a_web_page_is_refused(self, client):
        answer = client.post("/v1/queues/orders/purge", data={"confirm": "orders"})
        assert answer.status_code == 415

    def test_a_body_that_does_not_say_what_it_is_is_refused(self, client):
        answer = client.post("/v1/queues/orders/purge", content=b'{"confirm": "orders"}')
        assert (answer.status_code, answer.json()["code"]) == (415, "content-type")

    def test_an_idempotency_key_is_not_taken_for_a_promise(self, client):
        answer = client.post("/v1/queues/orders/messages", content=b"x", headers={"Idempotency-Key": "1"})
        assert (answer.status_code, answer.json()["code"]) == (501, "not-implemented")


def send_until_answered(raw, chunk, count):
    """Send the chunk until the connection ends, and so often at most; return how often, and the answer."""
    sent = 0
    try:
        while sent < count:
            raw.sendall(chunk)
            sent += 1
    except (BrokenPipeError, ConnectionResetError):
        pass
    answer = b""
    while part := receive(raw):
        answer += part
    return sent, answer


def peak_memory(serving):
    status = Path(f"/proc/{serving.process.pid}/status").read_text("utf-8")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


@pytest.mark.parametrize("path", ["/v1", "/", "/v2/queues", "/v1/queues/", "/v1/queues/orders/none"])
def test_a_path_that_is_none_is_404_as_a_problem(serving, keys, path):
    with serving.client(keys["shop"]) as client:
        answer = client.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


def test_a_method_that_is_none_is_405_and_says_which_are(serving, keys):
    with serving.client(keys["shop"]) as client:
        answer = client.put("/v1/queues/orders/stats")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


def test_a_revoked_key_is_refused_within_two_seconds(serving, url):
    key = serving.key("left")
    with serving.client(key) as client:
        assert client.get("/v1/queues").status_code == 200
        serving.applications(lambda found: found.revoke_key("left", Key.parse(key).id))
        begun = time.monotonic()
        until(lambda: client.get("/v1/queues").status_code == 401)
        # Not how quick the machine is: what is known two seconds later is not what was known before.
        while time.monotonic() - begun < 2:
            client.get("/v1/queues")
        assert client.get("/v1/queues").status_code == 401


def test_guesses_do_not_slow_a_good_client_down_to_a_standstill(serving, keys):
    with serving.client(str(Key.new())) as guesser, serving.client(keys["shop"]) as client:
        for _ in range(300):
            assert guesser.get("/v1/queues").status_code == 401
        assert client.get("/v1/queues").status_code == 200


def test_no_key_or_token_is_in_what_a_process_says_or_in_its_arguments(tmp_path):
    serving = Serving(f"sqlite:///{tmp_path}/orders.db", "--debug")
    key = serving.key("shop")
    with serving.client(key) as client:
        client.put("/v1/queues/orders")
        client.post("/v1/queues/orders/messages", content=b"body-of-a-message")
        client.get("/v1/queues/none")
        client.get("/v1/queues", params={"key": key})
        (leased,) = client.post("/v1/queues/orders/lease").json()["leases"]
        token = leased["lease"]
        for call in ("extend", "commit"):
            for each in (token, changed(token), token + "=" * 4):
                client.post(f"/v1/queues/orders/{call}", json={"leases": [each]})
        client.post("/v1/queues/orders/settle", json={"lease": token, "reject": [{"id": token}]})
        client.get(f"/v1/queues/{token}")
    with serving.client(changed(key)) as client:
        client.get("/v1/queues")
    assert b"cassq_" not in Path(f"/proc/{serving.process.pid}/cmdline").read_bytes()

    code, words = serving.stop(signal.SIGTERM)

    assert code == 0
    assert "/v1/queues/{queue}/messages 201" in words  # it does log
    assert "/v1/queues/{queue}/commit 200" in words
    assert token[12:30] not in words
    assert f"key {Key.parse(key).id}, from 127.0.0.1" in words
    assert f"key {Key.parse(key).id} (refused), from 127.0.0.1" in words
    assert Key.parse(key).secret not in words
    assert Key.parse(changed(key)).secret not in words
    assert "body-of-a-message" not in words


@pytest.fixture(scope="module")
def everybody(tmp_path_factory):
    made = Serving(f"sqlite:///{tmp_path_factory.mktemp('open')}/orders.db", "--open")
    yield made
    made.end()


class TestOpen:
    @pytest.mark.parametrize(
        "headers",
        [
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Host": "evil.example:8520"},
            {"Host": "127.0.0.1.evil.example"},
        ],
    )
    def test_a_web_page_does_and_sees_nothing(self, everybody, headers):
        with everybody.client(None) as client:
            client.put("/v1/queues/orders")
            for method, path in (
                ("POST", "/v1/queues/orders/messages"),
                ("POST", "/v1/queues/orders/pause"),
                ("GET", "/v1/queues"),
            ):
                answer = client.request(method, path, headers=headers)
                assert (answer.status_code, answer.json()["code"]) == (403, "access-denied")
            told = client.get("/v1/queues/orders/stats").json()
            assert (told["waiting"], told["state"]) == (0, "active")

    @pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.2:80", "[::1]:8520"])
    def test_who_is_on_this_machine_is_answered(self, everybody, host):
        with everybody.client(None) as client:
            headers = {"Host": host, "Sec-Fetch-Site": "none"}
            assert client.get("/v1/queues", headers=headers).status_code == 200


class TestBehindAProxy:
    def test_the_address_that_the_proxy_saw_counts_and_https_has_to_be_said(self, tmp_path):
        serving = Serving(f"sqlite:///{tmp_path}/orders.db", "--trusted-proxy", "127.0.0.1")
        (key,) = keys_of(serving.url, "shop", allow=to_networks(["192.0.2.0/24"]))
        saw = {"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "https"}
        with serving.client(key) as client:
            until(lambda: client.get("/v1/queues", headers=saw).status_code == 200)
            for headers, status in (
                ({"X-Forwarded-For": "192.0.2.7, 198.51.100.1"}, 403),
                ({"X-Forwarded-For": "198.51.100.1, 192.0.2.7"}, 200),
                ({"X-Forwarded-Proto": "http"}, 403),
                ({"X-Forwarded-For": "nonsense"}, 400),
            ):
                assert client.get("/v1/queues", headers={**saw, **headers}).status_code == status
            assert client.get("/v1/queues", headers={"X-Forwarded-For": "192.0.2.7"}).status_code == 403
        serving.end()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host", "0.0.0.0"], "could be read on their way"),
        (["--host", "0.0.0.0", "--open"], "loopback"),
        (["--open", "--trusted-proxy", "10.0.0.0/8"], "loopback"),
        (["--tls-cert", "/etc/hostname"], "go together"),
        (["--client-ca", "/etc/hostname"], "needs --tls-cert"),
        (["--trusted-proxy", "ten"], "is no network"),
        (["--trusted-proxy", "0.0.0.0/0"], "everybody"),
        (["--trusted-proxy", "unix"], "for --uds"),
        (["--uds", "/nowhere/at/all.sock"], "cannot be listened at"),
    ],
)
def test_what_would_let_in_everybody_or_nobody_is_refused_at_the_start(tmp_path, options, words):
    from command_line import CommandLine  # noqa: PLC0415

    done = CommandLine(f"sqlite:///{tmp_path}/orders.db").run("serve", "--port", 0, *options)
    assert done.returncode == 64
    assert words in done.stderr


def test_every_route_that_lets_everybody_in_tells_nothing(serving):
    told = {}
    for route in ROUTES:
        if route.right is None:
            told[route.path] = httpx.get(serving.base + route.path).json()
    assert told == {"/healthz": {"status": "alive"}, "/readyz": {"status": "ready"}}


def test_the_document_tells_no_names(serving):
    assert "shop" not in json.dumps(httpx.get(serving.base + "/openapi.json").json())

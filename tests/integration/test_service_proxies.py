"""The settings of proxies that the pages tell are enough: each runs as it stands, before a real service."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from support.patience import until
from support.serving import Serving, keys_of

from cassq.gate.addresses import to_networks

sys.path.append(str(Path(__file__).parents[1] / "docs"))

from pages import examples

WAIT_S = 30.0

NGINX = """
daemon off;
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {told}
}}
"""

CADDY = """
{{
    admin off
    auto_https disable_redirects
    storage file_system {folder}/caddy
}}
{told}
"""


def told_for(mark):
    (example,) = [each for each in examples() if each.mark == mark]
    return example.code


def run_nginx(folder, port, serving):
    told = told_for("nginx").replace("443 ssl", f"127.0.0.1:{port} ssl").replace("8520", str(serving.port))
    told = re.sub(r"/etc/ssl/queues\.example\.(pem|key)", rf"{folder}/\1", told)
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, told=told))
    return ["nginx", "-p", str(folder), "-c", str(config)]


def run_caddy(folder, port, serving):
    told = told_for("caddy").replace("8520", str(serving.port))
    told = told.replace("queues.example {", f"https://localhost:{port} {{\n\ttls {folder}/pem {folder}/key")
    config = folder / "Caddyfile"
    config.write_text(CADDY.format(folder=folder, told=told))
    return ["caddy", "run", "--config", str(config), "--adapter", "caddyfile"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("proxies")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key -out pem"
    subprocess.run(command.split(), cwd=folder, capture_output=True, check=True, timeout=60)
    return folder


@pytest.fixture(scope="module", params=["nginx", "caddy"])
def place(request, certificate, tmp_path_factory):
    """Where the proxy answers, and the service behind it."""
    if shutil.which(request.param) is None:
        pytest.skip(f"there is no {request.param} on PATH")
    folder = tmp_path_factory.mktemp(request.param)
    for name in ("pem", "key"):
        (folder / name).write_bytes((certificate / name).read_bytes())
    url = f"sqlite:///{folder}/orders.db"
    (key,) = keys_of(url, "shop")
    (remote,) = keys_of(url, "remote", allow=to_networks(["192.0.2.0/24"]))
    (near,) = keys_of(url, "near", allow=to_networks(["127.0.0.1", "::1"]))
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
    with contextlib.ExitStack() as stack:
        serving = Serving(url, "--trusted-proxy", "127.0.0.1")
        stack.callback(serving.end)
        serving.keys = {"shop": key, "remote": remote, "near": near}
        run = run_nginx if request.param == "nginx" else run_caddy
        with (folder / "log").open("wb") as log:
            proxy = subprocess.Popen(
                run(folder, port, serving),
                stdout=log,
                stderr=log,
                env=os.environ | {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder)},
            )
        stack.callback(proxy.wait, 30)
        stack.callback(proxy.kill)  # it would wait for streams
        base = f"https://localhost:{port}"
        until(lambda: _answers(base) or _ended(proxy, folder / "log"))
        yield base, serving


def _answers(base):
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{base}/healthz", verify=False).status_code == 200
    return False


def _ended(proxy, log):
    assert proxy.poll() is None, log.read_text("utf-8")


@pytest.fixture
def client(place):
    base, serving = place
    headers = {"Authorization": f"Bearer {serving.keys['shop']}"}
    with httpx.Client(base_url=base, headers=headers, verify=False, timeout=WAIT_S) as made:
        made.put("/v1/queues/orders").raise_for_status()
        made.put("/v1/topics/news", json={"partitions": 1}).raise_for_status()
        yield made
        made.post("/v1/queues/orders/purge", json={"confirm": "orders"}).raise_for_status()


@pytest.mark.parametrize("forged", [{}, {"X-Forwarded-For": "192.0.2.1"}])
def test_the_address_that_counts_is_the_clients_own(place, forged):
    base, serving = place
    told = {}
    for name in ("near", "remote"):
        headers = {"Authorization": f"Bearer {serving.keys[name]}", **forged}
        told[name] = httpx.get(f"{base}/v1/queues", headers=headers, verify=False).status_code

    assert told == {"near": 200, "remote": 403}


def test_an_event_arrives_while_its_stream_goes_on(client):
    with client.stream("GET", "/v1/topics/news/follow") as answer:
        lines = answer.iter_lines()
        assert next(lines) == ": the stream begins"
        for body in ("one", "two"):
            client.post("/v1/topics/news/messages", content=body).raise_for_status()
            assert body in next(line for line in lines if line.startswith("data:"))


def test_lines_are_pushed_while_others_are_on_their_way(client, place):
    _, serving = place
    direct = serving.client(serving.keys["shop"])
    direct.headers["X-Forwarded-Proto"] = "https"

    def lines():
        yield b'{"body": "x"}\n' * 1001
        yield b'{"body": "x"}\n' * 1000  # the proxy may keep what is less than a piece
        until(lambda: direct.get("/v1/queues/orders/stats").json()["waiting"] >= 1000)
        yield b'{"body": "last"}\n'

    headers = {"Content-Type": "application/x-ndjson"}
    with direct:
        answer = client.post("/v1/queues/orders/messages", content=lines(), headers=headers)

    assert answer.json()["pushed"] == 2002


def test_a_request_with_many_messages_and_a_wait_come_through(client):
    body = b'{"body": "%s"}\n' % (b"x" * 60_000) * 100
    headers = {"Content-Type": "application/x-ndjson"}

    many = client.post("/v1/queues/orders/messages", content=body, headers=headers)
    client.put("/v1/queues/empty").raise_for_status()
    none = client.post("/v1/queues/empty/lease", json={"wait_s": 2})

    assert (many.json()["pushed"], none.status_code) == (100, 204)


def test_large_headers_of_a_message_come_through(client):
    line = b'{"body": "x", "headers": {"large": "%s"}}\n' % (b"y" * 30_000)
    headers = {"Content-Type": "application/x-ndjson"}
    client.post("/v1/queues/orders/messages", content=line, headers=headers).raise_for_status()

    answer = client.post(
        "/v1/queues/orders/lease", json={"wait_s": 20}, headers={"Accept": "application/octet-stream"}
    )

    assert (answer.content, len(answer.headers["cassq-header-large"])) == (b"x", 30_000)
    client.post(
        "/v1/queues/orders/commit", json={"leases": [answer.headers["cassq-lease"]]}
    ).raise_for_status()

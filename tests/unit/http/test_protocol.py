"""Connections of clients that stop, are slow on purpose, or send too much: real sockets, short deadlines."""

import asyncio
import resource
import socket
import subprocess
import sys
import threading

import pytest
import uvicorn
from support.raw_sockets import ask, receive
from uvicorn.protocols.http.flow_control import FlowControl

from cassq.http import protocol
from cassq.http.protocol import DeadlineProtocol

WAIT_S = 30.0
PART = b"x" * (1024 * 1024)
PARTS = 32


class Server:
    """uvicorn in a thread, with an application that reads the body and answers with its size.

    Attributes:
        left: is set once the application heard that its client has left, or its answer was not taken.
        begun: is set once a request is there whole that is answered slowly.
    """

    def __init__(self, limit=None):
        self.left = threading.Event()
        self.begun = threading.Event()
        config = uvicorn.Config(
            self._answer,
            interface="asgi3",
            http=DeadlineProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_keep_alive=1,
            limit_concurrency=limit,
        )
        self._server = uvicorn.Server(config)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]})
        self._thread.start()

    async def _answer(self, scope, receive, send):
        size, message = 0, {"more_body": True}
        while message.get("more_body"):
            message = await receive()
            if message["type"] == "http.disconnect":
                self.left.set()
                return
            size += len(message["body"])
        if scope["path"] == "/slow":  # this side is slow, not the client
            self.begun.set()
            await asyncio.sleep(3 * protocol.BODY_S)
        if scope["path"] == "/large":
            await self._answer_much(receive, send)
            return
        body = str(size).encode()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer_much(self, receive, send):
        """Send more than a connection holds, and never its end."""
        headers = [(b"content-length", b"%d" % (2 * PARTS * len(PART)))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for _ in range(PARTS):
            await send({"type": "http.response.body", "body": PART, "more_body": True})
        await receive()  # the answer has not ended, so this does when the client has left
        self.left.set()

    def connect(self):
        return socket.create_connection(self._socket.getsockname(), timeout=WAIT_S)

    def close(self):
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join()


@pytest.fixture
def server(monkeypatch):
    for name in ("HEADERS_S", "BODY_S", "TAKE_S"):
        monkeypatch.setattr(protocol, name, 0.3)
    made = Server()
    yield made
    made.close()


def get(server):
    with server.connect() as raw:
        return ask(raw, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")


@pytest.mark.parametrize(
    "sent",
    [b"GET", b"GET / HTTP/1.1\r\nHost", b"GET / HTTP/1.1\r\nHost: x\r\n"],
    ids=["method", "header", "no end"],
)
def test_headers_that_do_not_come_end_the_connection(server, sent):
    with server.connect() as raw:
        assert ask(raw, sent).startswith(b"HTTP/1.1 408")
    assert get(server).startswith(b"HTTP/1.1 200")


def test_a_connection_on_which_nothing_comes_ends_without_a_word(server):
    with server.connect() as raw:
        assert ask(raw, b"") == b""


SLOW = b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"


@pytest.mark.parametrize("is_apart", [False, True], ids=["in one piece", "apart"])
@pytest.mark.parametrize(
    "behind",
    [
        b"\r\n",
        b"GET / HT",
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: " + b"a" * 100_000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["line", "half", "garbage", "large", "half a body", "bad body"],
)
def test_what_comes_behind_a_request_that_is_under_way_is_not_its_answer(server, behind, is_apart):
    with server.connect() as raw:
        if is_apart:
            raw.sendall(SLOW)
            assert server.begun.wait(WAIT_S)
            answer = ask(raw, behind)
        else:
            answer = ask(raw, SLOW + behind)

    assert answer.startswith(b"HTTP/1.1 200")
    _, _, rest = answer.partition(b"\r\n\r\n")
    assert rest[:1] == b"3"
    assert rest[1:] == b"" or rest[1:].startswith(b"HTTP/1.1 408")


def test_requests_that_came_whole_are_answered_before_what_is_broken_behind_them_ends_the_connection(server):
    with server.connect() as raw:
        answer = ask(raw, SLOW + SLOW + b"GARBAGE\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200") == 2
    assert answer.count(b"HTTP/1.1") == 2


class Taken:
    """A connection of which a client takes what a test says; its timers are called by hand."""

    def __init__(self, size):
        self.size = size
        self.is_aborted = False
        self.timers = []

    def get_write_buffer_size(self):
        return self.size

    def abort(self):
        self.is_aborted = True

    def call_later(self, _seconds, call, *arguments):
        self.timers.append(lambda: call(*arguments))


def paused(taken):
    made = DeadlineProtocol.__new__(DeadlineProtocol)
    made.transport = made.loop = taken
    made.flow = FlowControl(taken)
    made.pause_writing()
    return taken


def test_a_client_that_takes_steadily_is_not_left_however_long_it_takes():
    taken = paused(Taken(1000 * protocol.TAKE_BYTES))
    for _ in range(999):
        taken.size -= protocol.TAKE_BYTES
        taken.timers.pop()()
        assert not taken.is_aborted


def test_a_client_that_takes_a_byte_now_and_then_is_left():
    taken = paused(Taken(10 * protocol.TAKE_BYTES))
    taken.size -= 1
    taken.timers.pop()()
    assert taken.is_aborted


@pytest.mark.parametrize(
    "head", [b"Content-Length: 10\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"]
)
def test_a_body_that_stops_ends_the_connection(server, head):
    with server.connect() as raw:
        assert ask(raw, b"POST / HTTP/1.1\r\nHost: x\r\n" + head).startswith(b"HTTP/1.1 408")
    assert server.left.wait(WAIT_S)


@pytest.mark.parametrize(
    "begun",
    [b"GET / HTTP/1.1\r\nHost: x\r\nA: ", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n"],
)
def test_a_client_that_sends_a_byte_now_and_then_is_not_waited_for(server, begun):
    with server.connect() as raw:
        raw.sendall(begun)
        raw.settimeout(0.05)
        answer = b""
        while not answer:
            try:
                answer = receive(raw)
            except TimeoutError:
                raw.sendall(b"a")
    assert answer.startswith(b"HTTP/1.1 408")


def test_a_second_request_of_a_connection_has_a_deadline_of_its_own(server):
    with server.connect() as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert raw.recv(1000).startswith(b"HTTP/1.1 200")
        assert b"408" in ask(raw, b"GET / HT")


def test_a_body_that_comes_whole_is_answered_whatever_this_side_takes(server):
    with server.connect() as raw:
        answer = ask(
            raw, b"POST /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"
        )
    assert answer.endswith(b"\r\n\r\n3")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 100_000,
        b"GET / HTTP/1.1\r\n" + b"".join(b"H%d: %s\r\n" % (n, b"a" * 90) for n in range(1000)) + b"\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a" * 100_000,
    ],
    ids=["one header", "without end", "many headers", "path", "a name"],
)
def test_headers_of_100_000_bytes_are_refused(server, sent):
    with server.connect() as raw:
        assert ask(raw, sent).startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))
    assert get(server).startswith(b"HTTP/1.1 200")


def test_headers_just_below_the_limit_are_taken(server):
    with server.connect() as raw:
        head = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nA: " + b"a" * 60_000 + b"\r\n\r\n"
        assert ask(raw, head).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n",
        b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
        b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"Content-Length: +4\r\n\r\nabcd",
        b"Content-Length: 4\r\n X: y\r\n\r\nabcd",
    ],
)
def test_a_request_whose_end_two_readers_may_see_differently_is_refused(server, head):
    with server.connect() as raw:
        answer = ask(raw, b"POST / HTTP/1.1\r\nHost: x\r\n" + head)

    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1


def test_a_client_that_takes_nothing_is_left(server):
    with server.connect() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        assert server.left.wait(WAIT_S)
    assert get(server).startswith(b"HTTP/1.1 200")


def test_a_connection_beyond_what_a_process_may_have_is_refused_before_it_sends_anything():
    server = Server(limit=2)
    try:
        with server.connect() as first, server.connect() as second:
            with server.connect() as third:
                assert receive(third).startswith(b"HTTP/1.1 503")
            first.close()
            assert ask(second, b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").startswith(b"HTTP/1.1")
    finally:
        server.close()


@pytest.mark.parametrize(
    ("soft", "hard", "files", "connections"),
    [(100, 200, 200, 100), (256, 3000, 3000, 2500), (256, 100_000, 20_500, 20_000), (3000, 3000, 3000, 2500)],
)
def test_a_process_may_open_as_many_files_as_it_may_have_connections(soft, hard, files, connections):
    if 0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[1] < hard:
        pytest.skip("this machine allows fewer files")
    words = (
        "import resource; from cassq.http.process import raise_files; "
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard})); "
        "print(raise_files(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(connections), str(files)]

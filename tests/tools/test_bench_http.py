"""The client that loads services over HTTP: it cuts answers apart as servers send them."""

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from _bench.http.connection import AnsweredError, Connection, to_request

REQUEST = to_request("GET", "/")


async def asked(answers, requests=1, pieces=1000):
    """Return what a client gets of a server that sends these bytes in pieces, request by request."""
    connections = []

    async def serve(reader, writer):
        connections.append(writer)
        for answer in answers[len(connections) - 1]:
            await reader.readuntil(b"\r\n\r\n")
            for at in range(0, len(answer), pieces):
                writer.write(answer[at : at + pieces])
                await writer.drain()
                await asyncio.sleep(0)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        connection = Connection(server.sockets[0].getsockname()[1])
        found = [await connection.ask(REQUEST) for _ in range(requests)]
        connection.close()
    return found


@pytest.mark.parametrize("pieces", [1, 7, 1000])
def test_an_answer_with_a_length_one_in_chunks_and_one_without_a_body(pieces):
    answers = [
        b"HTTP/1.1 201 Created\r\nContent-Length: 3\r\nA: b\r\n\r\none",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
    ]
    found = asyncio.run(asked([answers], 3, pieces))
    assert found == [(201, b"one"), (200, b"abcde"), (204, b"")]


def test_a_connection_that_ends_with_an_answer_is_made_anew():
    last = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\n1"
    assert asyncio.run(asked([[last], [last]], 2)) == [(200, b"1")] * 2


def test_a_connection_that_ends_without_an_answer_is_told():
    with pytest.raises(ConnectionResetError):
        asyncio.run(asked([[b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1"]]))


def test_a_refusal_is_told():
    async def get():
        async def serve(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nwhy?")
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            await Connection(server.sockets[0].getsockname()[1]).get(REQUEST)

    with pytest.raises(AnsweredError, match=r"503 b'why\?'"):
        asyncio.run(get())

"""Where a service listens: who comes at once is let in, and a dead one's socket is in nobody's way."""

import socket

import pytest

from cassq.errors import InvalidOptionError
from cassq.http.process import Listening


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "cassq.sock")


def test_who_connects_before_the_service_takes_connections_waits(path):
    with Listening(uds=path).bind(), socket.socket(socket.AF_UNIX) as client:
        client.connect(path)


def test_a_socket_that_was_bound_is_not_a_dead_ones(path):
    with Listening(uds=path).bind(), pytest.raises(InvalidOptionError, match="in use"):
        Listening(uds=path).bind()


def test_the_socket_of_a_dead_one_is_replaced(path):
    Listening(uds=path).bind().close()

    with Listening(uds=path).bind(), socket.socket(socket.AF_UNIX) as client:
        client.connect(path)

"""The driver's connections are begun where no signal handler can tear them apart."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from cassandra.connection import Connection

from cassq.storage.cassandra.wide_connection import BUFFER_BYTES, wide


class Plain:
    in_buffer_size = out_buffer_size = 4096

    @classmethod
    def factory(cls, place, timeout):
        if place is None:
            raise OSError("nobody answers")
        return cls, place, timeout, threading.current_thread()


def test_it_moves_more_at_once():
    made = wide(Plain)
    assert (made.in_buffer_size, made.out_buffer_size) == (BUFFER_BYTES, BUFFER_BYTES)


def test_it_takes_in_what_its_socket_has_no_room_for_yet():
    connection = object.__new__(wide(Connection))
    sent = []
    connection.push = sent.append
    connection.is_defunct = connection.is_closed = connection._is_checksumming_enabled = False
    connection._requests, connection.protocol_version, connection.compressor = {}, 5, None
    connection.allow_beta_protocol_version = False
    connection._socket_writable = False  # as the driver notes it

    connection.send_msg("a request", 7, None, encoder=lambda request, *_, **__: request.encode())

    assert (sent, list(connection._requests)) == ([b"a request"], [7])


def test_the_main_thread_only_waits_for_a_connection():
    made = wide(Plain)
    assert threading.current_thread() is threading.main_thread()

    *found, thread = made.factory("a node", timeout=2)

    assert found == [made, "a node", 2]
    assert thread is not threading.main_thread()


def test_other_threads_connect_by_themselves():
    with ThreadPoolExecutor(1) as pool:
        *_, thread = pool.submit(wide(Plain).factory, "a node", 2).result()
        assert thread is pool.submit(threading.current_thread).result()


def test_what_goes_wrong_is_raised():
    with pytest.raises(OSError, match="nobody answers"):
        wide(Plain).factory(None, 2)

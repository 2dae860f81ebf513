"""The driver's connections are begun where no signal handler can tear them apart."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

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

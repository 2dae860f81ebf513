"""How long a pop that gets nothing may take."""

import pytest

from cassq.delivery_buffer import LOOK_TIMEOUT_S, DeliveryBuffer


class Clock:
    """Whoever waits has waited; then something may happen."""

    def __init__(self):
        self.at = 100.0
        self.then = lambda: None

    def now(self):
        return self.at

    def wait(self, _condition, seconds):
        self.at += seconds
        self.then()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def buffer(clock):
    return DeliveryBuffer(clock)


def listen(buffer):
    """Be as a popper that has announced its hunger and waits to be woken."""
    buffer._is_listening = True


def test_a_popper_that_came_to_listen_without_a_look_is_asked_for_one_in_the_end(clock, buffer):
    asked = []

    def happen():
        listen(buffer)
        asked.append(buffer._is_look_asked)
        if asked[-1]:
            buffer.end_round(buffer.begin_round())

    clock.then = happen
    assert buffer.get(1, clock.at + 3.0) == []
    assert asked == [False, True]
    assert buffer._rounds_done == 1


def test_who_has_no_time_gets_a_look_that_began_after_it_asked(clock, buffer):
    listen(buffer)

    def look():
        buffer.end_round(buffer.begin_round())

    clock.then = look
    assert buffer.get(1, clock.at) == []
    assert buffer._rounds_done == 1


def test_a_popper_that_neither_looks_nor_listens_is_waited_for_so_long(clock, buffer):
    assert buffer.get(1, clock.at + 3.0) == []
    assert clock.at == pytest.approx(103.0 + LOOK_TIMEOUT_S)

"""What signals mean to a command: where it stands when they come, how often, and of which kind."""

import signal

import pytest

from cassq.cli.signals import AGAIN_S, Ending, Stopped

TERM, HANGUP, INTERRUPT = signal.SIGTERM, signal.SIGHUP, signal.SIGINT


class HandClock:
    def __init__(self):
        self.time = 0.0

    def now(self):
        return self.time


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def ending(clock):
    return Ending(clock)


def exit_code(call):
    with pytest.raises(Stopped) as stopped:
        call()
    return stopped.value.exit_code


@pytest.mark.parametrize("again", [TERM, HANGUP])
def test_a_signal_that_comes_again_within_a_moment_says_nothing_new(ending, again):
    ending.begin(is_endless=True)
    with ending.politely() as wish:
        ending.on_signal(TERM)
        ending.on_signal(again)
        assert wish.number == TERM
    ending.on_signal(again)  # while the store is being closed


def test_a_signal_that_comes_again_later_interrupts(ending, clock):
    ending.begin(is_endless=True)
    with ending.politely():
        ending.on_signal(TERM)
        clock.time += AGAIN_S
        assert exit_code(lambda: ending.on_signal(TERM)) == 143
    clock.time += AGAIN_S
    assert exit_code(lambda: ending.on_signal(TERM)) == 143


def test_a_signal_of_another_kind_interrupts_at_once(ending):
    ending.begin(is_endless=True)
    with ending.politely():
        ending.on_signal(TERM)
        assert exit_code(lambda: ending.on_signal(INTERRUPT)) == 130


@pytest.mark.parametrize(
    ("number", "is_endless", "code"),
    [
        (TERM, True, 0),
        (HANGUP, True, 0),
        (INTERRUPT, True, 130),
        (TERM, False, 143),
        (HANGUP, False, 129),
        (INTERRUPT, False, 130),
    ],
)
def test_a_signal_before_there_is_any_work_ends_the_command(clock, number, is_endless, code):
    early, late = Ending(clock), Ending(clock)

    early.on_signal(number)  # which command it is has not been read yet
    assert exit_code(lambda: early.begin(is_endless=is_endless)) == code

    late.begin(is_endless=is_endless)
    assert exit_code(lambda: late.on_signal(number)) == code


@pytest.mark.parametrize(("number", "is_endless", "code"), [(INTERRUPT, True, 130), (TERM, False, 143)])
def test_a_polite_end_is_told(ending, number, is_endless, code):
    def work():
        with ending.politely():
            ending.on_signal(number)

    ending.begin(is_endless=is_endless)
    assert exit_code(work) == code

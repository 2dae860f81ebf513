"""The popping process of `cassq bench`'s latencies.

Owns when a message counts as popped: once the application has it, before it is committed. Told by its
arguments which queue and how many messages, and to end by the end of stdin; the store's URL comes in
CASSQ_URL, where no process list shows a password. Tells on stdout, in lines of JSON, how many came, and in
the end what came when. What must not break: nothing is written per message while messages flow, because that
would be measured too.
"""

import json
import logging
import os
import select
import signal
import sys
from array import array
from contextlib import suppress

import cassq
from cassq.cli.bench.messages import number_of
from cassq.cli.bench.throughput import LAST_LOOK_S, POP_MAX, TICK_S
from cassq.runtime.clock import SystemClock

#: How often it tells how many came.
TELL_EVERY_S = 0.2


class Arrivals:
    """Which messages came, and when; the clock is shared by the processes of one machine."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._numbers = array("Q")
        self._popped_at = array("d")
        self._told_at = self._clock.now()

    def __len__(self) -> int:
        return len(self._numbers)

    def note(self, deliveries: list[cassq.Delivery]) -> None:
        """Take the time for what was popped just now."""
        now = self._clock.now()
        for delivery in deliveries:
            self._numbers.append(number_of(delivery.body))
            self._popped_at.append(now)

    def tell(self) -> None:
        """Tell how many came, if that was not told lately."""
        if self._clock.now() - self._told_at >= TELL_EVERY_S:
            self._told_at = self._clock.now()
            _print({"popped": len(self)})

    def tell_all(self) -> None:
        """Tell everything."""
        _print({"numbers": self._numbers.tolist(), "popped_at": self._popped_at.tolist()})


def main() -> int:
    """Pop as the arguments say."""
    # Ctrl-C goes to the whole terminal; the bench's own process ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger().addHandler(logging.NullHandler())
    name, expected = sys.argv[1], int(sys.argv[2])
    try:
        with cassq.connect(os.environ["CASSQ_URL"]) as store:
            _pop(store.find_queue(name), expected)
    except BrokenPipeError:
        # Who asked is gone; what is left for it must not fail once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except cassq.CassqError as error:
        sys.stderr.write(f"cassq: the popping process: {error}\n")
        return error.exit_code
    return 0


def _pop(queue: cassq.Queue, expected: int) -> None:
    arrivals = Arrivals()
    with queue.popper() as popper:
        _print({"popped": 0})  # ready
        while len(arrivals) < expected and not _is_over():
            # An outage is no end: what comes after it came late.
            with suppress(cassq.UnavailableError):
                if deliveries := popper.pop_many(POP_MAX, TICK_S):
                    arrivals.note(deliveries)
                    popper.commit_many(deliveries)
            arrivals.tell()
        with suppress(cassq.UnavailableError):
            arrivals.note(popper.pop_many(1, LAST_LOOK_S))
    arrivals.tell_all()


def _print(told: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def _is_over() -> bool:
    readable, _, _ = select.select([0], [], [], 0)
    return bool(readable)


if __name__ == "__main__":
    sys.exit(main())

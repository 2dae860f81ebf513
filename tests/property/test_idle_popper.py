"""What a popper does while nobody pops from it."""

import threading
import time
from datetime import timedelta

from test_queue_against_a_model import skipping_ground

from cassq.popping.timing import IDLE_S

#: So long its calls are counted.
WATCH_S = 0.5


def test_what_an_idle_popper_gave_back_it_does_not_take_again():
    ground = skipping_ground()
    with ground.connect() as store:
        queue = store.queue("q")
        queue.push_many([b"x"] * 1000)
        with queue.popper() as popper:
            for _ in range(50):
                popper.pop(timeout=10).commit()
            ground.skip(timedelta(seconds=IDLE_S + 1))
            end = time.monotonic() + 10
            while queue.stats().pending and time.monotonic() < end:
                threading.Event().wait(0.01)
            before = store.telemetry.snapshot()["transact"].calls
            threading.Event().wait(WATCH_S)

            assert store.telemetry.snapshot()["transact"].calls - before <= 2
            assert popper.pop(timeout=10) is not None

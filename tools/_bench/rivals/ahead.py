"""What has become due, together: for clients that push in batches while a schedule goes on.

Owns the thread that keeps to the schedule. What must not break: nothing is held back, so that a batch is
whatever came in while the last one was under way.
"""

import threading
from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue


def due_together(bodies: Sequence[bytes], most: int = 1000) -> Iterator[list[bytes]]:
    """Yield bodies, as many at a time as are due and at least one.

    Args:
        bodies: each is there when it is due; reading it waits for that.
        most: so many at a time.
    """
    queue: SimpleQueue[bytes | None] = SimpleQueue()

    def keep_time() -> None:
        for body in bodies:
            queue.put(body)
        queue.put(None)

    threading.Thread(target=keep_time, name="schedule", daemon=True).start()
    while (body := queue.get()) is not None:
        together: list[bytes | None] = [body]
        try:
            while len(together) < most and together[-1] is not None:
                together.append(queue.get_nowait())
        except Empty:
            pass
        yield [each for each in together if each is not None]
        if together[-1] is None:
            return

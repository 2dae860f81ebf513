"""The driver's connection with room for batches of messages, begun where no signal interrupts it.

The driver moves 4 KiB per system call. A batch of a thousand messages is sixty times that, and after each
call its thread asks for the interpreter's lock again, against every other thread of the process.

The driver refuses to send while the socket's buffer is full, as it is behind a few large batches, and forgets
to give back the request's id, until there is none. How much waits to be sent cassq bounds by itself.

The first connection starts the thread of the driver's loop. A signal handler that raises in the middle of
that leaves a thread which never starts, and the driver's own clean-up at exit fails on it.
"""

import threading
from functools import partial
from typing import Any

from cassandra.connection import Connection

from cassq.limits import KIB
from cassq.runtime.background_thread import BackgroundThread

#: What one system call moves at most.
BUFFER_BYTES = 128 * KIB


def wide(connection: type[Connection]) -> type[Connection]:
    """Return a driver's connection class with larger buffers, which no signal handler tears apart."""

    def factory(cls: type[Connection], *args: Any, **named: Any) -> Connection:  # noqa: ANN401 - the driver's
        connect = partial(connection.factory.__func__, cls)
        if threading.current_thread() is not threading.main_thread():
            return connect(*args, **named)
        beside = BackgroundThread("cassq-connect")
        try:
            return beside.submit(connect, *args, **named).result()
        finally:
            beside.shutdown(wait=False)

    members = {
        "in_buffer_size": BUFFER_BYTES,
        "out_buffer_size": BUFFER_BYTES,
        "factory": classmethod(factory),
        "_socket_writable": property(lambda _: True, lambda *_: None),
    }
    return type(f"Wide{connection.__name__}", (connection,), members)

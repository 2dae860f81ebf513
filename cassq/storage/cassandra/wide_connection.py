"""The driver's connection with buffers that fit batches of messages.

The driver moves 4 KiB per system call. A batch of a thousand messages is sixty times that, and after each
call its thread asks for the interpreter's lock again, against every other thread of the process.
"""

from cassandra.connection import Connection

from cassq.limits import KIB

#: What one system call moves at most.
BUFFER_BYTES = 128 * KIB


def wide(connection: type[Connection]) -> type[Connection]:
    """Return a driver's connection class with larger buffers."""
    sizes = {"in_buffer_size": BUFFER_BYTES, "out_buffer_size": BUFFER_BYTES}
    return type(f"Wide{connection.__name__}", (connection,), sizes)

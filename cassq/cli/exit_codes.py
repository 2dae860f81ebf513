"""What `cassq` exits with: one table, shown by `cassq --help` and in the documentation.

Owns the meaning of every exit code. Errors of the library bring their own (`CassqError.exit_code`); what
must not break: every code that the command line can end with stands here.
"""

DONE = 0
NOT_DONE = 1
USAGE = 64
NO_INPUT = 66
INTERNAL = 70
INPUT_OUTPUT = 74
UNAVAILABLE = 75
DENIED = 77

#: Signals end with 128 + their number; a reader that closed the pipe counts as SIGPIPE.
BY_SIGNAL = 128

TABLE = (
    (
        DONE,
        "done; also when nothing came, and when SIGTERM ended what runs until then, as a worker, or --follow",
    ),
    (NOT_DONE, "a part could not be done, a check failed, or the answer was no"),
    (USAGE, "the command, an option, the URL or a setting is wrong"),
    (65, "a body is too large, an offset of a topic was deleted, or what is stored is damaged"),
    (NO_INPUT, "the queue, topic, group, dead letter or file to push does not exist, or cannot be read"),
    (INTERNAL, "a fault in cassq itself; --debug shows where"),
    (INPUT_OUTPUT, "the output could not be written"),
    (UNAVAILABLE, "the database or ZooKeeper is out of reach, or a lease or a claim ended: try again"),
    (76, "it may or may not have happened, and time ran out before that was known"),
    (DENIED, "the user name or password is wrong, or a permission is missing"),
    (78, "the schema is missing, older or newer"),
    (129, "ended by SIGHUP, before it was done"),
    (130, "ended by SIGINT (Ctrl-C)"),
    (141, "the reader closed the output; what was not written out was not committed"),
    (143, "ended by SIGTERM, before it was done"),
)


def describe() -> str:
    """Return the table as text."""
    return "\n".join(f"{code:>5}  {meaning}" for code, meaning in TABLE)

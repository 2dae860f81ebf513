"""The numbers that bound everything, each with its reason.

Owns constants only; what a queue may change is in `cassq.model.settings`.
"""

KIB = 1024
MIB = 1024 * KIB

#: The greatest number that both stores hold; no message ever gets it, so that it can say three other things.
SEQ_MAX = 2**63 - 1

#: As `last` of a head: where the pipe ends is not decided yet.
UNDECIDED = SEQ_MAX

#: As `cursor` of a head: a window is out, and how far it was handed out only its holder knows.
WINDOW_OUT = SEQ_MAX

#: As the upper end of a stretch of numbers: all that follow.
NO_LIMIT = SEQ_MAX

#: Names become znodes, file names and command-line words: letters, digits, dot, dash, underscore.
NAME_LENGTH_MAX = 128

#: Headers are for routing, not for payload; names and values together, in UTF-8 bytes.
HEADERS_BYTES_MAX = 64 * KIB

#: A body must fit one Cassandra mutation (16 MiB by default) with room for its envelope.
BODY_BYTES_CEILING = 8 * MIB

#: One write carries at most this much, unless a single body alone is larger. Beyond it the rate no
#: longer grows with the batch, and a time-out costs more to send again.
BATCH_MESSAGES_MAX = 1000
BATCH_BYTES_MAX = 1 * MIB

#: What is kept of the reason why a message came back.
REASON_BYTES_MAX = 1 * KIB

#: What waits in one pusher's buffer before `push_soon` makes its caller wait; and what a popper holds until
#: it is due.
BUFFER_MESSAGES_MAX = 50_000
BUFFER_BYTES_MAX = 64 * MIB

#: A queue has so many slots for keys at most: each process that takes from one reads all of its pipes.
SLOTS_MAX = 256

#: One take hands out at most this much: a pipe of the default size costs one transaction.
TAKE_MESSAGES_MAX = 10_000
TAKE_RUNS_MAX = 64
TAKE_BYTES_MAX = 8 * MIB

#: A transaction takes so many stretches out of a run: each is a row or two, and Cassandra bounds a batch.
RETURN_PARTS_MAX = 32

#: As the time of what is to be written: the database's clock, as it writes that.
AT_WRITE = 0

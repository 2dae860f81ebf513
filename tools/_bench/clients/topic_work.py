"""What clients are told to do with topics beyond what every contestant does.

Owns one function for each way of using a topic that `topics` tells. The rule: all of it is public interface,
with default settings.
"""

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import cassq
from _bench.clients.bodies import Schedule, make_bodies, stamp_of
from _bench.clients.cassq_clients import CassqClient
from _bench.clients.cassq_work import reads_of
from _bench.measuring.percentiles import Latencies, join

#: What `Store.telemetry` calls the reads of a topic.
READS = (
    "read_topics",
    "glance_topic",
    "list_segments",
    "load_head",
    "glance_head",
    "read_log",
    "read_writers",
)

_PATIENCE_S = 30.0
_LOOK_S = 0.25
_TOGETHER = 1000


def publish_until(client: CassqClient, name: str, batch: int, body_bytes: int, until_ns: int) -> int:
    """Publish one batch after the other until a time; return how many messages that were."""
    bodies = make_bodies(batch, body_bytes)
    topic = client.store.topic(name, partitions=1)
    count = 0
    while time.monotonic_ns() < until_ns:
        topic.publish_many(bodies)
        count += batch
    topic.close()
    return count


def publish_on_time(client: CassqClient, name: str, partitions: int, due_ns: Sequence[int]) -> bytes:
    """Publish a message at each of the times, in the partitions in turn, and wait for none before the last.

    Returns: how long after its time each was known to be in the log, for `join`.
    """
    latencies, guard = Latencies(), threading.Lock()
    topic = client.store.topic(name, partitions=partitions)

    def note(due: int, ended: "Future[cassq.Position]") -> None:
        if not ended.exception():
            with guard:
                latencies.note_ns(time.monotonic_ns() - due)

    for place, body in enumerate(Schedule(due_ns, 256)):
        future = topic.publish_soon(body, partition=place % partitions, timeout=_PATIENCE_S)
        future.add_done_callback(partial(note, stamp_of(body)))
    topic.close()
    return latencies.encode()


def follow(client: CassqClient, name: str, readers: int, count: int, until_ns: int) -> tuple[bytes, int, int]:
    """Have so many readers follow a topic, a thread each, until each has so many messages, or a time is over.

    Returns: how long after its stamp each reader had each; how many messages all had; the reads that it took.
    """
    topic = client.store.topic(name, partitions=1)
    reads = reads_of(client, READS)
    begun = threading.Barrier(readers)

    def read(_: int) -> tuple[bytes, int]:
        latencies, found = Latencies(), 0
        with topic.reader("latest") as reader:
            begun.wait()
            while found < count and time.monotonic_ns() < until_ns:
                for message in reader.read_many(_TOGETHER, _LOOK_S):
                    latencies.note_ns(time.monotonic_ns() - stamp_of(message.body))
                    found += 1
        return latencies.encode(), found

    with ThreadPoolExecutor(readers) as pool:
        each = list(pool.map(read, range(readers)))
    topic.close()
    waits = join(encoded for encoded, _ in each)
    return waits.encode(), sum(found for _, found in each), reads_of(client, READS) - reads


def hold_a_share(client: CassqClient, name: str, partitions: int, notes: str, until_ns: int) -> None:
    """Consume as a member of a group until a time; note the partition and the time of each message."""
    topic = client.store.topic(name, partitions=partitions)
    lines = os.open(notes, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    with topic.consumer("group", start="latest") as member:
        while time.monotonic_ns() < until_ns:
            found = member.poll(_TOGETHER, _LOOK_S)
            now_ns = time.monotonic_ns()
            os.write(lines, b"".join(b"%d %d\n" % (each.partition, now_ns) for each in found))
            for each in found:
                try:
                    each.done()
                except cassq.PartitionLostError:
                    continue  # another one has it, and gets what was not committed
    os.close(lines)
    topic.close()

"""Which rivals there are, of queues and of topics.

Owns their short names, in the order in which they are measured, and what some of them cannot bear.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from _bench.clients.cassq_clients import CassqOnCassandra
from _bench.clients.contestant import Contestant
from _bench.rivals.beanstalkd import Beanstalkd
from _bench.rivals.dyno import DynoQueues
from _bench.rivals.kafka_log import ConfluentLog, PythonLog
from _bench.rivals.naive import NaiveCassandra
from _bench.rivals.nats_jetstream import JetStream
from _bench.rivals.postgres import PostgresQueue
from _bench.rivals.rabbitmq import RabbitQuorumQueue
from _bench.rivals.redis_streams import RedisStreams
from _bench.servers import CassandraServer


@dataclass(frozen=True, slots=True)
class Rival:
    """One line of the comparison.

    Attributes:
        make: makes the contestant; it gets the Cassandra that cassq uses.
        messages_max: so many at once, whatever was asked for.
        has_latency: whether the latency at a rate is measured.
        has_replay: whether what was read stays, and can be read again from the beginning.
    """

    make: Callable[[CassandraServer], Contestant]
    messages_max: int = 1_000_000
    has_latency: bool = True
    has_replay: bool = False


RIVALS: Mapping[str, Rival] = {
    "redis-always": Rival(lambda _: RedisStreams("always")),
    "redis-everysec": Rival(lambda _: RedisStreams("everysec")),
    "rabbitmq": Rival(lambda _: RabbitQuorumQueue()),
    "postgres": Rival(lambda _: PostgresQueue()),
    "nats": Rival(lambda _: JetStream(None)),
    "nats-always": Rival(lambda _: JetStream("always")),
    "beanstalkd": Rival(lambda _: Beanstalkd(50)),
    "beanstalkd-always": Rival(lambda _: Beanstalkd(0)),
    "dyno": Rival(lambda _: DynoQueues(shards=1)),
    "dyno-3": Rival(lambda _: DynoQueues(shards=3)),
    # Its reads step over all that it ever deleted, and fail at 100 000: five rounds of these stay below that.
    "naive": Rival(NaiveCassandra, messages_max=4000, has_latency=False),
}

TOPIC_RIVALS: Mapping[str, Rival] = {
    "kafka-confluent": Rival(lambda _: ConfluentLog(), has_replay=True),
    "kafka-python": Rival(lambda _: PythonLog(), has_replay=True),
    "redis-always": Rival(lambda _: RedisStreams("always", is_kept=True), has_replay=True),
    "redis-everysec": Rival(lambda _: RedisStreams("everysec", is_kept=True), has_replay=True),
    "nats": Rival(lambda _: JetStream(None, is_kept=True), has_replay=True),
    "nats-always": Rival(lambda _: JetStream("always", is_kept=True), has_replay=True),
    "queue": Rival(CassqOnCassandra),
}

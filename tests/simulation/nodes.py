"""What becomes of the nodes besides requests: hints, forgotten deletions, repair, loss and replacement.

Owns the days of a history: an hour of Cassandra's takes `day_s` / 24, and `gc_grace_seconds` of each table is
that of the schema. Refuses to know of requests and quorums. As in Cassandra

- a hint is never written for a node that was down for longer than the hint window, and is dropped once it is
  older than its table's gc_grace;
- a deletion that is older than that is forgotten: no node answers a read with it, compacted or not;
- a node that is lost takes with it what it has.

What must not break: the operator does what docs/operations.md asks, no more and no less. Where gc_grace is a
day or longer the keyspace is repaired in time, so a deletion is forgotten only after a repair; where it is
shorter, no repair can be counted on. Before a lost node is replaced those that are left are repaired.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from cql import tables
from replicas import Key, Mutation, Partition, Replica, merge_partitions
from scheduler import World

REPLICAS = 3

HOURS = 24
HINT_WINDOW_HOURS = 3


class Nodes:
    """The three nodes of a cluster.

    Args:
        day_s: how long a day takes.

    Attributes:
        is_aging: whether deletions are forgotten.
    """

    def __init__(self, world: World, day_s: float) -> None:
        self.replicas = [Replica() for _ in range(REPLICAS)]
        self._world = world
        self.is_aging = False
        self._hour_s = day_s / HOURS
        self._down_since: dict[Replica, float] = {}
        self._repaired_at = float("-inf")
        self._passed_s = 0.0
        self._waiting: list[tuple[Replica, int, Callable[[], None]]] = []

    # Up and down

    @property
    def up(self) -> list[Replica]:
        return [replica for replica in self.replicas if replica.is_up]

    def stop(self, number: int) -> bool:
        """Let a node go down; False: another one is down, and a quorum shall be there."""
        if len(self.up) < REPLICAS:
            return False
        replica = self.replicas[number]
        replica.is_up = False
        self._down_since[replica] = self._world.now
        return True

    def start(self, number: int) -> None:
        """Let a node that went down come back, and get what hints wait for it."""
        replica = self.replicas[number]
        if not replica.is_lost:
            replica.is_up = True
            self._down_since.pop(replica, None)
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                if each[0] is replica:
                    self._world.after(self._world.dice.random() * self._hour_s, each[2])
                else:
                    self._waiting.append(each)

    def heal(self) -> None:
        """Let every node come back that is not lost."""
        for number in range(REPLICAS):
            self.start(number)

    def lose(self, number: int, seconds: float) -> bool:
        """Wipe a node for good, and replace it after a while; False: another one is down."""
        if not self.stop(number):
            return False
        self.replicas[number].lose()
        if seconds < float("inf"):
            self._world.after(seconds, partial(self._replace, number))
        return True

    def _replace(self, number: int) -> None:
        replica = self.replicas[number]
        if len(self.up) < REPLICAS - 1:
            self._world.after(self._hour_s, partial(self._replace, number))
            return
        self._repair(self.up)
        replica.is_lost = False
        source = self.up[0]
        for table, key in source.places():
            replica.adopt(table, key, source.partition(table, key))
        self.start(number)

    # Hints

    def hint(self, replica: Replica, mutation: Mutation, seconds: float) -> None:
        """Let a replica have a write by a hint, after so long, if one is written and does not expire."""
        down_since = self._down_since.get(replica, self._world.now)
        if replica.is_lost or self._world.now - down_since > HINT_WINDOW_HOURS * self._hour_s:
            return
        written_at, life = self._world.now, replica.lives
        self._world.after(seconds, partial(self._deliver, replica, life, mutation, written_at))

    def _deliver(self, replica: Replica, life: int, mutation: Mutation, written_at: float) -> None:
        if replica.lives != life or self._world.now - written_at > self.grace_s(mutation.table):
            return
        if replica.is_up:
            replica.apply(mutation)
        else:
            again = partial(self._deliver, replica, life, mutation, written_at)
            self._waiting.append((replica, life, again))

    # Deletions

    def grace_s(self, table: str) -> float:
        """Return for how long a deletion in a table is remembered at least."""
        return tables()[table].gc_grace_s / 3600 * self._hour_s

    def begin_aging(self) -> None:
        """Have nodes forget deletions from now on, and the operator repair the keyspace."""
        if not self.is_aging:
            self.is_aging = True
            self._repair_later()

    def forget(self, replica: Replica, table: str, key: Key) -> None:
        """Have a node forget the deletions in a partition that are old enough."""
        grace_s = self.grace_s(table)
        before = self._world.now + self._passed_s - grace_s
        if grace_s >= HOURS * self._hour_s:
            before = min(before, self._repaired_at)
        replica.forget(table, key, before)

    def _repair_later(self) -> None:
        pause_s = self._hour_s * HOURS * (0.2 + self._world.dice.random() / 2)
        self._world.after(pause_s, self._repair_again)

    def _repair_again(self) -> None:
        self.repair()
        self._repair_later()

    def repair(self) -> None:
        """Repair the keyspace, if every node is there that is not lost."""
        living = [replica for replica in self.replicas if not replica.is_lost]
        if all(replica.is_up for replica in living):
            self._repair(living)
            self._repaired_at = self._world.now + self._passed_s

    def _repair(self, replicas: Sequence[Replica]) -> None:
        for table, key in sorted({place for replica in replicas for place in replica.places()}, key=repr):
            if self.is_aging:
                for replica in replicas:
                    self.forget(replica, table, key)
            merged = self.merged(table, key, replicas)
            for replica in replicas:
                replica.adopt(table, key, merged)

    def let_days_pass(self) -> None:
        """Let so much time pass that every deletion is forgotten, after the repair that was in time."""
        self.repair()
        self._passed_s += 2 * max(map(self.grace_s, tables()))
        for replica in self.replicas:
            for table, key in replica.places():
                self.forget(replica, table, key)

    # Looks

    def merged(self, table: str, key: Key, replicas: Sequence[Replica]) -> Partition:
        """Return what these replicas have of a partition together."""
        return merge_partitions(replica.partition(table, key) for replica in replicas)

    def keys(self, table: str) -> Iterator[Key]:
        """Yield the keys of every partition of a table that some node knows of, each once."""
        yield from sorted({key for replica in self.replicas for key in replica.keys(table)})

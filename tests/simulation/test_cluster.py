"""The simulated cluster keeps the storage contract, as a real one does; and it can be as bad as it should be.

Every sentence of the port is asked of it, through the same tests that ask Cassandra. Its replicas fall behind
all the while: that is no excuse.
"""

import random
import secrets
import time
from concurrent.futures import Future
from uuid import UUID

import pytest
import stored
import test_batches_contract
import test_dead_letters_contract
import test_figures_contract
import test_marks_contract
import test_pipes_contract
import test_records_contract
import test_topics_contract
import test_transactions_contract
from cluster import Cluster, Odds
from scheduler import World
from session import DirectSession

from cassq.model.ids import MessageId, just_before, new_pipe_id
from cassq.observing.dead_letters import PAGE, DeadLetters
from cassq.runtime.clock import SystemClock
from cassq.storage.cassandra.storage import CassandraStorage


@pytest.fixture
def cluster():
    """A cluster without faults, but for replicas that miss what need not reach all."""
    odds = Odds(slow_replica=0.7, missed=1.0)
    return Cluster(World(1), odds=odds, skews_ms=(0, 0, 0), timeout_s=1)


@pytest.fixture
def storage(cluster):
    """A storage on that cluster."""
    began = time.monotonic()
    return CassandraStorage(DirectSession(cluster, lambda: time.monotonic() - began))


@pytest.fixture
def pipe(storage, queue):
    """A fresh pipe."""
    return stored.created(storage, queue)


@pytest.fixture
def queue():
    """A queue name that no other test uses."""
    return f"q-{secrets.token_hex(6)}"


@pytest.fixture
def name():
    """A topic name that no other test uses."""
    return f"t-{secrets.token_hex(6)}"


key, place = test_topics_contract.key, test_topics_contract.place


CONTRACT = (
    test_batches_contract,
    test_dead_letters_contract,
    test_figures_contract,
    test_marks_contract,
    test_pipes_contract,
    test_records_contract,
    test_topics_contract,
    test_transactions_contract,
)

for _module in CONTRACT:
    globals().update({name: value for name, value in vars(_module).items() if name.startswith("Test")})


class TestDeadLettersBehindTombstones:
    """What the contract says of removed letters, where a node gives a read up that meets six of them."""

    @pytest.fixture(autouse=True)
    def impatient(self, cluster):
        cluster.tombstones_max = 5

    PIPES = 6

    def pipes(self, dice):
        """Return pipes of many ages, some of one moment, in the order of the table."""
        made = [just_before(new_pipe_id(), 2.0 ** dice.randrange(30)) for _ in range(self.PIPES)]
        twins = [UUID(fields=(*made[0].fields[:3], *new_pipe_id().fields[3:])) for _ in range(3)]
        return made + twins

    @pytest.mark.parametrize("seed", range(3))
    def test_all_that_are_left_are_read_and_each_once(self, storage, queue, seed):
        dice = random.Random(seed)
        ids = [MessageId(one, seq) for one in self.pipes(dice) for seq in range(1, dice.randrange(2, 20))]
        storage.change_dead(queue, added=[stored.letter(*each) for each in ids])
        ids = [each.message_id for each in storage.read_dead(queue, limit=len(ids))]  # in the table's order
        begin = dice.randrange(len(ids))
        gone = [each for each in ids if dice.random() < 0.7] + ids[: begin // 2]
        for each in gone:  # one by one: a tombstone each
            storage.change_dead(queue, removed=[each])
        left = [each for each in ids if each not in set(gone)]

        page = dice.randrange(1, 10)
        found = []
        while letters := storage.read_dead(queue, found[-1] if found else None, page):
            found += [each.message_id for each in letters]

        assert found == left
        first, last = ids[begin // 3], ids[begin]
        within = [each for each in left if ids.index(first) < ids.index(each) <= ids.index(last)]
        assert [each.message_id for each in storage.read_dead(queue, first, 1000, until=last)] == within

    @pytest.mark.parametrize("deal", ["put_back", "discard"])
    def test_those_that_were_dealt_with_in_their_order_leave_two_tombstones_a_page(
        self, storage, queue, cluster, deal
    ):
        only = new_pipe_id()

        def push(messages):
            futures = [Future() for _ in messages]
            for future in futures:
                future.set_result(MessageId(new_pipe_id(), 1))
            return futures

        letters = DeadLetters(storage, queue, push, lambda: None, SystemClock())
        storage.change_dead(queue, added=[stored.letter(only, seq) for seq in range(1, 2 * PAGE + 1)])

        assert getattr(letters, deal)() == 2 * PAGE

        left = cluster.nodes.merged("dead", (queue, 0), cluster.replicas)
        assert left.count_tombstones(left.rows) == 4

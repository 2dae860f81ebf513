"""Dead letters behind more removed ones than Cassandra reads across at once, with its own threshold."""

import secrets

import pytest

import cassq
from cassq.errors import StorageUnavailableError
from cassq.limits import NO_LIMIT
from cassq.model.ids import MessageId, just_before, new_pipe_id
from cassq.observing.inspection import MessageState
from cassq.storage.cassandra import CassandraStorage
from cassq.storage.cassandra import statements as cql
from cassq.storage.forms import DeadLetter

pytestmark = [pytest.mark.service, pytest.mark.slow]

#: `tombstone_failure_threshold` is 100 000.
REMOVED = 105_000
PIPES = 10
IN_ONE_PIPE = REMOVED // PIPES
AT_ONCE = 500


@pytest.fixture
def storage(cassandra_session):
    """The storage, beside the store."""
    return CassandraStorage(cassandra_session)


@pytest.fixture
def pipes():
    """Pipes that were filled one after the other, one in ten seconds."""
    return [just_before(new_pipe_id(), 10.0 * (PIPES - place)) for place in range(PIPES)]


def add(storage, queue, ids):
    storage.change_dead(queue, added=[DeadLetter(each, b"x", {}, 1, 5, "planted") for each in ids])


def remove_one_by_one(session, queue, pipes):
    """Leave a tombstone for each letter, as those do that were removed by their ids, now and then."""
    for pipe in pipes:
        numbers = range(2, IN_ONE_PIPE + 2)
        work = [(cql.DELETE_DEAD, (queue, cql.SHARD, pipe, seq)) for seq in numbers]
        session.execute_in_turn([work[at : at + AT_ONCE] for at in range(0, len(work), AT_ONCE)])


def test_those_that_are_left_can_be_dealt_with_and_the_queue_be_deleted(
    cassandra_session, cluster_url, storage, pipes
):
    name = f"q-{secrets.token_hex(6)}"
    left = [MessageId(pipes[0], 1), MessageId(pipes[5], 1), MessageId(pipes[-1], IN_ONE_PIPE + 2)]
    last = MessageId(new_pipe_id(), 1)
    gone = MessageId(pipes[3], 7)
    with cassq.connect(f"{cluster_url}&timeout=60") as store:
        queue = store.queue(name)
        add(storage, name, [*left, last])
        remove_one_by_one(cassandra_session, name, pipes)
        whole = (name, cql.SHARD, *left[0], last.pipe, NO_LIMIT, 4)
        with pytest.raises(StorageUnavailableError, match="READ_TOO_MANY_TOMBSTONES"):
            cassandra_session.execute(cql.READ_DEAD, whole)

        assert [letter.message_id for letter in queue.dead] == [*left, last]
        assert queue.status(gone).state is MessageState.ENDED
        assert queue.status(last).state is MessageState.DEAD
        assert queue.dead.put_back(left[1]) == 1
        assert queue.dead.discard(left[0]) == 1
        assert queue.dead.put_back() == 2
        add(storage, name, [*left, MessageId(last.pipe, 2)])
        assert queue.dead.discard() == 1

        add(storage, name, [MessageId(last.pipe, 3)])
        store.delete_queue(name)
        assert store.queue(name).dead.peek() == []
        assert list(storage.list_pipes(name).entries) == []
        later = MessageId(new_pipe_id(), 1)
        add(storage, name, [later, last])
        assert [letter.message_id for letter in store.queue(name).dead] == [later]


def test_letters_that_were_discarded_in_their_order_cost_a_read_nothing(
    cassandra_session, cluster_url, storage, pipes
):
    name = f"q-{secrets.token_hex(6)}"
    last = MessageId(new_pipe_id(), 1)
    add(storage, name, [last])
    for pipe in pipes:
        for first in range(1, IN_ONE_PIPE + 1, AT_ONCE):
            storage.change_dead(name, removed=[MessageId(pipe, first + seq) for seq in range(AT_ONCE)])

    values = (name, cql.SHARD, *MessageId(pipes[0], 0), *last, 4)
    (found,) = cassandra_session.execute(cql.READ_DEAD, values)  # as one read

    assert MessageId(*found[:2]) == last
    with cassq.connect(cluster_url) as store:
        assert store.queue(name).dead.discard() == 1

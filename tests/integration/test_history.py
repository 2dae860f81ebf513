"""What happened to a message, on every store: while its pipe is there, and once it is gone."""

import asyncio
import re
from datetime import UTC, datetime, timedelta

import pytest
from command_line import CommandLine
from support.patience import until

import cassq
import cassq.aio
from cassq.model.journal import PipeEvent
from cassq.model.message import to_datetime

State = cassq.MessageState
HOUR = timedelta(hours=1)


@pytest.fixture
def queue(store, name):
    """A queue with a journal, in which what comes back comes at once."""
    return store.queue(name, journal="outline", retry_delay=timedelta(0), max_attempts=2)


def pop(queue, count=1):
    with queue.popper() as popper:
        found = []
        while len(found) < count:
            found += popper.pop_many(count - len(found), timeout=60)
        yield from found


def retire(store, queue):
    """Have all that was pushed retire, which has ended, and return the queue, opened anew."""
    queue.close()

    def is_empty():
        store.reap()
        return not store.find_queue(queue.name).pipes()

    until(is_empty)
    return store.find_queue(queue.name)


class TestAPipeThatStands:
    def test_tells_as_status_does(self, store, queue):
        waiting, held = queue.push(b"one"), queue.push(b"two")
        with queue.popper() as popper:
            deliveries = [popper.pop(timeout=60), popper.pop(timeout=60)]

            for each in (waiting, held):
                found = store.history(each)

                assert (found.message_id, found.queue) == (each, queue.name)
                assert found.status.state is State.PENDING
                assert found.status.holder == queue.status(each).holder
                assert (found.pipes, found.retired_at) == ((each.pipe,), None)
                assert found.pusher in {stats.pusher for stats in queue.pipes()}
            for delivery in deliveries:
                delivery.commit()

    def test_tells_what_ended_long_ago(self, store, queue):
        ids = [queue.push(b"%d" % number) for number in range(3)]
        for delivery in pop(queue, 3):
            delivery.commit()

        assert [store.history(each).status.state for each in ids] == [State.COMMITTED] * 3
        assert store.history(str(ids[0])).status.attempt == 1

    def test_knows_nothing_of_a_number_that_was_not_pushed(self, store, queue):
        message_id = queue.push(b"one")

        assert store.history(message_id._replace(seq=7)).status.state is State.UNKNOWN


class TestAPipeThatIsGone:
    def test_tells_how_each_message_ended(self, store, queue):
        ids = [queue.push(b"%d" % number) for number in range(4)]
        assert queue.cancel(ids[3])
        for delivery in pop(queue, 3):
            if delivery.body == b"1":
                delivery.reject("no such customer")
            else:
                delivery.commit()
        before = datetime.now(UTC) - timedelta(minutes=1)

        retire(store, queue)

        found = [store.history(each) for each in ids]
        states = [State.COMMITTED, State.DEAD, State.COMMITTED, State.PURGED]
        assert [each.status.state for each in found] == states
        assert [each.status.attempt for each in found[:3]] == [1, 1, 1]
        assert found[1].status.reason == "no such customer"
        assert {each.queue for each in found} == {queue.name}
        assert all(before < each.retired_at < before + HOUR for each in found)

    def test_tells_attempts_and_why_it_came_back(self, store, queue):
        message_id = queue.push(b"one")
        for delivery in pop(queue):
            delivery.rollback(reason="the database was away")
        for delivery in pop(queue):
            delivery.commit()

        retire(store, queue)

        status = store.history(message_id).status
        assert (status.state, status.attempt) == (State.COMMITTED, 2)
        assert status.reason == "the database was away"

    def test_tells_of_a_dead_letter_that_was_removed(self, store, queue):
        message_id = queue.push(b"one")
        for delivery in pop(queue):
            delivery.reject("no such customer")
        queue = retire(store, queue)
        assert queue.dead.discard([message_id]) == 1

        assert store.history(message_id).status.state is State.DEAD

    def test_knows_nothing_of_a_number_that_was_not_pushed(self, store, queue):
        message_id = queue.push(b"one")
        queue.purge()
        retire(store, queue)

        assert store.history(message_id._replace(seq=7)).status.state is State.UNKNOWN

    def test_tells_of_a_message_that_was_moved_by_its_first_id(self, store, queue):
        ids = [queue.push(b"%d" % number) for number in range(3)]
        assert queue.reprioritise(ids[1], 7)
        assert store.history(ids[1]).status.state is State.WAITING
        assert len(store.history(ids[1]).pipes) == 2
        for delivery in pop(queue, 3):
            if delivery.body == b"1":
                delivery.reject("no such customer")
            else:
                delivery.commit()

        retire(store, queue)

        found = store.history(ids[1])
        assert (found.status.state, found.status.reason) == (State.DEAD, "no such customer")
        assert found.pipes[0] == ids[1].pipe
        assert len(found.pipes) == 2
        assert found.retired_at
        assert [store.history(each).status.state for each in (ids[0], ids[2])] == [State.COMMITTED] * 2


class TestWhatIsToldOfTheEnd:
    def test_when_it_ended_while_the_pipe_stands_and_after(self, store, queue):
        ids = [queue.push(b"%d" % number) for number in range(4)]
        before = datetime.now(UTC) - timedelta(seconds=5)
        assert queue.cancel(ids[3])
        for delivery in pop(queue, 3):
            if delivery.body == b"1":
                delivery.reject("no such customer")
            else:
                delivery.commit()
        standing = [store.history(each).ended_at for each in ids]

        retire(store, queue)

        found = [store.history(each) for each in ids]
        assert [each.ended_at for each in found] == standing
        assert all(before < each.ended_at <= each.retired_at for each in found)

    def test_the_attempts_before_the_last_one(self, store, queue):
        message_id = queue.push(b"one")
        for delivery in pop(queue):
            delivery.rollback(reason="the database was away")
        for delivery in pop(queue):
            delivery.commit()
        (standing,) = store.history(message_id).past

        retire(store, queue)

        assert store.history(message_id).past == (standing,)
        assert (standing.attempt, standing.reason) == (1, "the database was away")
        assert standing.holder

    def test_nothing_where_the_queue_keeps_no_journal(self, store, name):
        queue = store.queue(name, retry_delay=timedelta(0))
        message_id = queue.push(b"one")
        for delivery in pop(queue):
            delivery.rollback(reason="the database was away")
        for delivery in pop(queue):
            delivery.commit()

        found = store.history(message_id)

        assert (found.status.state, found.ended_at, found.past) == (State.COMMITTED, None, ())


class TestAJournalWithHeaders:
    @pytest.fixture
    def queue(self, store, name):
        return store.queue(name, journal="headers", retry_delay=timedelta(0))

    def events(self, store):
        reader = store.find_topic("cassq.journal").reader()
        found = []
        while page := reader.read_many(100):
            found += page
        return [PipeEvent.from_body(each.body) for each in found]

    def test_has_them_with_keys_and_times(self, store, queue):
        queue.push_many([(b"%d" % number, {"n": str(number)}) for number in range(5)])
        queue.push(b"with a key", key="c-7")
        for delivery in pop(queue, 6):
            delivery.commit()

        retire(store, queue)

        mine = [each for each in self.events(store) if each.queue == queue.name]
        batches = [batch for event in mine for batch in event.batches]
        assert sum(batch.size for batch in batches) == 6
        assert {each["n"] for batch in batches for each in batch.headers or ()} == set("01234")
        assert [batch.keys for batch in batches if batch.keys] == [("c-7",)]
        assert all(
            timedelta(0) < event.retired_at - to_datetime(batch.pushed_at_ms)
            for event in mine
            for batch in event.batches
        )

    def test_is_cut_where_a_pipe_has_many_and_each_message_is_found(self, store, queue):
        large = "x" * 1000
        ids = list(queue.push_many([(b"body", {"text": large}) for _ in range(1500)]))
        for delivery in pop(queue, 1500):
            if delivery.message_id == ids[-1]:
                delivery.reject("no such customer")
            else:
                delivery.commit()

        retire(store, queue)

        mine = [each for each in self.events(store) if each.queue == queue.name]
        (pipe,) = {each.pipe for each in mine}
        assert len(mine) > 1
        assert [(each.first, each.is_last) for each in mine][-1][1]
        assert [each.last + 1 for each in mine[:-1]] == [each.first for each in mine[1:]]
        assert [store.history(each).status.state for each in (ids[0], ids[700], ids[-1])] == [
            State.COMMITTED,
            State.COMMITTED,
            State.DEAD,
        ]
        assert store.history(cassq.MessageId(pipe, 9999)).status.state is State.UNKNOWN


class TestAQueueWithoutAJournal:
    def test_leaves_nothing_and_that_is_told(self, store, name):
        queue = store.queue(name)
        message_id = queue.push(b"one")
        for delivery in pop(queue):
            delivery.commit()
        retire(store, queue)

        with pytest.raises(cassq.MessageNotFoundError, match="--journal outline") as raised:
            store.history(message_id)

        assert str(message_id) in str(raised.value)

    def test_leaves_its_dead_letters(self, store, name):
        queue = store.queue(name)
        message_id = queue.push(b"one")
        for delivery in pop(queue):
            delivery.reject("no such customer")
        retire(store, queue)

        found = store.history(message_id)

        assert (found.status.state, found.status.reason) == (State.DEAD, "no such customer")
        assert found.queue == name

    def test_has_one_once_it_is_altered_also_for_what_was_pushed_before(self, store, name):
        queue = store.queue(name)
        message_id = queue.push(b"one")
        store.alter_queue(name, journal="outline")
        for delivery in pop(queue):
            delivery.commit()
        retire(store, queue)

        assert store.history(message_id).status.state is State.COMMITTED


def test_no_id_is_refused(store):
    with pytest.raises(cassq.InvalidOptionError, match="is not a message id: expected PIPE:SEQ"):
        store.history("17")


class TestTheCommand:
    @pytest.fixture
    def cli(self, tmp_path):
        return CommandLine(f"sqlite:///{tmp_path}/store.db")

    @pytest.fixture
    def message_id(self, cli):
        """A message that was given up, and whose pipe is gone."""
        with cassq.connect(cli.url) as store:
            queue = store.queue("orders", journal="outline", retry_delay=timedelta(0))
            message_id = queue.push(b"one")
            for delivery in pop(queue):
                delivery.rollback(reason="it was busy")
            for delivery in pop(queue):
                delivery.reject("no such customer")
            retire(store, queue)
        return str(message_id)

    def test_tells_what_happened(self, cli, message_id):
        told = cli.ok("history", message_id)

        assert "state       dead" in told
        assert "reason      no such customer" in told
        assert "retired_at  20" in told
        assert "ended_at    20" in told
        assert re.search(r"past        attempt 1: \S+: it was busy\n", told)

    def test_tells_it_as_json(self, cli, message_id):
        told = cli.json("history", message_id)

        assert (told["id"], told["queue"], told["state"]) == (message_id, "orders", "dead")
        assert (told["attempt"], told["reason"]) == (2, "no such customer")
        assert [(each["attempt"], each["reason"]) for each in told["past"]] == [(1, "it was busy")]
        assert datetime.fromisoformat(told["ended_at"]).tzinfo
        assert told["pipes"] == [message_id.partition(":")[0]]
        assert datetime.fromisoformat(told["retired_at"]).tzinfo

    def test_says_where_nobody_knows(self, cli, message_id):
        other = message_id.replace(message_id[:8], "5b0e4a1e")

        ended = cli.run("history", other)

        assert ended.returncode == 66
        assert f"nobody knows of message {other}" in ended.stderr


def test_the_same_for_asyncio(tmp_path):
    async def ask():
        async with cassq.aio.connect(f"sqlite:///{tmp_path}/store.db") as store:
            queue = await store.queue("orders", journal="outline")
            return await store.history(await queue.push(b"one"))

    found = asyncio.run(ask())

    assert (found.queue, found.status.state) == ("orders", State.WAITING)

"""One fault each, planted at the place where it once did harm."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from support.contexts import context_of

from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.errors import (
    AccessDeniedError,
    CassqError,
    CorruptError,
    DecodeError,
    OutcomeUnknownError,
    QueueNotFoundError,
    StorageUnavailableError,
)
from cassq.limits import UNDECIDED, WINDOW_OUT
from cassq.model.ids import new_token
from cassq.model.message import Batch
from cassq.model.pipe import End, Mark, PipeEntry
from cassq.model.settings import QueueSettings
from cassq.model.transaction import Answer, Retire, Transaction
from cassq.pipes import upkeep
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.owned_pipe import OwnedPipe, TakeResult
from cassq.popping.popper import Popper
from cassq.queue import Queue
from cassq.runtime.clock import SystemClock
from cassq.storage.sqlite.storage import SqliteStorage
from cassq.store import Adapters, Store

PATIENCE = 10


class Planted:
    """A storage of which single methods can be replaced, also after somebody has got hold of them."""

    def __init__(self, storage: SqliteStorage) -> None:
        self._storage = storage
        self.plants: dict[str, Callable[..., object]] = {}

    def __getattr__(self, name: str) -> Callable[..., object]:
        real = getattr(self._storage, name)

        def call(*args: object, **options: object) -> object:
            return self.plants.get(name, real)(*args, **options)

        return call

    def real(self, name: str) -> Callable[..., object]:
        return getattr(self._storage, name)


class ManualClock(SystemClock):
    """The machine's clock, which can be put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def storage(clock: ManualClock) -> Iterator[Planted]:
    kept = SqliteStorage(None, clock=clock)
    yield Planted(kept)
    kept.close()


@pytest.fixture
def store(clock: ManualClock, storage: Planted) -> Iterator[Store]:
    coordinator = LocalCoordinator(None, clock)
    with Store("planted", Adapters(storage, coordinator, coordinator.close), clock=clock) as opened:
        yield opened


def _own(storage: Planted, clock: ManualClock, entry: PipeEntry, settings: QueueSettings) -> OwnedPipe:
    state = storage.load_pipe(entry.pipe)
    return OwnedPipe(context_of(storage, settings, clock), entry, state, Taker("test"))


def _pop_some(popper: Popper) -> None:
    for _ in range(3):
        popper.pop_many(10, timeout=0.5)


def test_what_stays_leased_beside_a_rolled_back_message_is_not_lost_with_its_holder(store, storage, clock):
    # Given a run 1 … 10, of which 1 was rolled back, taken again and committed, and 2, 3 were committed
    queue = store.queue("q", lease=timedelta(seconds=30))
    queue.push_many([b"%d" % number for number in range(1, 11)])
    popper = queue.popper()
    deliveries = popper.pop_many(10, timeout=PATIENCE)
    assert len(deliveries) == 10
    deliveries[0].rollback(timedelta(0))
    popper.commit_many(deliveries[1:3])
    again = popper.pop(timeout=PATIENCE)
    assert again.body == b"1"
    again.commit()
    # When the owner takes once more (which moves the floor), and then the holder of 4 … 10 dies
    queue.push(b"11")
    popper.pop(timeout=PATIENCE).commit()
    clock.ahead += 3600
    # Then they come again
    stats = queue.stats()
    assert stats.waiting + stats.pending == 7
    came = {each.body for each in popper.pop_many(20, timeout=PATIENCE)}
    assert came == {b"%d" % number for number in range(4, 11)}


def test_what_one_pipe_gave_is_handed_out_though_the_next_one_cannot_be_read(store, storage):
    # Given two pipes with a message each, the second of which cannot be read
    queue = store.queue("q", pipe_messages_max=1)
    queue.push(b"1")
    queue.push(b"2")
    second = [entry.pipe for entry in storage.list_pipes("q").entries][1]
    load = storage.real("load_pipe")

    def load_pipe(pipe: UUID) -> object:
        if pipe == second:
            raise StorageUnavailableError("planted")
        return load(pipe)

    storage.plants["load_pipe"] = load_pipe
    # When two are asked for, then the first one comes
    with queue.popper() as popper:
        assert [each.body for each in popper.pop_many(2, timeout=1)] == [b"1"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_push_into_a_damaged_store_fails_instead_of_hanging(store, storage):
    queue = store.queue("q")
    queue.push(b"1")

    def append(*_: object) -> None:
        raise CorruptError("planted")

    storage.plants["append"] = append
    future = queue.push_soon(b"2", timeout=timedelta(seconds=1))
    with pytest.raises(CassqError):
        future.result(PATIENCE)


def test_a_push_that_may_have_landed_is_not_told_as_refused(store, storage, clock):
    # Given a push whose reply is lost, a popper that takes it, and a user who may not write any more
    queue = store.queue("q")

    def refused(*_: object) -> None:
        raise AccessDeniedError("planted")

    def reply_lost(pipe: UUID, batch: Batch) -> None:
        storage.plants["append"] = refused
        storage.real("append")(pipe, batch)
        (entry,) = storage.list_pipes("q").entries
        assert _numbers(_own(storage, clock, entry, queue.settings).take(1)) == [1]
        raise OutcomeUnknownError("planted")

    storage.plants["append"] = reply_lost
    # When the pusher sends it again, then its caller hears that it is stored
    assert queue.push(b"1").seq == 1


def test_two_passes_of_one_reaper_at_once_do_no_harm(store, storage):
    # Given many pipes, and a queue that is reaped by several threads (as in a process with poppers)
    queue = store.queue("q", pipe_messages_max=1)
    for number in range(150):
        queue.push(b"%d" % number)
    errors: list[BaseException] = []

    def reap() -> None:
        try:
            for _ in range(30):
                queue.reap()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=reap) for _ in range(4)]
    for thread in threads:
        thread.start()
    with queue.popper() as popper:
        for _ in range(150):
            popper.pop(timeout=PATIENCE).commit()
    for thread in threads:
        thread.join(60)
    assert not errors


def test_a_pipe_that_was_counted_and_retired_but_not_deleted_is_counted_once(store, storage, clock):
    # Given a pipe whose reaper died between "retired" and the deletion, after which another reaper retired
    # a second pipe and so forgot that the first was counted
    queue = store.queue("q", pipe_messages_max=1)
    queue.push(b"1")
    with queue.popper() as popper:
        popper.pop(timeout=PATIENCE).commit()

    def killed(*_: object) -> None:
        raise StorageUnavailableError("planted: the reaper dies here")

    storage.plants["delete_pipe"] = killed
    clock.ahead += 3600
    queue.reap()
    queue.push(b"2")
    with queue.popper() as popper:
        popper.pop(timeout=PATIENCE).commit()
    queue.push(b"3")
    clock.ahead += 3600
    queue.reap()
    # Then each message counts once
    assert queue.stats().pushed == 3


def test_claims_are_let_go_when_the_coordination_was_away_for_a_moment(store, storage, clock):
    # Given a popper that claims two pipes
    queue = store.queue("q", pipe_messages_max=2)
    coordinator = store.coordinator
    for number in range(4):
        queue.push(b"%d" % number)
    with queue.popper() as popper:
        assert len(popper.pop_many(1, timeout=PATIENCE)) == 1
        assert coordinator.holders("q")
        # When the service is away for a moment, but the session lives on, and nobody pops any more
        may_take = coordinator.may_take
        coordinator.may_take = lambda: False
        with pytest.raises(CassqError):
            _pop_some(popper)
        coordinator.may_take = may_take
        # Then the idle popper does not keep what it claimed
        clock.ahead += 10
        for _ in range(100):
            if not coordinator.holders("q"):
                break
            threading.Event().wait(0.05)
        assert not coordinator.holders("q")


def test_a_pipe_that_was_cleared_away_under_its_former_owner_is_let_go_quietly(store, storage, clock):
    # Given an owner that knows of a returned run, and another that ends, retires and deletes the pipe
    settings = QueueSettings()
    queue = store.queue("q")
    queue.push_many([b"1", b"2"])
    store.queue("q").close()
    (entry,) = storage.list_pipes("q").entries
    owned = _own(storage, clock, entry, settings)
    result = owned.take(2)
    run = result.runs[0].run
    owned.note(replace(run, state=type(run.state).RETURNED, leased_at_ms=0))
    storage.mark(entry.pipe, [Mark(1, 2, End.COMMITTED)])
    storage.transact(entry.pipe, Transaction(Retire(owned.head.op, new_token())))
    storage.delete_pipe("q", entry.pipe)
    # When the first takes, then it learns that it has another owner
    assert owned.take(2) is None


def test_a_reaper_frozen_before_it_read_the_list_takes_no_fresh_pipe_for_an_old_one(store, storage, clock):
    # Given a reaper that is frozen on its way to the list, while a pusher opens a pipe and pushes
    queue = store.queue("q")

    def thawed(*args: object) -> object:
        storage.plants.clear()
        clock.ahead += 3600
        queue.push(b"1")
        return storage.list_pipes(*args)

    storage.plants["list_pipes"] = thawed
    # When it goes on, the message is consumed, and the pusher pushes into its pipe, which is young
    report = queue.reap()
    with queue.popper() as popper:
        popper.pop(timeout=PATIENCE).commit()
    queue.reap()
    queue.push(b"2")
    # Then what was acknowledged is delivered
    assert report.sealed == 0
    with queue.popper() as popper:
        assert popper.pop(timeout=2).body == b"2"


def test_a_reaper_of_an_earlier_queue_closes_no_pipe_of_a_later_one(store, storage, clock):
    # Given a reaper on its way to the list, while the queue is deleted, and created anew for slower pushers
    queue = store.queue("q")
    with Store("planted", Adapters(storage, store.coordinator, lambda: None), clock=clock) as other:
        later: list[Queue] = []

        def created_anew(*args: object) -> object:
            storage.plants.clear()
            other.delete_queue("q")
            later.append(other.queue("q", push_age_max=timedelta(hours=1)))
            pipe = later[0].push(b"1").pipe
            (entry,) = storage.list_pipes("q").entries
            assert _numbers(_own(storage, clock, entry, later[0].settings).take(1)) == [1]
            storage.mark(pipe, [Mark(1, 1, End.COMMITTED)])
            clock.ahead += 600
            return storage.list_pipes(*args)

        storage.plants["list_pipes"] = created_anew
        # When it goes on
        with pytest.raises(QueueNotFoundError):
            queue.reap()
        # Then what the later queue's pusher goes on to push is delivered
        later[0].push(b"2")
        with later[0].popper() as popper:
            assert popper.pop(timeout=2).body == b"2"


def test_what_lands_just_before_the_forced_seal_is_not_cut_off(store, storage, clock):
    # Given a pipe of which everything was handed out, and a push that lands while a reaper seals it
    queue = store.queue("q")
    queue.push(b"1")
    with queue.popper() as popper:
        popper.pop(timeout=PATIENCE).commit()
    (entry,) = storage.list_pipes("q").entries
    owned = _own(storage, clock, entry, queue.settings)

    def pushed_before(pipe: UUID, transaction: Transaction) -> object:
        storage.plants.clear()
        storage.append(pipe, Batch(2, (b"2",), None, 1))
        return storage.real("transact")(pipe, transaction)

    storage.plants["transact"] = pushed_before
    # When the reaper has sealed and drained it
    assert upkeep.seal(owned)
    assert upkeep.drain(owned)
    # Then the push counts
    assert not storage.load_pipe(entry.pipe).head.is_decided
    assert owned.take(10).runs[0].count == 1


def test_a_read_that_missed_a_batch_hands_out_nothing_behind_it(store, storage, clock):
    queue = store.queue("q")
    queue.push(b"1")
    (entry,) = storage.list_pipes("q").entries
    storage.append(entry.pipe, Batch(3, (b"3",), None, 1))
    owned = _own(storage, clock, entry, queue.settings)
    assert _numbers(owned.take(10)) == [1]
    storage.append(entry.pipe, Batch(2, (b"2",), None, 1))
    assert _numbers(owned.take(10)) == [2, 3]


def test_what_lands_in_an_older_pipe_between_two_reads_comes_before_what_follows_it(store, storage):
    # Given a pipe that is half full, so that its successor is listed
    queue = store.queue("q", pipe_messages_max=4, pop_width=1)
    opened: list[UUID] = []
    are_both_there = threading.Event()

    def create(queue: str, entry: PipeEntry, head: object) -> None:
        storage.real("create_pipe")(queue, entry, head)
        opened.append(entry.pipe)
        if len(opened) == 2:
            are_both_there.set()

    storage.plants["create_pipe"] = create
    pushed = [b"1", b"2", b"3", b"last of the older", b"first of the younger"]
    for body in pushed[:3]:
        queue.push(body)
    assert are_both_there.wait(PATIENCE)
    # When the rest lands in both after a popper read the older one, and before it reads the other
    left = pushed[3:]

    def read(pipe: UUID, query: object) -> object:
        found = storage.real("read_batches")(pipe, query)
        while left and pipe == opened[0]:
            queue.push(left.pop(0))
        return found

    storage.plants["read_batches"] = read
    came: list[bytes] = []
    with queue.popper() as popper:
        while len(came) < len(pushed):
            deliveries = popper.pop_many(10, timeout=PATIENCE)
            came += [delivery.body for delivery in deliveries]
            popper.commit_many(deliveries)
    # Then all comes in the order in which it was pushed
    assert came == pushed


def test_a_take_of_unknown_outcome_is_not_made_over_that_of_another_owner(store, storage, clock):
    # Given a popper whose take gets lost, while another one takes the same messages
    queue = store.queue("q")
    queue.push_many([b"1", b"2"])
    (entry,) = storage.list_pipes("q").entries
    owned, other = (_own(storage, clock, entry, queue.settings) for _ in range(2))
    taken: list[int] = []

    def lost(*_: object) -> object:
        storage.plants.clear()
        taken.extend(_numbers(other.take(10)))
        raise OutcomeUnknownError("planted")

    storage.plants["transact"] = lost
    # When it looks what became of that, then it learns that the pipe is not its own any more
    assert owned.take(10) is None
    assert taken == [1, 2]


def test_what_comes_back_comes_back_under_a_lease_of_nobody(store, storage):
    queue = store.queue("q")
    queue.push_many([b"1", b"2"])
    with queue.popper() as popper:
        first, _ = popper.pop_many(2, timeout=PATIENCE)
        (entry,) = storage.list_pipes("q").entries
        (leased,) = storage.load_pipe(entry.pipe).runs
        first.rollback(timedelta(hours=1))
        back, kept = storage.load_pipe(entry.pipe).runs
        assert (kept.lease_id, back.leased_at_ms) == (leased.lease_id, 0)
        assert back.lease_id != leased.lease_id


def _numbers(result: TakeResult | None) -> list[int]:
    return [seq for taken in result.runs for seq, *_ in taken.messages] if result else []


def test_a_reaper_whose_step_failed_lets_the_pipe_go(store, storage, clock):
    # Given a message whose holder died, and a reaper that returns it but never hears that it did
    queue = store.queue("q", clock_skew_max=timedelta(0))
    queue.push(b"1")
    (entry,) = storage.list_pipes("q").entries
    assert _own(storage, clock, entry, queue.settings).take(1).runs
    clock.ahead += 60

    def away(*_: object) -> None:
        storage.plants.clear()
        raise StorageUnavailableError("planted")

    def reply_lost(pipe: UUID, transaction: Transaction) -> object:
        answer = storage.real("transact")(pipe, transaction)
        if not transaction.runs:
            return answer  # the pusher seals what is old
        storage.plants = {"load_pipe": away}
        raise OutcomeUnknownError("planted")

    storage.plants["transact"] = reply_lost
    # When it has made its passes, then a popper gets the message
    queue.reap()
    queue.reap()
    assert not store.coordinator.holders("q")
    with queue.popper() as popper:
        assert popper.pop(timeout=2).body == b"1"


@pytest.mark.parametrize("stands", ["a window", "an undecided seal"])
def test_a_lane_goes_on_after_a_pipe_that_cannot_be_decoded(store, storage, clock, stands):
    # Given a push without an answer, into a pipe that cannot be read
    queue = store.queue("q", pop_width=1)
    spoilt = queue.push(b"1").pipe

    def plant(name: str, does: Callable[..., object]) -> None:
        real = storage.real(name)
        storage.plants[name] = lambda pipe, *more: does() if pipe == spoilt else real(pipe, *more)

    def fail(error: CassqError) -> object:
        raise error

    plant("append", lambda: fail(OutcomeUnknownError("planted")))
    plant("load_pipe", lambda: fail(DecodeError("planted")))
    refused = Answer(is_applied=False, cursor=WINDOW_OUT, last=UNDECIDED)
    plant("transact", lambda: refused if stands == "a window" else fail(DecodeError("planted")))
    # When it is given up, then its caller hears that nobody knows
    with pytest.raises(OutcomeUnknownError):
        queue.push(b"2", timeout=0.4)
    # And later pushes go on, in another pipe, from which nothing is handed out before the first is mended
    later = queue.push(b"3", timeout=PATIENCE)
    assert later.pipe != spoilt
    with queue.popper() as popper:
        with pytest.raises(DecodeError):
            popper.pop(timeout=0.5)
        storage.plants.clear()
        first = popper.pop(timeout=PATIENCE)
        assert first.body == b"1"
        first.commit()
        clock.ahead += 3600  # its pusher has left it, so it is closed as those of dead ones are
        assert popper.pop(timeout=PATIENCE).body == b"3"

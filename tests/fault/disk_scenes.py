"""What a process does on a disk that fails: its stage, and the scenes that are played on it.

Owns what a scene does and what it notes, in the words of `cassq.verification.ledger`. Refuses to judge, and
to strike a call. What must not break: an intention is noted before the call, an outcome only after it.

A dead letter that is put back has its body twice: "again" behind the name of the second tells them apart.
"""

import ctypes
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid1

import workers
from reckoning import BATCH, GONE, LEAVING
from workers import commit, note_delivered

import cassq
from cassq.bulk.writers import ONCE
from cassq.errors import CassqError, OutcomeUnknownError, UnavailableError
from cassq.model.ids import MessageId
from cassq.observing.dead_letters import DeadMessage
from cassq.popping.delivery import Delivery
from cassq.popping.popper import Popper
from cassq.queue import Queue
from cassq.runtime.clock import SystemClock
from cassq.verification.ledger import Kind, LedgerWriter, Line

QUEUE = "disk"
SETTINGS = {
    "retry_delay": timedelta(0),
    "lease": timedelta(minutes=1),
    "push_age_max": timedelta(minutes=1),
    "push_grace": timedelta(seconds=10),
    "pipe_messages_max": 3,
    "max_attempts": 1_000_000,
}

#: How often a message is tried in the scenes that bury some.
ATTEMPTS = {"burying": 1}

PUSH_TIMEOUT_S = 1.5
POP_TIMEOUT_S = 5.0
DAY_S = 86_400.0

#: How often a driver publishes a batch of which it does not know what became of it.
PUBLISH_ATTEMPTS = 3

disk = ctypes.CDLL(None)


class _Clock(SystemClock):
    """The machine's clock, which can be put forward."""

    def __init__(self) -> None:
        self.forward_s = 0.0

    def now(self) -> float:
        return super().now() + self.forward_s


class _Ledger(LedgerWriter):
    """Notes in the record of the disk, too, how many lines there are: what was told before which write."""

    def __init__(self, path: Path, who: str, clock: SystemClock) -> None:
        super().__init__(path, who, clock)
        self._count = 0
        self._guard = threading.Lock()

    def append(self, lines: Iterable[Line]) -> None:
        with self._guard:
            lines = list(lines)
            super().append(lines)
            self._count += len(lines)
            disk.disk_note(self.who.encode(), str(self._count).encode())


@dataclass(frozen=True, slots=True)
class Staged:
    """What one task of a bulk write filled."""

    writer: str
    batch: int
    bodies: list[str]
    pipes: Sequence[UUID]


class Stage:
    """One process of a trial: its store, and what it does and tells.

    Args:
        scene: what is played on it, or was played before it came.
        meet: returns once the other process of the trial has come as far, too, where there is one.
    """

    def __init__(
        self, url: str, ledger: Path, who: str, scene: str, meet: Callable[[], object] = lambda: None
    ) -> None:
        self.meet = meet
        self.clock = _Clock()
        self.ledger = _Ledger(ledger, who, self.clock)
        self._url = url
        self._settings = {**SETTINGS, "max_attempts": ATTEMPTS.get(scene, SETTINGS["max_attempts"])}
        self._made = self._batches = 0
        self._popper: Popper | None = None
        self._letters: dict[str, MessageId] = {}
        workers.name_of = self.name_of
        threading.excepthook = lambda died: self.trouble(died.exc_value)
        sys.modules["cassq.connect"].SystemClock = lambda: self.clock

    def open(self) -> cassq.Store:
        return cassq.connect(self._url)

    def queue(self, store: cassq.Store) -> Queue:
        queue = store.queue(QUEUE, **self._settings)
        self.ledger.note(Kind.READY)
        return queue

    def popper(self, queue: Queue) -> Popper:
        """Return the one popper of this process: what is in the buffer of another would not come."""
        if self._popper is None or self._popper.is_closed:
            self._popper = queue.popper()
        return self._popper

    def let_a_day_pass(self) -> None:
        self.clock.forward_s += DAY_S
        self.ledger.note(Kind.REAPED)

    def catch_up(self, lines: Sequence[Line]) -> None:
        """Set the clock to that of the processes that wrote these lines."""
        last = max((line.at for line in lines), default=0.0)
        self.clock.forward_s += max(0.0, last - self.clock.now())

    def name_of(self, delivery: Delivery) -> str:
        return self._name(delivery.body, delivery.message_id)

    def _name(self, body: bytes, message_id: MessageId) -> str:
        name = body.decode()
        return name if self._letters.get(name, message_id) == message_id else f"{name} again"

    def hear_of_letters(self, lines: Sequence[Line]) -> None:
        """Hear which messages the processes that wrote these lines found among the dead letters."""
        for line in lines:
            if line.kind is Kind.DEAD_LETTER:
                self._letters.setdefault(line.message, MessageId(UUID(line.pipe), line.seq))

    def trouble(self, error: BaseException | None) -> None:
        self.ledger.note(Kind.TROUBLE, words="".join(traceback.format_exception(error)))

    def push(self, queue: Queue, count: int = 1) -> None:
        """Push one call's messages, with a body that no other has."""
        bodies = self._new_bodies(count)
        self.ledger.note(Kind.ATTEMPTED, *bodies)
        try:
            if count == 1:
                queue.push(bodies[0].encode(), timeout=PUSH_TIMEOUT_S)
            else:
                queue.push_many([body.encode() for body in bodies], timeout=PUSH_TIMEOUT_S)
        except UnavailableError as error:
            self.ledger.note(Kind.REFUSED, *bodies, words=str(error))
        except OutcomeUnknownError as error:
            self.ledger.note(Kind.UNKNOWN_PUSH, *bodies, words=str(error))
        else:
            self.ledger.note(Kind.ACKNOWLEDGED, *bodies)

    def _new_bodies(self, count: int) -> list[str]:
        self._made += count
        return [f"{self.ledger.who}-{place}" for place in range(self._made - count, self._made)]

    def pop(self, popper: Popper, count: int = 1, timeout: float = POP_TIMEOUT_S) -> list[Delivery]:
        """Pop as many, or what there is when the disk lets nothing come."""
        found: list[Delivery] = []
        with suppress(UnavailableError, OutcomeUnknownError):
            while len(found) < count and (some := popper.pop_many(count - len(found), timeout)):
                note_delivered(self.ledger, some)
                found += some
        return found

    def roll_back(self, delivery: Delivery) -> None:
        self.ledger.note(Kind.ROLLING_BACK, self.name_of(delivery), attempt=delivery.attempt)
        with suppress(CassqError):
            delivery.rollback()

    # -- dead letters --

    def letters(self, queue: Queue) -> list[DeadMessage]:
        """Note the dead letters that there are, and return them."""
        found: list[DeadMessage] = []
        with suppress(UnavailableError, OutcomeUnknownError):
            found += queue.dead
        for letter in found:
            if self._name(letter.body, letter.message_id) == letter.body.decode():
                self._letters[letter.body.decode()] = letter.message_id
            self._note_letter(letter, "")
        return found

    def _note_letter(self, letter: DeadMessage, words: str) -> None:
        name, pipe, seq = (
            self._name(letter.body, letter.message_id),
            letter.message_id.pipe,
            letter.message_id.seq,
        )
        line = Line(self.ledger.now(), self.ledger.who, Kind.DEAD_LETTER, name, pipe=str(pipe), seq=seq)
        self.ledger.append([replace(line, words=words)])

    def put_back(self, queue: Queue, letter: DeadMessage) -> None:
        """Push a dead letter again: one message more, under the same body."""
        again = f"{letter.body.decode()} again"
        self._note_letter(letter, LEAVING)
        self.ledger.note(Kind.ATTEMPTED, again)
        try:
            queue.dead.put_back(letter.message_id)
        except (UnavailableError, OutcomeUnknownError) as error:
            self.ledger.note(Kind.UNKNOWN_PUSH, again, words=str(error))
        else:
            self.ledger.note(Kind.ACKNOWLEDGED, again)
            self._note_letter(letter, GONE)

    def discard(self, queue: Queue, letters: Sequence[DeadMessage]) -> None:
        for letter in letters:
            self._note_letter(letter, LEAVING)
        with suppress(UnavailableError, OutcomeUnknownError):
            queue.dead.discard([letter.message_id for letter in letters])
            for letter in letters:
                self._note_letter(letter, GONE)

    # -- bulk writes --

    def stage(self, queue: Queue, writer: str, batch: int, count: int) -> Staged:
        """Have one task fill pipes that nobody sees yet."""
        self._batches += 1
        bodies = self._new_bodies(count)
        self.ledger.note(Kind.ATTEMPTED, *bodies, words=f"{BATCH}{self._batches}")
        task = queue.staging.open(writer, batch, f"task {self._batches}")
        for body in bodies:
            task.add(body.encode())
        return Staged(writer, batch, bodies, task.close())

    def publish(self, queue: Queue, staged: Staged) -> None:
        """Publish what a task filled, as a driver does: again after an error."""
        for _ in range(PUBLISH_ATTEMPTS):
            with suppress(UnavailableError, OutcomeUnknownError):
                is_ours = queue.staging.publish(staged.writer, staged.batch, staged.pipes)
                self.ledger.note(Kind.ACKNOWLEDGED if is_ours else Kind.REFUSED, *staged.bodies)
                return
        self.ledger.note(Kind.UNKNOWN_PUSH, *staged.bodies)

    def drop(self, queue: Queue, staged: Staged) -> None:
        """Give up what a task filled; nobody ever publishes it."""
        self.ledger.note(Kind.REFUSED, *staged.bodies)
        with suppress(UnavailableError, OutcomeUnknownError):
            queue.staging.discard(staged.writer, staged.batch, staged.pipes)


# -- scenes: what comes before the fault is armed, and what is done under it ---------------------------------

Scene = Callable[[Stage], Iterator[cassq.Store | None]]


def opening(stage: Stage) -> Iterator[cassq.Store | None]:
    """A store where there was none."""
    yield None
    store = stage.open()
    stage.push(stage.queue(store))
    yield store


def pushing(stage: Stage) -> Iterator[cassq.Store | None]:
    """Pushes that fill one pipe, seal it and open the next."""
    store = stage.open()
    queue = stage.queue(store)
    stage.push(queue)
    yield store
    for count in (1, 2, 1):
        stage.push(queue, count)
    yield store


def popping(stage: Stage) -> Iterator[cassq.Store | None]:
    """Pops from two pipes."""
    store = stage.open()
    queue = stage.queue(store)
    stage.push(queue, 5)
    yield store
    popper = stage.popper(queue)
    for _ in range(5):
        stage.pop(popper)
    yield store


def _hold(stage: Stage, count: int) -> tuple[cassq.Store, Popper, list[Delivery]]:
    """Push so many messages, and pop them."""
    store = stage.open()
    queue = stage.queue(store)
    stage.push(queue, count)
    popper = stage.popper(queue)
    return store, popper, stage.pop(popper, count)


def committing(stage: Stage) -> Iterator[cassq.Store | None]:
    """Commits of one message and of several."""
    store, popper, held = _hold(stage, 6)
    yield store
    for part in (held[1:2], held[3:], held[:1]):
        commit(stage.ledger, popper, part)
    yield store


def rolling_back(stage: Stage) -> Iterator[cassq.Store | None]:
    """Rollbacks out of the middle of a run, and of all that is left."""
    store, popper, held = _hold(stage, 6)
    yield store
    for each in held[1:2] + held[4:]:
        stage.roll_back(each)
    stage.pop(popper)
    yield store


def reaping(stage: Stage) -> Iterator[cassq.Store | None]:
    """A reaper's passes over what a lost pusher and a lost consumer left, until it is done and gone."""
    queue = stage.queue(stage.open())
    stage.push(queue, 7)
    with stage.popper(queue) as popper:
        commit(stage.ledger, popper, stage.pop(popper, 5))
        stage.pop(popper)
    stage.let_a_day_pass()
    store = stage.open()
    yield store
    queue = stage.queue(store)
    for _ in range(2):
        with suppress(UnavailableError, OutcomeUnknownError):
            store.reap()
        commit(stage.ledger, stage.popper(queue), stage.pop(stage.popper(queue)))
    with suppress(UnavailableError, OutcomeUnknownError):
        store.reap()
    yield store


def burying(stage: Stage) -> Iterator[cassq.Store | None]:
    """Messages past their attempts; some of these are put back, some discarded."""
    store, popper, held = _hold(stage, 6)
    queue = stage.queue(store)
    yield store
    commit(stage.ledger, popper, held[:1])
    for each in held[1:4] + held[5:]:
        stage.roll_back(each)
    stage.push(queue)
    commit(stage.ledger, popper, stage.pop(popper))
    letters = stage.letters(queue)
    for letter in letters[:2]:
        stage.put_back(queue, letter)
    stage.discard(queue, letters[2:3])
    for _ in letters[:2]:
        commit(stage.ledger, popper, stage.pop(popper)[:1])
    yield store


def writing_in_bulk(stage: Stage) -> Iterator[cassq.Store | None]:
    """A batch that is published, another attempt at it, one that is given up, and a writer of one batch."""
    store = stage.open()
    queue = stage.queue(store)
    stage.push(queue)
    yield store
    for count in (4, 1):
        stage.publish(queue, stage.stage(queue, "writer", 1, count))
    stage.drop(queue, stage.stage(queue, "writer", 2, 1))
    stage.publish(queue, stage.stage(queue, f"{ONCE}{uuid1()}", 1, 1))
    commit(stage.ledger, stage.popper(queue), stage.pop(stage.popper(queue), 2))
    yield store


def closing_down(stage: Stage) -> Iterator[cassq.Store | None]:
    """An orderly end: what is in the buffer goes back, pipes are sealed, the log goes into the file."""
    store = stage.open()
    queue = stage.queue(store)
    stage.push(queue, 5)
    popper = stage.popper(queue)
    held = stage.pop(popper, 2)
    commit(stage.ledger, popper, held[:1])
    yield store
    stage.ledger.note(Kind.CLOSING)
    store.close()
    yield None


def living(stage: Stage) -> Iterator[cassq.Store | None]:
    """Pushes, commits, rollbacks and messages that stay in hand, twice, with an orderly end in between."""
    yield None
    for _ in range(2):
        store = stage.open()
        queue = stage.queue(store)
        popper = stage.popper(queue)
        for count in (1, 4):
            stage.push(queue, count)
            held = stage.pop(popper, count)
            commit(stage.ledger, popper, held[:2])
            for each in held[2:3]:
                stage.roll_back(each)
        stage.ledger.note(Kind.CLOSING)
        store.close()
    yield None


def sharing(stage: Stage) -> Iterator[cassq.Store | None]:
    """What a life has, beside another process that does the same to the same queue, twice."""
    yield None
    for _ in range(2):
        store = stage.open()
        queue = stage.queue(store)
        popper = stage.popper(queue)
        for count in (1, 3, 2):
            stage.meet()
            stage.push(queue, count)
            held = stage.pop(popper, count, timeout=0)
            commit(stage.ledger, popper, held[:2])
            for each in held[2:]:
                stage.roll_back(each)
        stage.ledger.note(Kind.CLOSING)
        store.close()
    yield None


SCENES: dict[str, Scene] = {
    each.__name__: each
    for each in (
        opening,
        pushing,
        popping,
        committing,
        rolling_back,
        burying,
        writing_in_bulk,
        reaping,
        closing_down,
        living,
        sharing,
    )
}

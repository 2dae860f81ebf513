"""The calls that move messages: push, pop, commit, roll back, extend, wait; each beside `queue_model`.

Owns what each of them must answer; `queue_machine.py` has the calls that look and steer. What must not break:
every check follows from what the documentation promises, and allows for what the threads of the queue may do
meanwhile, but for nothing else; and what is drawn never depends on what those threads did, else the same
sequence could not be played again. So whoever needs something to choose from draws any number, and uses it
modulo how many there are.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from queue_model import COMING, ListQueue, Place, Pushed

import cassq

#: So long a pop may look for a message that must come.
PATIENCE = timedelta(seconds=30)

LEASE = timedelta(seconds=60)

_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n"), max_size=6)
_HEADERS = st.dictionaries(_TEXTS.filter(bool), _TEXTS, max_size=2)
_BODIES = st.binary(max_size=12)

#: Which of those there are, counted round and round.
CHOICES = st.integers(0, 99)


@dataclass(frozen=True, slots=True)
class Ground:
    """What a machine stands on.

    Attributes:
        connect: opens an empty store.
        skip: lets time pass for the store and all its actors; None where only the machine's clock counts.
        is_fifo: one popper of width 1 and one pusher, whose messages must come in order.
    """

    connect: Callable[[], cassq.Store]
    skip: Callable[[timedelta], None] | None = None
    is_fifo: bool = False


class QueueFlow(RuleBasedStateMachine):
    """One queue, one popper at a time: messages go in, come out, come back, and end."""

    def __init__(self, ground: Ground) -> None:
        super().__init__()
        self.ground = ground
        self.model = ListQueue(max_attempts=2)
        self.out: list[tuple[cassq.Delivery, Pushed]] = []
        self.late: list[cassq.Delivery] = []
        self.popper: cassq.Popper | None = None
        self.is_paused = False
        self.may_trickle = False  # a pause does not empty the buffer of a popper that is open
        self.numbers = 0
        self.store = ground.connect()

    @initialize(pipe_messages_max=st.sampled_from([2, 5, 20]))
    def open(self, pipe_messages_max):
        self.name = f"q-{secrets.token_hex(6)}"
        self.pipe_messages_max = pipe_messages_max
        self.queue = self._open()

    def _open(self) -> cassq.Queue:
        return self.store.queue(
            self.name,
            pipe_messages_max=self.pipe_messages_max,
            max_attempts=self.model.max_attempts,
            pop_width=1 if self.ground.is_fifo else 4,
            lease=LEASE,
            retry_delay=timedelta(0),
        )

    def _body(self, body: bytes) -> bytes:
        self.numbers += 1
        return self.numbers.to_bytes(3, "big") + body

    def _pop(self, count: int, timeout: timedelta) -> list[cassq.Delivery]:
        if self.popper is None:
            self.popper = self.queue.popper()
            self.may_trickle = False
        return self.popper.pop_many(count, timeout)

    # -- pushing ---------------------------------------------------------------------------------------

    @rule(body=_BODIES, headers=_HEADERS)
    def push(self, body, headers):
        body = self._body(body)
        self.model.push(body, headers, self.queue.push(body, headers))

    @rule(parts=st.lists(st.tuples(_BODIES, _HEADERS), max_size=8))
    def push_many(self, parts):
        parts = [(self._body(body), headers) for body, headers in parts]
        told = []
        ids = self.queue.push_many(iter(parts), progress=told.append)
        assert len(ids) == len(parts)
        assert told == sorted(told)
        assert told[-1:] in ([], [len(parts)])
        for (body, headers), message_id in zip(parts, ids, strict=True):
            self.model.push(body, headers, message_id)

    @rule(bodies=st.lists(_BODIES, min_size=1, max_size=5))
    def push_soon(self, bodies):
        bodies = [self._body(body) for body in bodies]
        flying = [self.queue.push_soon(body) for body in bodies]
        for body, future in zip(bodies, flying, strict=True):
            self.model.push(body, {}, future.result(30))

    # -- popping ---------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 6))
    def pop(self, count):
        sure = 0 if self.is_paused else min(count, self.model.count(*COMING))
        popped = self._pop(count, PATIENCE if sure else timedelta(0))
        while 0 < len(popped) < sure:  # a pop brings what is there at the moment; the rest comes too
            popped += self._pop(count - len(popped), PATIENCE)
        assert len(popped) <= count
        assert len(popped) == sure or (self.is_paused and self.may_trickle)
        for delivery in popped:
            self._check_delivery(delivery)
        if self.is_paused:  # a pause that stays leaves little to find out
            self.resume()

    @rule(
        count=st.integers(1, 6),
        ends=st.lists(st.sampled_from(["commit", "roll back", "keep"]), min_size=6, max_size=6),
    )
    def work(self, count, ends):
        before = len(self.out)
        self.pop(count)
        self.out, fresh = self.out[:before], self.out[before:]
        for (delivery, pushed), end in zip(fresh, ends, strict=False):
            if end == "commit":
                delivery.commit()
                pushed.place = Place.COMMITTED
            elif end == "roll back":
                assert delivery.rollback()
                self.model.roll_back(pushed, is_delayed=False)
            else:
                self.out.append((delivery, pushed))

    def _check_delivery(self, delivery: cassq.Delivery) -> None:
        expected = self.model.oldest_fresh()
        pushed = self.model.deliver(delivery.body)
        assert delivery.attempt == pushed.attempts
        assert dict(delivery.headers) == pushed.headers
        assert pushed.message_id in (None, delivery.message_id)
        if self.ground.is_fifo and delivery.attempt == 1:
            assert pushed is expected, f"{pushed} overtook {expected}"
        pushed.message_id = delivery.message_id
        self.out.append((delivery, pushed))

    @rule()
    def close_the_popper(self):
        if self.popper is not None:
            self.popper.close()
            self.popper = None

    def resume(self) -> None:
        self.queue.resume()
        self.is_paused = self.may_trickle = False

    # -- ending ----------------------------------------------------------------------------------------

    @rule(which=CHOICES)
    def commit(self, which):
        if not self._has_out():
            return
        delivery, pushed = self._let_go_of(which)
        delivery.commit()
        pushed.place = Place.COMMITTED
        for end in (delivery.commit, delivery.rollback, delivery.extend):
            with pytest.raises(cassq.ClosedError, match="committed before"):
                end()

    @rule(which=st.lists(CHOICES, min_size=1, max_size=6))
    def commit_many(self, which):
        if not self._has_out():
            return
        if self.popper is None:
            self.popper = self.queue.popper()
            self.may_trickle = False
        chosen = [self._let_go_of(each) for each in which[: len(self.out)]]
        self.popper.commit_many([delivery for delivery, _ in chosen])
        for _, pushed in chosen:
            pushed.place = Place.COMMITTED

    @rule(which=CHOICES, delay=st.sampled_from([timedelta(0), timedelta(0), timedelta(hours=1)]))
    def roll_back(self, which, delay):
        if not self._has_out():
            return
        delivery, pushed = self._let_go_of(which)
        assert delivery.rollback(delay)
        self.model.roll_back(pushed, is_delayed=bool(delay))
        with pytest.raises(cassq.ClosedError, match="rolled back before"):
            delivery.commit()

    @rule(which=CHOICES)
    def extend(self, which):
        if self._has_out():
            delivery, _ = self.out[which % len(self.out)]
            delivery.extend()

    @rule(which=CHOICES, how=st.sampled_from(["commit", "extend", "rollback"]))
    def end_too_late(self, which, how):
        if not self.late:
            return
        delivery = self.late.pop(which % len(self.late))
        if how == "rollback":
            assert not delivery.rollback()
            return
        with pytest.raises(cassq.DeliveryExpiredError):
            getattr(delivery, how)()

    def _has_out(self) -> bool:
        """Have something in hand, where there is anything to have; False where there is not."""
        if not self.out:
            self.pop(1)
        return bool(self.out)

    def _let_go_of(self, which: int) -> tuple[cassq.Delivery, Pushed]:
        return self.out.pop(which % len(self.out))

    # -- time ------------------------------------------------------------------------------------------

    @precondition(lambda self: self.ground.skip)
    @rule()
    def let_leases_end(self):
        # Closed first: what is in its buffer would use up an attempt, and nobody could tell of which message.
        self._settle()
        self.ground.skip(LEASE * 2 + timedelta(hours=1))
        self.model.let_leases_end()
        self.late += [delivery for delivery, _ in self.out]
        self.out = []

    @precondition(lambda self: self.ground.skip)
    @rule()
    def keep_leases_alive(self):
        if not self._has_out():
            return
        self._settle()
        for _ in range(3):
            for delivery, _ in self.out:
                delivery.extend()
            self.ground.skip(LEASE * 0.6)

    def _settle(self) -> None:
        """Bring the store to where the model is exact: no buffer, no dead letter or expired lease undone."""
        if self.popper:
            self.close_the_popper()
        self.queue.reap()
        self._note_the_dead()

    def _note_the_dead(self) -> list[cassq.DeadMessage]:
        letters = list(self.queue.dead)
        self.model.bury(letter.body for letter in letters)
        for letter in letters:
            assert letter.attempts == self.model.max_attempts
            assert dict(letter.headers) == self.model.by_body[letter.body].headers
        return letters

    def commit_all(self) -> None:
        """End what the last pop brought."""
        while self.out:
            delivery, pushed = self.out.pop()
            delivery.commit()
            pushed.place = Place.COMMITTED

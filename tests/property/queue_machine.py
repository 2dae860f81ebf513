"""The whole public queue, driven by whatever sequence of calls can be thought of, beside a list.

Owns the calls that look and steer, and what holds after every step and at the end. What must not break: every
check follows from what the documentation promises.
"""

import sys
from datetime import timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from queue_flow import CHOICES, QueueFlow
from queue_model import ALIVE, COMING, Place

import cassq
from cassq.observing.inspection import MessageState

_STATUS = {
    Place.WAITING: {MessageState.WAITING, MessageState.PENDING},  # pending: in the popper's buffer
    Place.OUT: {MessageState.PENDING},
    Place.LATE: {MessageState.PENDING, MessageState.WAITING},
    Place.DELAYED: {MessageState.DELAYED},
    Place.DOOMED: set(MessageState) - {MessageState.COMMITTED, MessageState.PURGED, MessageState.UNKNOWN},
    Place.DEAD: {MessageState.DEAD, MessageState.ENDED},
    Place.COMMITTED: {MessageState.COMMITTED, MessageState.ENDED},
    Place.PURGED: {MessageState.PURGED, MessageState.ENDED},
}


class QueueMachine(QueueFlow):
    """Everything that a caller may do with one queue."""

    # -- looking ---------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 20))
    def peek(self, count):
        seen = self.queue.peek(count)
        assert len(seen) <= count
        for message in seen:
            pushed = self.model.by_body[message.body]
            assert pushed.place in {Place.WAITING, Place.LATE}
            assert dict(message.headers) == pushed.headers
        assert len({message.message_id for message in seen}) == len(seen)
        if self.popper is None:
            assert len(seen) >= min(count, self.model.count(Place.WAITING))

    @rule()
    def status(self):
        for pushed in self.model.messages:
            if pushed.message_id is not None:
                found = self.queue.status(str(pushed.message_id)).state
                assert found in _STATUS[pushed.place], f"{pushed} is said to be {found}"

        known = [each.message_id for each in self.model.messages if each.message_id]
        if known:
            found = self.queue.status(cassq.MessageId(known[-1].pipe, 10_000)).state
            assert found in {MessageState.UNKNOWN, MessageState.ENDED}

    # -- steering --------------------------------------------------------------------------------------

    @rule()
    def purge(self):
        self._settle()
        assert self.queue.purge() == self.model.purge()

    @rule(which=CHOICES)
    def cancel(self, which):
        self._settle()
        known = [each for each in self.model.messages if each.message_id]
        if known:
            pushed = known[which % len(known)]
            assert self.queue.cancel(pushed.message_id) in self.model.cancel(pushed)

    @rule()
    def pause(self):
        self.queue.pause()
        self.may_trickle = self.may_trickle or (not self.is_paused and self.popper is not None)
        self.is_paused = True

    @rule()
    def reap(self):
        assert self.store.reap().failed == []

    @precondition(lambda self: not self.ground.is_fifo)
    @rule()
    def reopen_the_queue(self):
        self.queue.close()
        assert self.popper is None or self.popper.is_closed
        with pytest.raises(cassq.ClosedError):
            self.queue.push(b"x")
        self.popper = None
        self.queue = self._open()

    # -- dead letters ----------------------------------------------------------------------------------

    @rule(which=st.lists(CHOICES, max_size=4), deal=st.sampled_from(["put_back", "discard"]))
    def deal_with_the_dead(self, which, deal):
        letters = self._note_the_dead()
        assert self.queue.dead.peek(1000) == letters
        if not letters:
            assert self.queue.dead.put_back() == self.queue.dead.discard() == 0
            return
        # New messages get new ids in the order of the old ones.
        chosen = [letters[place] for place in sorted({each % len(letters) for each in which})]
        assert getattr(self.queue.dead, deal)([letter.message_id for letter in chosen]) == len(chosen)
        if deal == "put_back":
            for letter in chosen:
                self.model.put_back(self.model.by_body[letter.body])
        left = {letter.body for letter in self.queue.dead}
        # Others may have died meanwhile, none of the chosen ones is left.
        assert not left & {letter.body for letter in chosen}

    # -- what holds after every step -------------------------------------------------------------------

    @invariant()
    def the_figures_agree(self):
        model, stats = self.model, self.queue.stats()
        doomed, late = model.count(Place.DOOMED), model.count(Place.LATE)
        assert stats.state == ("paused" if self.is_paused else "active")
        assert stats.pushed == len(model.messages)
        assert stats.committed == model.count(Place.COMMITTED)
        assert stats.purged == model.count(Place.PURGED)
        assert model.deaths <= stats.dead <= model.deaths + doomed
        assert model.rollbacks <= stats.rolled_back <= model.rollbacks + model.lapses
        assert model.delivered <= stats.popped <= stats.pushed
        assert (
            stats.waiting + stats.pending + stats.delayed + stats.dead == model.count(*ALIVE) + model.deaths
        )
        assert model.count(Place.DELAYED) <= stats.delayed <= model.count(Place.DELAYED) + doomed
        assert model.count(Place.OUT) <= stats.pending
        if self.popper is None:
            assert stats.pending <= model.count(Place.OUT) + late + doomed
        assert (stats.oldest_age is None) == (stats.waiting + stats.pending + stats.delayed == 0)

    def teardown(self):
        """Whatever was pushed and is not over must still come, once, and then nothing is left."""
        try:
            if sys.exc_info()[0] is None:  # else that is the news
                self._drain()
        finally:
            self.store.close()

    def _drain(self) -> None:
        self.resume()
        self._settle()
        self.commit_all()
        while self.model.count(*COMING):
            self.pop(10)
            self.commit_all()
        while self.model.count(Place.DOOMED):  # who looks buries them
            assert self._pop(1, timedelta(0)) == []
            self._note_the_dead()
        self.purge()
        assert self.model.count(*ALIVE) == 0
        self.the_figures_agree()
        self.queue.close()
        self.queue = self._open()
        self.popper = None
        for _ in range(3):
            self.reap()
        stats = self.queue.stats()
        assert (stats.waiting, stats.pending, stats.delayed, stats.pipes) == (0, 0, 0, 0)

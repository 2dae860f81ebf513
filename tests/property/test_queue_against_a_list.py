"""The public queue against a plain list, by whatever sequence of calls can be thought of."""

import secrets

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

import cassq


class QueueAgainstAList(RuleBasedStateMachine):
    """One pusher, one popper, everything that a caller may do between a push and an end."""

    deliveries = Bundle("deliveries")

    def __init__(self):
        super().__init__()
        self.store = cassq.connect("memory:")
        self.queue = self.store.queue(f"q-{secrets.token_hex(4)}", pipe_messages_max=3, max_attempts=3)
        self.popper = self.queue.popper()
        self.waiting = {}
        self.out = {}
        self.attempts = {}
        self.committed = self.purged = self.dead = 0

    @rule(bodies=st.lists(st.binary(max_size=20), max_size=7))
    def push_many(self, bodies):
        ids = self.queue.push_many(bodies)
        self.waiting |= dict(zip(ids, bodies, strict=True))

    @rule(body=st.binary(max_size=20), headers=st.dictionaries(st.text(max_size=5), st.text(max_size=5)))
    def push(self, body, headers):
        self.waiting[self.queue.push(body, headers)] = body

    @rule(target=deliveries)
    def pop(self):
        if not self.waiting:
            assert self.popper.pop(timeout=0) is None
            return None
        delivery = self.popper.pop(timeout=10)
        assert self.waiting.pop(delivery.message_id) == delivery.body
        before = self.attempts.get(delivery.message_id, 0)
        assert delivery.attempt == before + 1
        self.attempts[delivery.message_id] = delivery.attempt
        self.out[delivery.message_id] = delivery.body
        return delivery

    @rule(delivery=consumes(deliveries))
    def commit(self, delivery):
        if delivery is not None:
            delivery.commit()
            del self.out[delivery.message_id]
            self.committed += 1

    @rule(delivery=consumes(deliveries))
    def rollback(self, delivery):
        if delivery is None:
            return
        assert delivery.rollback()
        body = self.out.pop(delivery.message_id)
        if delivery.attempt < 3:
            self.waiting[delivery.message_id] = body
        else:
            self.dead += 1

    @rule()
    def reap(self):
        assert self.store.reap().failed == []

    @invariant()
    def the_figures_agree(self):
        stats = self.queue.stats()
        ended = stats.committed + stats.dead
        assert stats.committed == self.committed
        assert stats.pushed == ended + stats.waiting + stats.pending + stats.delayed
        # A message on its last attempt is a dead letter once somebody looks at it again.
        assert stats.waiting + stats.pending + stats.dead == len(self.waiting) + len(self.out) + self.dead

    def teardown(self):
        self.store.close()


TestQueueAgainstAList = QueueAgainstAList.TestCase
TestQueueAgainstAList.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)

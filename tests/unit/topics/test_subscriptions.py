"""Subscriptions as one process has them open: what is declared, and what a relay of it is refused."""

import pytest

import cassq
from cassq.coordination.absent import AbsentCoordinator

WAIT_S = 60.0


@pytest.fixture
def store():
    with cassq.connect("memory:") as made:
        made.queue("billing")
        yield made


@pytest.fixture
def topic(store):
    return store.topic("events")


def popped(store, count):
    """Pop so many messages."""
    found = []
    with store.queue("billing").popper() as popper:
        while len(found) < count:
            with popper.pop(WAIT_S) as delivery:
                found.append(delivery.body)
    return found


class TestADeclaration:
    def test_brings_nothing_into_the_queue_before_a_relay_runs(self, store, topic):
        topic.publish(b"x", type="order.new")
        topic.declare_subscription("billing")
        assert [(each.owner, each.lag) for each in topic.lag("billing")] == [("", 1)]

        with topic.relay("billing"):
            assert popped(store, 1) == [b"x"]

    def test_is_told(self, topic):
        declared = topic.declare_subscription("billing", types=["order.*"], on_gone="oldest")

        assert (declared.types, declared.on_gone) == (("order.*",), "oldest")
        assert topic.subscriptions() == {"billing": declared}

    def test_is_the_same_in_whatever_order_its_types_are_named(self, topic):
        declared = topic.declare_subscription("billing", types=["b", "a", "b"])

        assert topic.declare_subscription("billing", types=("a", "b")) == declared

    def test_with_other_types_is_refused(self, topic):
        topic.declare_subscription("billing", types=["a"])

        with pytest.raises(cassq.InvalidOptionError, match="unsubscribe it first"):
            topic.declare_subscription("billing")

    def test_of_no_queue_is_refused(self, topic):
        with pytest.raises(cassq.QueueNotFoundError):
            topic.declare_subscription("nowhere")
        assert topic.subscriptions() == {}

    def test_is_not_made_by_what_cannot_run_it(self, topic, monkeypatch):
        refuse = AbsentCoordinator().may_take
        monkeypatch.setattr(topic._context.coordinator, "may_take", refuse, raising=False)

        with pytest.raises(cassq.InvalidOptionError, match="names no coordination service"):
            topic.subscribe("billing")

        assert topic.subscriptions() == {}


class TestARelay:
    def test_has_the_types_that_were_declared(self, store, topic):
        topic.declare_subscription("billing", types=["order.*"])
        topic.publish(b"other", type="user.new")
        topic.publish(b"order", type="order.new")

        with topic.relay("billing"):
            assert popped(store, 1) == [b"order"]

    def test_of_no_subscription_is_refused(self, topic):
        with pytest.raises(cassq.GroupNotFoundError):
            topic.relay("billing")

    def test_of_a_group_of_consumers_is_refused(self, topic):
        topic.consumer("billing").close()

        with pytest.raises(cassq.InvalidOptionError, match="group of consumers"):
            topic.relay("billing")

    def test_of_a_queue_that_was_made_anew_is_refused(self, store, topic):
        topic.declare_subscription("billing")
        store.delete_queue("billing")
        with pytest.raises(cassq.QueueNotFoundError):
            topic.relay("billing")

        store.queue("billing")

        with pytest.raises(cassq.InvalidOptionError, match="was deleted and made anew"):
            topic.relay("billing")

    def test_is_closed_with_its_topic(self, topic):
        topic.declare_subscription("billing")
        relay = topic.relay("billing")

        topic.close()

        assert relay.wait(WAIT_S)

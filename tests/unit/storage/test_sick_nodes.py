"""Which node is asked first, and which last."""

from types import SimpleNamespace

import pytest
from cassandra import InvalidRequest, OperationTimedOut, ReadTimeout, Unavailable
from cassandra.policies import LoadBalancingPolicy

from cassq.storage.cassandra.sick_nodes import SICK_S, HealthyFirst, SickNodes


class HandClock:
    def __init__(self):
        self.seconds = 100.0

    def now(self):
        return self.seconds


class InOrder(LoadBalancingPolicy):
    def make_query_plan(self, working_keyspace=None, query=None):
        return iter(["node 1", "node 2", "node 3"])


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def sick(clock):
    return SickNodes(clock)


def plan(sick):
    return list(HealthyFirst(InOrder(), sick).make_query_plan())


def answered_by(node):
    return SimpleNamespace(coordinator_host=node)


@pytest.mark.parametrize("error", [ReadTimeout("late"), Unavailable("no replicas")], ids=["late", "alone"])
def test_a_node_that_says_time_is_up_is_asked_last(sick, error):
    sick.note(error, answered_by("node 1"))

    assert plan(sick) == ["node 2", "node 3", "node 1"]


def test_a_node_that_does_not_answer_is_asked_last(sick):
    sick.note(OperationTimedOut(last_host="node 2"), answered_by(None))

    assert plan(sick) == ["node 1", "node 3", "node 2"]


def test_after_a_while_it_is_asked_in_its_turn_again(sick, clock):
    sick.note(ReadTimeout("late"), answered_by("node 1"))
    clock.seconds += SICK_S

    assert plan(sick) == ["node 1", "node 2", "node 3"]


def test_where_all_are_sick_all_are_asked_as_before(sick):
    for node in ("node 3", "node 1", "node 2"):
        sick.note(ReadTimeout("late"), answered_by(node))

    assert plan(sick) == ["node 1", "node 2", "node 3"]


def test_a_statement_that_is_wrong_says_nothing_about_its_node(sick):
    sick.note(InvalidRequest("no such table"), answered_by("node 1"))

    assert plan(sick) == ["node 1", "node 2", "node 3"]

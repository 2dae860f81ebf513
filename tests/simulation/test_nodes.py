"""Nodes forget, get hints, are lost and replaced as Cassandra's do, with an operator as the pages ask for."""

import pytest
from nodes import HINT_WINDOW_HOURS, Nodes
from replicas import Mutation, Row
from scheduler import World

HOUR_S = 1.0
KEY = ("q", 0)
ENTRY = Row({"": (1, True), "pusher": (1, "p")})


@pytest.fixture
def nodes():
    return Nodes(World(1), 24 * HOUR_S)


def pass_hours(nodes, hours):
    """Let time pass, and what is due happen."""
    world = nodes._world
    end = world.now + hours * HOUR_S
    while world._timers and world._timers[0][0] <= end:
        world.now, _, callback = world._timers.pop(0)
        callback()
        world._timers.sort(key=lambda timer: timer[:2])
    world.now = end


def insert(table):
    return Mutation(table, KEY, {(1,): ENTRY})


def delete(nodes, table):
    return Mutation(table, KEY, {(1,): Row({}, 2, nodes._world.now)})


def has_row(nodes, table, *numbers):
    """Tell whether a read of these nodes shows the row."""
    asked = [nodes.replicas[number] for number in numbers]
    for replica in asked:
        nodes.forget(replica, table, KEY)
    merged = nodes.merged(table, KEY, asked)
    row = merged.rows.get((1,))
    return row is not None and row.live(merged.deleted_at) is not None


def test_a_hint_waits_for_a_node_that_is_down(nodes):
    nodes.stop(2)
    nodes.hint(nodes.replicas[2], insert("waiting"), 0.0)
    pass_hours(nodes, 2)
    assert not has_row(nodes, "waiting", 2)

    nodes.start(2)
    pass_hours(nodes, 2)

    assert has_row(nodes, "waiting", 2)


def test_no_hint_is_written_for_a_node_that_is_down_for_longer_than_the_hint_window(nodes):
    nodes.stop(2)
    pass_hours(nodes, HINT_WINDOW_HOURS + 1)
    nodes.hint(nodes.replicas[2], insert("waiting"), 0.0)

    nodes.start(2)
    pass_hours(nodes, 2)

    assert not has_row(nodes, "waiting", 2)


def test_a_hint_that_is_older_than_the_grace_of_its_table_is_dropped(nodes):
    nodes.stop(2)
    nodes.hint(nodes.replicas[2], insert("pipes"), 0.0)
    nodes.hint(nodes.replicas[2], insert("waiting"), 0.0)
    pass_hours(nodes, 1.5)

    nodes.start(2)
    pass_hours(nodes, 2)

    assert not has_row(nodes, "pipes", 2)
    assert has_row(nodes, "waiting", 2)


@pytest.mark.parametrize(("table", "is_there_again"), [("pipes", True), ("waiting", False)])
def test_a_deletion_that_a_node_missed_is_forgotten_unless_there_is_time_for_a_repair(
    nodes, table, is_there_again
):
    nodes.begin_aging()
    for replica in nodes.replicas:
        replica.apply(insert(table))
    for replica in nodes.replicas[:2]:
        replica.apply(delete(nodes, table))
    assert not has_row(nodes, table, 0, 2)

    pass_hours(nodes, 1.5)
    assert has_row(nodes, table, 0, 2) is is_there_again

    pass_hours(nodes, 100)
    assert has_row(nodes, table, 0, 2) is is_there_again


def test_a_node_that_is_lost_has_nothing_and_gets_all_that_the_others_have_when_it_is_replaced(nodes):
    nodes.replicas[0].apply(insert("waiting"))
    nodes.replicas[1].apply(insert("waiting"))

    assert nodes.lose(0, 2 * HOUR_S)
    nodes.hint(nodes.replicas[0], insert("pending"), 0.0)
    assert not has_row(nodes, "waiting", 0)
    assert nodes.replicas[0].had("waiting", KEY, (1,), ("pusher",))
    pass_hours(nodes, 3)

    assert nodes.replicas[0].is_up
    assert has_row(nodes, "waiting", 0)
    assert not has_row(nodes, "pending", 0)  # hints were for the node that is gone


def test_a_second_node_neither_goes_down_nor_is_lost_beside_one(nodes):
    assert nodes.lose(0, float("inf"))

    assert not nodes.stop(1)
    assert not nodes.lose(2, 1.0)
    nodes.heal()
    assert [replica.is_up for replica in nodes.replicas] == [False, True, True]

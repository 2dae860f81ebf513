"""Whom a popper wakes for what it was woken for itself."""

import pytest
from support.contexts import context_of

import cassq
from cassq.coordination.port import name_in_line
from cassq.model.label import Label
from cassq.model.uses import wanted_bits, with_uses
from cassq.popping.rivals import Rivals
from cassq.runtime.clock import SystemClock


@pytest.fixture
def store():
    with cassq.connect("memory:") as opened:
        yield opened


@pytest.fixture
def rivals_of(store):
    """Return what makes the rivals of a popper in a queue of the types a, b and c, while three are hungry."""
    queue = store.queue("orders")
    queue.record.change(lambda record: with_uses(record, *(Label(type=name) for name in "abc")))
    settings = queue.settings
    woken = []
    for name, types in (("A", "a"), ("A too", "a"), ("B", "b")):
        waiting = name_in_line(name, wanted_bits(settings, types))
        store.coordinator.announce_hunger("orders", waiting, lambda name=name: woken.append(name))

    def make(types):
        context = context_of(
            store.storage, settings, SystemClock(), queue="orders", coordinator=store.coordinator
        )
        return Rivals(context, "me", types), woken

    return make


@pytest.mark.parametrize(
    ("types", "expected"),
    [((), ["A", "B"]), (("a",), ["A"]), (("b", "c"), ["B"]), (("c", "new"), [])],
    ids=["all", "a", "b and c", "c and one that nobody pushed"],
)
def test_who_was_woken_for_nothing_wakes_one_for_each_type_that_it_takes(rivals_of, types, expected):
    rivals, woken = rivals_of(types)
    assert rivals.pass_on() == len(expected)
    assert woken == expected


def test_who_found_messages_of_a_type_wakes_nobody_for_that(rivals_of):
    rivals, woken = rivals_of(())
    assert rivals.pass_on({"a"}) == 1
    assert woken == ["B"]


def test_who_waits_for_something_else_does_not_look_for_this_popper(rivals_of):
    rivals, _ = rivals_of(("a",))
    assert rivals.announce(lambda: None, lambda: None) == 2
    assert rivals.count_looking(others=rivals.count(), before=2) == 2
    rivals, _ = rivals_of(("b", "c"))
    assert rivals.announce(lambda: None, lambda: None) == 0
    assert rivals.count_looking(others=rivals.count(), before=0) == 0


def test_where_there_are_no_types_one_is_woken(store):
    context = context_of(
        store.storage,
        store.queue("orders").settings,
        SystemClock(),
        queue="orders",
        coordinator=store.coordinator,
    )
    woken = []
    for name in "AB":
        store.coordinator.announce_hunger("orders", name, lambda name=name: woken.append(name))
    assert Rivals(context, "me").pass_on({""}) == 0
    assert Rivals(context, "me").pass_on() == 1
    assert Rivals(context, "me").count_looking(others=1, before=0) == 1
    assert woken == ["A"]

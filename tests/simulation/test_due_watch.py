"""What the watch of due times holds against a history, and what it excuses."""

import random
from types import SimpleNamespace

import pytest
from cluster import EPOCH_MS
from due_watch import DueWatch
from move_watch import MoveWatch
from plan import Plan
from scheduler import World

from cassq.model.ids import new_pipe_id, new_token
from cassq.model.message import Batch
from cassq.model.pipe import Head, PipeEntry
from cassq.model.schedule import SOON

FAR_S = 100.0
NEAR_S = 5.0


@pytest.mark.parametrize(
    ("due_class", "least_s", "is_asleep"),
    [
        (SOON, NEAR_S, False),
        (SOON, FAR_S, True),  # which has no reason to be there
        (SOON + 1, NEAR_S, True),
    ],
)
def test_what_is_far_from_due_is_asleep_but_where_it_was_written_with_what_is_near(
    due_class, least_s, is_asleep
):
    plan = Plan(seed=1, leads_s=(FAR_S,), dated=0.0)
    world = World(1)
    watch = DueWatch(plan, world, MoveWatch(plan, world, [], []), [])
    storage = SimpleNamespace(create_pipe=lambda *_: None, append=lambda *_: None)
    watch.guard(storage)
    watch.options(random.Random(1), ["far"])
    entry = PipeEntry(new_pipe_id(), "a pusher", due_class=due_class)
    storage.create_pipe("q", entry, Head(new_token()))
    dues = tuple(EPOCH_MS + round(1000 * lead_s) for lead_s in (FAR_S, least_s))

    storage.append(entry.pipe, Batch(1, (b"far", b"other"), None, 2, dues=dues))

    watch.note_told(["far"])
    assert watch.is_asleep("far") is is_asleep


def test_a_message_that_was_pushed_with_a_delay_is_ready_once_that_is_over():
    plan = Plan(seed=1, leads_s=(5.0,), dated=0.0)
    world = World(1)
    watch = DueWatch(plan, world, MoveWatch(plan, world, [], []), [])
    watch.options(random.Random(1), ["delayed"])

    assert watch.ready_at("delayed", 2.0) == 7.0
    assert watch.ready_at("of no such push", 2.0) == 2.0


def test_a_message_that_is_being_cancelled_may_be_told_not_to_be_moved_or_cancelled_again():
    plan = Plan(seed=1, leads_s=(FAR_S,), dated=0.0)
    world, broken = World(1), []
    watch = DueWatch(plan, world, MoveWatch(plan, world, [], []), broken)

    watch.note_asked("far")  # by a call that has not answered
    watch.check_moved("far")
    watch.note_asked("far")
    watch.check_cancel("far", is_cancelled=False, was_asleep=True)
    assert not broken

    watch.note_refused("far")
    watch.check_cancel("far", is_cancelled=False, was_asleep=True)
    watch.note_refused("far")
    watch.check_moved("far")
    assert [told.partition(":")[0] for told in broken] == ["cancel", "moved"]

"""Which pipes a process sees, and what it reads for that of those that are gone."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from support.clocks import HandClock
from support.contexts import context_of

from cassq.model.ids import Source, just_before, new_pipe_id, new_token
from cassq.model.pipe import Head, PipeEntry
from cassq.model.queue_record import QueueRecord
from cassq.model.settings import QueueSettings
from cassq.pipes.pipe_list import PipeList
from cassq.pushing.pipe_rotation import PipeRotation
from cassq.runtime.background_thread import BackgroundThread
from cassq.storage.sqlite.storage import SqliteStorage

SETTINGS = QueueSettings()
SKEW_S = SETTINGS.clock_skew_max.total_seconds()


class Listed:
    """A storage that tells where its list was read from, and may take long to list a pipe."""

    def __init__(self, storage):
        self._storage = storage
        self.since = []
        self.before_it_is_listed = lambda: None
        self.unseen = []  # of each of the next looks: what it does not see

    def __getattr__(self, name):
        return getattr(self._storage, name)

    def list_pipes(self, queue, since=None):
        self.since.append(since)
        unseen = self.unseen.pop(0) if self.unseen else ()
        listing = self._storage.list_pipes(queue, since)
        return replace(listing, entries=tuple(each for each in listing.entries if each.pipe not in unseen))

    def create_pipe(self, queue, entry, head):
        self.before_it_is_listed()
        self._storage.create_pipe(queue, entry, head)


class Scene:
    """A list, a popper that looks at it, and pushers that open pipes; ids are made by their clocks."""

    def __init__(self, storage, clock):
        self.storage = storage
        self.clock = clock
        self._last = new_pipe_id()

    def pipe_list(self, settings=SETTINGS):
        return PipeList(context_of(self.storage, settings, self.clock))

    def make_id(self, late_s=0.0):
        """Return an id of now by a clock that is late by so much."""
        moment = just_before(self._last, 10_000 - self.clock.seconds + late_s)
        return UUID(fields=(*moment.fields[:3], *new_pipe_id().fields[3:]))

    def open(self, pipe, pusher="a pusher"):
        self.storage.create_pipe("q", PipeEntry(pipe, pusher), Head(op=new_token()))
        return pipe

    def retire(self, pipe):
        self.storage.delete_pipe("q", pipe)


@pytest.fixture
def scene():
    clock = HandClock()
    storage = SqliteStorage(None, clock=clock)
    yield Scene(Listed(storage), clock)
    storage.close()


def seen(pipes):
    return {entry.pipe for entry in pipes.refresh(0).entries}


def test_a_pipe_of_a_pusher_whose_clock_is_late_is_seen_at_the_next_look(scene):
    pipes = scene.pipe_list()
    on_time = scene.open(scene.make_id())
    assert seen(pipes) == {on_time}

    late = scene.open(scene.make_id(late_s=SKEW_S), "a pusher with a late clock")

    assert seen(pipes) == {on_time, late}


def test_a_pipe_that_is_opened_while_another_pusher_opens_one_is_seen_at_the_next_look(scene):
    # Given a pusher that has made an id, and whose pipe takes a moment to be listed
    pipes = scene.pipe_list()
    beside = BackgroundThread("beside")

    def supply_of(pusher):
        context = context_of(scene.storage, SETTINGS, scene.clock)
        return PipeRotation(context, Source(pusher), beside, lambda: 0)

    def another_comes_first():
        scene.storage.before_it_is_listed = lambda: None
        opened.append(supply_of("another pusher").writable(1, 1).pipe)
        assert seen(pipes) == set(opened)

    opened = []
    scene.storage.before_it_is_listed = another_comes_first
    # When another's pipe is listed, and looked at, before that
    opened.append(supply_of("a slow pusher").writable(1, 1).pipe)
    # Then both are seen
    assert seen(pipes) == set(opened)
    beside.shutdown()


@pytest.mark.parametrize("phase", range(8))
@pytest.mark.parametrize(("late_s", "look_s"), [(0.7, 0.05), (2.5, 0.25), (10.0, 1.0), (30.0, 2.0)])
def test_a_pipe_that_is_listed_late_is_seen_within_twice_as_long(scene, late_s, look_s, phase):
    # Given a pusher that needs so long to have its pipe listed, and another that fills one after the other
    scene.clock.seconds += phase * late_s / 2
    pipes = scene.pipe_list()
    late, other = scene.make_id(), scene.open(scene.make_id())
    begun_s = scene.clock.seconds
    while scene.clock.seconds < begun_s + late_s:
        scene.clock.seconds += look_s
        scene.retire(other)
        other = scene.open(scene.make_id())
        pipes.refresh(0)
    # When it is listed at last
    scene.open(late, "a slow pusher")
    listed_at = scene.clock.seconds
    while late not in seen(pipes) and scene.clock.seconds <= listed_at + 2 * late_s + look_s:
        scene.clock.seconds += look_s
        scene.retire(other)
        other = scene.open(scene.make_id())
    # Then a popper that looks now and then has seen it
    assert late in {entry.pipe for entry in pipes.entries}


def test_a_pipe_that_retires_is_forgotten_wherever_a_look_begins(scene):
    pipes = scene.pipe_list()
    gone, stays = (scene.open(scene.make_id(late_s=late_s)) for late_s in (SKEW_S, 0.0))
    assert seen(pipes) == {gone, stays}

    scene.retire(gone)

    assert seen(pipes) == {stays}


@pytest.mark.parametrize("look_s", [0.01, 0.05, 0.25])
def test_a_pipe_that_retired_is_read_a_few_times_however_often_anybody_looks(scene, look_s):
    # Given a pusher that fills ten pipes a second, in the time between two full reads
    pipes = scene.pipe_list(replace(SETTINGS, clock_skew_max=timedelta(0)))
    gone, reads = [], Counter()
    living = scene.open(scene.make_id())
    opened_at = scene.clock.seconds
    pipes.refresh(0)
    # When each is gone as soon as the next one is there
    while len(gone) < 100:
        scene.clock.seconds += look_s
        if scene.clock.seconds >= opened_at + 0.1:
            opened_at = scene.clock.seconds
            scene.retire(living)
            gone.append(living)
            living = scene.open(scene.make_id())
        pipes.refresh(0)
        since = scene.storage.since[-1]
        reads.update(pipe for pipe in gone if pipe.time >= since.time)
    # Then it was read at most three times for each doubling of the way back
    doublings = int(10 / look_s).bit_length() + 1
    assert max(reads.values()) <= 3 * doublings


def test_what_was_published_is_seen_at_the_next_look_however_old_its_ids_are(scene):
    pipes = scene.pipe_list()
    on_time = scene.open(scene.make_id())
    assert seen(pipes) == {on_time}
    staged = scene.open(scene.make_id(late_s=3600.0), "a bulk writer")

    assert {entry.pipe for entry in pipes.refresh(publications=1).entries} == {staged, on_time}


def test_a_pipe_is_abandoned_after_a_time_of_this_process_though_its_entry_is_young(scene):
    # Given a database whose clock does not go on, as far as this process sees
    scene.open(scene.make_id())
    pipes = scene.pipe_list()
    (entry,) = pipes.refresh(0).entries
    gone_after_s = (SETTINGS.push_age_max + SETTINGS.push_grace).total_seconds()
    scene.clock.seconds += gone_after_s
    assert not pipes.is_abandoned(entry)
    scene.clock.seconds += 1.0
    # Then it counts since when it was first seen, however often it is seen again
    assert pipes.is_abandoned(entry)
    pipes.refresh(0)
    assert pipes.is_abandoned(entry)


def test_nothing_is_remembered_of_pipes_that_are_gone(scene):
    pipes = scene.pipe_list()
    for _ in range(9):
        pipe = scene.make_id()
        scene.open(pipe)
        pipes.refresh(0)
        scene.storage.delete_pipe("q", pipe)
        scene.clock.seconds += 1.0
    pipes.refresh(0)
    assert pipes.entries == ()
    assert not pipes._first_seen
    assert not pipes._newest


def test_what_was_published_is_looked_for_once(scene):
    scene.open(scene.make_id())
    pipes = scene.pipe_list()
    pipes.refresh(1)
    for _ in range(3):
        scene.clock.seconds += 1.0
        pipes.refresh(2)
    assert [since is None for since in scene.storage.since] == [True, True, False, False]


def frozen_before_its_entry(scene, pipes):
    """Freeze a pusher between an id and its entry, until what is looked at begins far behind that.

    Returns: the id, and a pipe of another pusher, which is the oldest that lives.
    """
    first = scene.open(scene.make_id())
    scene.clock.seconds += 1.0
    second = scene.make_id()
    seen(pipes)
    scene.clock.seconds += 10 * SKEW_S
    scene.retire(first)
    other = scene.open(scene.make_id(), "another pusher")
    seen(pipes)
    return second, other


class TestPipesThatAreTakenFromOneAfterTheOther:
    """A list is no snapshot: each entry is read at a time of its own."""

    ONE = QueueSettings(pop_width=1)

    def test_have_all_the_older_ones_of_their_source_in_the_list(self, scene):
        older, younger = (scene.open(new_pipe_id()) for _ in range(2))
        scene.storage.unseen = [{older}]
        assert seen(scene.pipe_list(self.ONE)) == {older, younger}

    def test_are_not_in_it_where_they_came_after_the_first_look(self, scene):
        older, younger, youngest = (scene.open(new_pipe_id()) for _ in range(3))
        scene.storage.unseen = [{younger, youngest}, {younger}]
        pipes = scene.pipe_list(self.ONE)
        assert seen(pipes) == {older}
        assert seen(pipes) == {older, younger, youngest}

    def test_are_in_it_whatever_the_clock_of_their_pusher_said_when_it_was_frozen(self, scene):
        # Given a pusher that was frozen between the id of its second pipe and the entry
        pipes = scene.pipe_list(self.ONE)
        second, other = frozen_before_its_entry(scene, pipes)
        # When it opens that, and a third one
        scene.open(second)
        third = scene.open(scene.make_id())
        # Then the third is seen with the second, which lies far before the floor
        assert seen(pipes) == {second, third, other}

    def test_are_in_it_where_they_were_missed_as_several_were_taken_from_side_by_side(self, scene):
        # Given a second pipe whose entry came late, and before the floor
        assert scene.storage.change_queue(None, QueueRecord("q", new_token(), SETTINGS, new_token()))
        context = context_of(scene.storage, SETTINGS, scene.clock)
        pipes = PipeList(context)
        second, _ = frozen_before_its_entry(scene, pipes)
        scene.open(second)
        third = scene.open(scene.make_id())
        assert seen(pipes) >= {third}
        assert second not in seen(pipes)
        # When the queue is altered
        context.record.change(lambda record: replace(record, settings=self.ONE))
        # Then who takes from one after the other knows of it
        assert seen(pipes) >= {second, third}

    def test_cost_one_more_look_for_each_that_is_new(self, scene):
        pipes = scene.pipe_list(self.ONE)
        scene.open(scene.make_id())
        seen(pipes)
        scene.storage.since.clear()
        seen(pipes)
        assert len(scene.storage.since) == 1
        scene.clock.seconds += 1.0
        scene.open(scene.make_id())
        seen(pipes)
        assert len(scene.storage.since) == 3
        assert None not in scene.storage.since

    def test_are_seen_by_one_look_where_several_are_taken_from_side_by_side(self, scene):
        younger, older = scene.open(new_pipe_id()), scene.open(new_pipe_id())
        scene.storage.unseen = [{older}]
        assert seen(scene.pipe_list()) == {younger}
        assert len(scene.storage.since) == 1

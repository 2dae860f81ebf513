"""What the figures of a queue mean: ages, rates, samples, and pipes that retire while they are counted."""

from dataclasses import astuple, replace
from datetime import timedelta

import pytest
from support.clocks import HandClock
from support.contexts import context_of

from cassq.model.ids import new_pipe_id, new_token
from cassq.model.message import Batch
from cassq.model.pipe import End, Head, Mark, PipeEntry
from cassq.model.queue_record import QueueRecord, Sample
from cassq.model.ranges import Ranges
from cassq.model.settings import QueueSettings
from cassq.model.tally import Tally
from cassq.model.transaction import Retire, Seal, Transaction
from cassq.observing.statistics import SAMPLE_EVERY, WINDOW, Statistics, rates_between
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.held_run import HeldRun
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.pipes.run_rows import Return
from cassq.storage.sqlite.storage import SqliteStorage

SETTINGS = QueueSettings(lease=timedelta(seconds=60), max_attempts=1)


class Scene:
    """The pipes of one queue, and who counts them."""

    def __init__(self):
        self.clock = HandClock()
        self.storage = SqliteStorage(None, is_synced=False, clock=self.clock)
        assert self.storage.change_queue(None, QueueRecord("q", new_token(), SETTINGS, new_token()))
        self.context = context_of(self.storage, SETTINGS, self.clock)
        self.statistics = Statistics(self.context)

    def read(self):
        (record,) = self.storage.read_queues("q")
        return record

    def change(self, **changes):
        record = self.read()
        assert self.storage.change_queue(record, replace(record, op=new_token(), **changes))

    def stats(self):
        return self.statistics.queue_stats(self.read)

    def phases(self):
        return [each.phase for each in self.statistics.pipe_stats(self.read, {})]

    def sample(self):
        return self.statistics.sample(self.read)

    def open(self, priority=0):
        entry = PipeEntry(new_pipe_id(), "a pusher", priority=priority)
        self.storage.create_pipe("q", entry, Head(new_token()))
        return entry.pipe

    def push(self, pipe, number=1):
        self.storage.append(pipe, Batch(number, (b"body",), None, 1))

    def seal(self, pipe, last):
        assert self.storage.transact(pipe, Transaction(Seal(last, is_free=True))).is_applied

    def take(self, pipe):
        """Hand out all that is there."""
        entry = PipeEntry(pipe, "a pusher")
        (taken,) = OwnedPipe(self.context, entry, self.storage.load_pipe(pipe), Taker("p")).take(9).runs
        return HeldRun(
            self.context, entry, taken, self.clock.latest() + 60.0, on_row_changed=lambda *_changed: None
        )

    def commit(self, pipe, last, first=1):
        self.storage.mark(pipe, [Mark(first, last, End.COMMITTED)])


@pytest.fixture
def scene():
    made = Scene()
    yield made
    made.storage.close()


class TestTheOldestAge:
    @pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["as they were opened", "the other way round"])
    def test_is_that_of_the_oldest_message_in_whichever_pipe(self, scene, order):
        pipes = [scene.open(), scene.open()]
        for place in order:
            scene.clock.seconds += 10
            scene.push(pipes[place])
        scene.clock.seconds += 5
        assert scene.stats().oldest_age == timedelta(seconds=15)

    def test_is_that_of_what_has_not_ended(self, scene):
        pipe = scene.open()
        for number in (1, 2):
            scene.push(pipe, number)
            scene.clock.seconds += 10
        scene.take(pipe)
        scene.commit(pipe, 1)
        assert scene.stats().oldest_age == timedelta(seconds=10)
        # Of a pipe in which all has ended there is none
        scene.commit(pipe, 2, 2)
        assert scene.stats().oldest_age is None


class TestWhatThereIsOfEachPriority:
    def test_is_told_the_most_urgent_first_with_an_age_of_its_own(self, scene):
        low, lower, high = scene.open(), scene.open(), scene.open(priority=7)
        for pipe, number in ((low, 1), (low, 2), (lower, 1), (high, 1)):
            scene.push(pipe, number)
            scene.clock.seconds += 1
        scene.take(low)
        scene.commit(low, 1)
        stats = scene.stats()
        assert [astuple(each) for each in stats.priorities] == [
            (7, 1, 0, 0, timedelta(seconds=1)),
            (0, 1, 1, 0, timedelta(seconds=3)),
        ]
        assert (stats.waiting, stats.pending, stats.oldest_age) == (2, 1, timedelta(seconds=3))

    def test_has_no_age_where_all_has_ended(self, scene):
        pipe = scene.open(priority=2)
        scene.push(pipe)
        scene.take(pipe)
        scene.commit(pipe, 1)
        assert scene.stats().to_json()["priorities"] == [
            {"priority": 2, "waiting": 0, "pending": 0, "delayed": 0, "oldest_age_s": None}
        ]


def at(seconds, pushed, popped=0, committed=0):
    return Sample(int(1000 * seconds), pushed, popped, committed)


class TestRates:
    window_s = WINDOW.total_seconds()

    def test_are_counted_since_the_window_began_from_how_things_stood_then(self):
        # Nothing moved between the second sample and the beginning of the window, or one was taken
        samples = [at(10, 0), at(35, 10, 5, 1), at(60, 40, 9, 9)]
        now = at(40 + self.window_s, 130, 65, 31)
        assert rates_between(samples, now) == (2.0, 1.0, 0.5)

    def test_are_counted_since_the_first_sample_while_all_are_young(self):
        assert rates_between([at(70, 10, 1), at(90, 20, 2)], at(100, 40, 4, 30)) == (1.0, 0.1, 1.0)

    @pytest.mark.parametrize("samples", [[], [at(100, 3)], [at(101, 3)]], ids=["none", "now", "later"])
    def test_are_none_where_no_time_has_passed(self, samples):
        assert rates_between(samples, at(100, 5)) == (0.0, 0.0, 0.0)

    def test_are_never_negative(self):
        assert rates_between([at(0, 5, 5, 5)], at(10, 4, 4, 4)) == (0.0, 0.0, 0.0)


class TestASample:
    every_s = SAMPLE_EVERY.total_seconds()

    def remember(self, scene):
        sample = scene.sample()
        scene.change(samples=(*scene.read().samples, sample))
        return sample

    def test_is_taken_once_the_last_one_is_old_enough_and_something_moved(self, scene):
        pipe = scene.open()
        scene.push(pipe)
        self.remember(scene)
        scene.push(pipe, 2)
        scene.clock.seconds += self.every_s - 1
        assert scene.sample() is None
        scene.clock.seconds += 1
        self.remember(scene)
        scene.push(pipe, 3)
        scene.clock.seconds += 1  # the first one is old by now, the last one is not
        assert scene.sample() is None

    def test_is_worth_taking_where_messages_only_ended(self, scene):
        pipe = scene.open()
        scene.push(pipe)
        self.remember(scene)
        scene.clock.seconds += self.every_s
        assert scene.sample() is None
        scene.take(pipe)
        assert (self.remember(scene).popped, scene.read().samples[-1].committed) == (1, 0)
        scene.clock.seconds += self.every_s
        scene.commit(pipe, 1)
        assert self.remember(scene).committed == 1

    def test_counts_what_is_gone_as_well(self, scene):
        scene.push(scene.open())
        scene.change(totals=Tally(pushed=5, popped=4, committed=3))
        sample = self.remember(scene)
        assert (sample.pushed, sample.popped, sample.committed) == (6, 4, 3)


def test_a_message_waits_until_it_is_handed_out_and_is_pending_until_it_ends(scene):
    def found():
        stats = scene.stats()
        return stats.waiting, stats.pending, stats.delayed

    pipe = scene.open()
    for number in (1, 2):
        scene.push(pipe, number)
    assert found() == (2, 0, 0)
    scene.take(pipe)
    scene.push(pipe, 3)
    assert found() == (1, 2, 0)
    scene.commit(pipe, 1)
    assert found() == (1, 1, 0)


class TestAPipe:
    def test_is_empty_once_all_of_it_has_ended(self, scene):
        pipe = scene.open()
        scene.push(pipe)
        assert scene.phases() == ["PA"]
        scene.seal(pipe, 1)
        scene.take(pipe)
        assert scene.phases() == ["PF"]
        scene.commit(pipe, 1)
        assert scene.phases() == ["E"]

    def test_is_not_empty_while_a_letter_is_still_to_be_written(self, scene):
        pipe = scene.open()
        scene.push(pipe)
        scene.seal(pipe, 1)
        assert scene.take(pipe).give_back(Ranges(((1, 1),)), Return())
        assert scene.stats().dead == 1
        assert scene.phases() == ["PF"]

    def test_that_the_totals_hold_is_counted_once_though_it_still_stands(self, scene):
        pipe = scene.open()
        scene.push(pipe)
        scene.seal(pipe, 1)
        scene.take(pipe)
        scene.commit(pipe, 1)
        scene.change(totals=Tally(pushed=1, popped=1, committed=1), counted=frozenset({pipe}))
        stats = scene.stats()
        assert (stats.pushed, stats.popped, stats.committed, stats.pipes) == (1, 1, 1, 0)
        # Also once the totals have forgotten its name
        op = scene.storage.load_pipe(pipe).head.op
        assert scene.storage.transact(pipe, Transaction(Retire(op, new_token()))).is_applied
        scene.change(counted=frozenset())
        stats = scene.stats()
        assert (stats.pushed, stats.popped, stats.committed, stats.pipes) == (1, 1, 1, 0)

    @pytest.mark.parametrize("is_remembered", [True, False], ids=["counted", "counted and forgotten"])
    def test_that_goes_while_it_is_counted_is_counted_once(self, scene, monkeypatch, is_remembered):
        pipe = scene.open()
        scene.push(pipe)
        scene.seal(pipe, 1)
        scene.take(pipe)
        scene.commit(pipe, 1)
        load_pipe = scene.storage.load_pipe

        def load(asked):
            found = load_pipe(asked)
            if scene.read().totals == Tally():
                scene.change(
                    totals=Tally(pushed=1, popped=1, committed=1),
                    counted=frozenset({pipe} if is_remembered else ()),
                )
                scene.storage.delete_pipe("q", pipe)
            return found

        monkeypatch.setattr(scene.storage, "load_pipe", load)
        stats = scene.stats()
        assert (stats.pushed, stats.committed, stats.waiting) == (1, 1, 0)


def test_figures_are_told_in_json(scene):
    told = scene.stats().to_json()
    assert (told["oldest_age_s"], told["pushed"]) == (None, 0)
    assert "oldest_age" not in told
    assert told["priorities"] == []
    pipe = scene.open()
    scene.push(pipe)
    scene.clock.seconds += 2.5
    assert scene.stats().to_json()["oldest_age_s"] == 2.5
    (told,) = [each.to_json() for each in scene.statistics.pipe_stats(scene.read, {pipe: "a popper"})]
    assert (told["pipe"], told["age_s"], told["owner"]) == (str(pipe), 2.5, "a popper")

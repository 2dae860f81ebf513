"""Which pipes a popper claims, how much it takes from each, and what it lets go for others."""

from datetime import timedelta

import pytest
from support.clocks import HandClock
from support.contexts import context_of

from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.errors import CoordinationUnavailableError, StorageUnavailableError
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.message import Batch
from cassq.model.pipe import Head, PipeEntry
from cassq.model.queue_record import QueueRecord
from cassq.model.ranges import Ranges
from cassq.model.settings import QueueSettings
from cassq.model.transaction import Seal, Transaction
from cassq.pipes.run_rows import Return
from cassq.popping.commits import commit_run
from cassq.popping.fetcher import Fetcher
from cassq.popping.reach import Reach
from cassq.popping.timing import BUSY_S, LOOK_S, PATIENCE_S
from cassq.storage.sqlite.storage import SqliteStorage


class Scene:
    """Pipes of one queue, and a popper's fetcher."""

    def __init__(self):
        self.clock = HandClock()
        self.storage = SqliteStorage(None, is_synced=False, clock=self.clock)
        self.coordinator = LocalCoordinator(None, self.clock)
        assert self.storage.change_queue(None, QueueRecord("q", new_token(), QueueSettings(), new_token()))
        self.over = []
        self.made = []

    def fetcher(self, holder="a popper", **settings):
        settings = QueueSettings(lease=timedelta(seconds=8), **settings)
        context = context_of(self.storage, settings, self.clock, coordinator=self.coordinator)
        made = Fetcher(context, holder, on_pipe_over=self.over.append)
        self.made.append(made)
        return made

    def open(self, *sizes, lane=0):
        entry = PipeEntry(new_pipe_id(), "a pusher", lane=lane)
        self.storage.create_pipe("q", entry, Head(new_token()))
        first = 1
        for size in sizes:
            self.storage.append(entry.pipe, Batch(first, (b"body",) * size, None, size))
            first += size
        return entry.pipe

    def seal(self, pipe, last):
        assert self.storage.transact(pipe, Transaction(Seal(last, is_free=True))).is_applied

    def hunger(self):
        """Have another popper be hungry; return what it hears."""
        woken = []
        self.coordinator.announce_hunger("q", "another", lambda: woken.append(True))
        return woken

    @property
    def claimed(self):
        return sorted(pipe for pipe, holder in self.coordinator.holders("q").items() if holder == "a popper")


@pytest.fixture
def scene():
    made = Scene()
    yield made
    for each in made.made:
        each.close()
    made.coordinator.close()
    made.storage.close()


def taken(fetched):
    """How many messages came of which pipe, in the order in which they came."""
    return [(held.pipe, part.count) for held, part in fetched]


def test_no_more_is_taken_than_wanted_and_the_oldest_pipe_comes_first(scene):
    pipes = [scene.open(3), scene.open(3), scene.open(3)]
    fetcher = scene.fetcher()
    assert taken(fetcher.feed(5)) == [(pipes[0], 3), (pipes[1], 2)]
    assert taken(fetcher.feed(9)) == [(pipes[1], 1), (pipes[2], 3)]
    assert fetcher.feed(9) == []


def test_so_many_pipes_are_claimed_at_a_time_and_one_without_messages_makes_room(scene):
    pipes = [scene.open(1, lane=lane) for lane in range(3)]
    fetcher = scene.fetcher(pop_width=2)
    assert taken(fetcher.feed(2)) == [(pipes[0], 1), (pipes[1], 1)]
    assert len(scene.claimed) == 2
    assert taken(fetcher.feed(2)) == [(pipes[2], 1)]
    assert len(scene.claimed) <= 2
    assert pipes[2] in scene.claimed


class TestAWidthOfOne:
    """The order in which one pusher pushed is kept."""

    def test_nothing_is_taken_from_a_pipe_while_an_older_one_may_have_more(self, scene):
        older, younger = scene.open(1), scene.open(1)
        fetcher = scene.fetcher(pop_width=1)
        assert taken(fetcher.feed(9)) == [(older, 1)]
        assert fetcher.feed(9) == []
        # Once that is known to have ended, the younger one follows
        scene.seal(older, 1)
        scene.clock.seconds += LOOK_S
        assert taken(fetcher.feed(9)) == [(younger, 1)]

    def test_another_pushers_pipes_are_not_held_back(self, scene):
        older, others = scene.open(), scene.open(1, lane=1)
        fetcher = scene.fetcher(pop_width=1)
        came = fetcher.feed(9) or fetcher.feed(9)
        assert taken(came) == [(others, 1)]
        assert scene.storage.load_pipe(older).head.cursor == 0

    def test_an_older_pipe_that_is_busy_for_a_moment_is_waited_for(self, scene):
        older, younger = scene.open(1), scene.open(1)
        assert scene.coordinator.claim("q", older, "another")
        fetcher = scene.fetcher(pop_width=1)
        assert fetcher.feed(9) == []
        scene.clock.seconds += PATIENCE_S - 0.1
        assert fetcher.feed(9) == []
        # Who holds it for longer is another popper: then there is no one order
        scene.clock.seconds += 0.2
        assert taken(fetcher.feed(9, Reach.BUSY)) == [(younger, 1)]


def test_a_pipe_that_was_held_is_taken_from_once_it_is_free(scene):
    pipe = scene.open(1)
    assert scene.coordinator.claim("q", pipe, "another")
    fetcher = scene.fetcher()
    assert fetcher.feed(9) == []
    scene.coordinator.release("q", pipe, "another")
    assert fetcher.feed(9) == []
    assert taken(fetcher.feed(9, Reach.BUSY)) == [(pipe, 1)]


def test_a_pipe_that_was_held_is_tried_again_after_a_moment(scene):
    pipe = scene.open(1)
    assert scene.coordinator.claim("q", pipe, "another")
    fetcher = scene.fetcher()
    assert fetcher.feed(9) == []
    scene.coordinator.release("q", pipe, "another")
    scene.clock.seconds += BUSY_S
    assert taken(fetcher.feed(9)) == [(pipe, 1)]


class TestSharing:
    def test_of_several_full_pipes_half_are_given_to_who_is_hungry(self, scene):
        # Given four in which messages wait
        pipes = [scene.open(9, lane=lane) for lane in range(4)]
        fetcher = scene.fetcher(pop_width=4)
        for entry in scene.storage.list_pipes("q").entries:
            claimed = fetcher._claimer.claim(entry)
            claimed.owned.read_ahead(9)
        woken = scene.hunger()
        fetcher.share()
        assert scene.claimed == sorted(pipes[:2])
        assert woken == [True]

    def test_the_only_full_pipe_is_given_too(self, scene):
        pipe = scene.open(9)
        fetcher = scene.fetcher()
        assert taken(fetcher.feed(1)) == [(pipe, 1)]
        woken = scene.hunger()
        fetcher.share()
        assert (scene.claimed, woken) == ([], [True])

    def test_what_is_empty_is_given_and_nobody_is_woken_for_it(self, scene):
        scene.open(1)
        fetcher = scene.fetcher()
        assert fetcher.feed(9)
        assert fetcher.feed(9) == []
        woken = scene.hunger()
        fetcher.share()
        assert (scene.claimed, woken) == ([], [])

    def test_what_was_pushed_since_is_worth_a_wake_up(self, scene):
        pipe = scene.open(1)
        fetcher = scene.fetcher()
        assert fetcher.feed(9)
        scene.storage.append(pipe, Batch(2, (b"body",), None, 1))
        woken = scene.hunger()
        fetcher.share()
        assert (scene.claimed, woken) == ([], [True])

    def test_where_nobody_is_hungry_everything_is_kept(self, scene):
        pipe = scene.open(9)
        fetcher = scene.fetcher()
        fetcher.feed(1)
        fetcher.share()
        assert scene.claimed == [pipe]


def test_what_came_back_wakes_who_is_hungry_unless_it_is_to_rest(scene):
    scene.open(2)
    ((held, _),) = scene.fetcher().feed(9)
    woken = scene.hunger()
    assert held.give_back(Ranges(((1, 1),)), Return(delay_ms=1000))
    assert woken == []
    assert held.give_back(Ranges(((2, 2),)), Return())
    assert woken == [True]


def test_a_claim_that_is_lost_is_taken_from_no_more(scene):
    pipe = scene.open(1, 1)
    fetcher = scene.fetcher()
    assert taken(fetcher.feed(1)) == [(pipe, 1)]
    scene.coordinator.release("q", pipe, "a popper")
    assert scene.coordinator.claim("q", pipe, "another")
    assert fetcher.feed(1) == []
    assert scene.storage.load_pipe(pipe).head.cursor == 1


def test_while_takes_are_not_allowed_every_claim_is_given_up(scene, monkeypatch):
    scene.open(9)
    fetcher = scene.fetcher()
    fetcher.feed(1)
    monkeypatch.setattr(scene.coordinator, "may_take", lambda: False)
    with pytest.raises(CoordinationUnavailableError):
        fetcher.feed(1)
    assert scene.claimed == []


def test_a_take_that_fails_gives_the_pipe_up_and_keeps_what_others_gave(scene, monkeypatch):
    good, bad = scene.open(1), scene.open(1)
    fetcher = scene.fetcher()
    read = scene.storage.read_batches

    def read_batches(pipe, query):
        if pipe == bad:
            raise StorageUnavailableError("planted")
        return read(pipe, query)

    monkeypatch.setattr(scene.storage, "read_batches", read_batches)
    assert taken(fetcher.feed(9)) == [(good, 1)]
    assert bad not in scene.claimed
    with pytest.raises(StorageUnavailableError):
        fetcher.feed(9, Reach.DRAINED)
    assert bad not in scene.claimed


def test_a_pipe_that_is_over_is_pointed_at_and_given_up(scene):
    pipe = scene.open(1)
    scene.seal(pipe, 1)
    fetcher = scene.fetcher()
    ((held, _),) = fetcher.feed(9)
    commit_run(held, Ranges(((1, 1),)))
    scene.clock.seconds += 1.0
    fetcher.feed(9, Reach.DRAINED)
    assert pipe in scene.over
    assert scene.claimed == []


def test_it_stops_at_what_was_there(scene):
    pipe, later = scene.open(2, 2), scene.open(1)
    fetcher = scene.fetcher()
    fetcher.stop_at({pipe: 3})
    assert taken(fetcher.feed(9)) == [(pipe, 3)]
    assert fetcher.feed(9, Reach.DRAINED) == []
    assert scene.storage.load_pipe(later).head.cursor == 0


def test_a_fetcher_that_is_to_finish_begins_no_take(scene):
    pipe = scene.open(3)
    fetcher = scene.fetcher()
    assert taken(fetcher.feed(1)) == [(pipe, 1)]
    fetcher.finish()
    assert fetcher.feed(9) == []
    assert scene.storage.load_pipe(pipe).head.cursor == 1


def test_what_comes_back_while_a_pipe_is_read_is_found_by_the_next_look(scene, monkeypatch):
    # Given a sealed pipe of one message, in somebody's hands
    pipe = scene.open(1)
    fetcher = scene.fetcher()
    ((held, _),) = fetcher.feed(9)
    scene.seal(pipe, 1)
    fetcher.let_go()
    # When it comes back after the database has read the pipe, and before the answer is there
    load = scene.storage.load_pipe

    def answer_late(pipe, **options):
        monkeypatch.undo()
        state = load(pipe, **options)
        scene.clock.seconds += 0.01
        assert held.give_back(Ranges(((1, 1),)), Return())
        scene.clock.seconds += 0.01
        return state

    monkeypatch.setattr(scene.storage, "load_pipe", answer_late)
    scene.clock.seconds += LOOK_S
    assert fetcher.feed(9) == []
    # Then it is not believed to be in somebody's hands still
    assert taken(fetcher.feed(9)) == [(pipe, 1)]

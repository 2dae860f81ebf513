"""What becomes of a pile, whoever dies while it is made ready."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.clocks import HandClock
from support.contexts import context_of
from support.interrupted import Interrupted, lose
from support.lists import counts, listed

from cassq.bulk.staged_list import StagedList
from cassq.bulk.staged_pipes import StagedPipes
from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.errors import DecodeError, OutcomeUnknownError
from cassq.limits import NO_LIMIT
from cassq.model.ids import MessageId, new_pipe_id, new_token
from cassq.model.label import Label
from cassq.model.message import Batch
from cassq.model.pipe import End, Head, Mark, Phase, PipeEntry
from cassq.model.queue_record import QueueRecord
from cassq.model.schedule import NEAR_S, SOON, least_lead_s, open_max_s
from cassq.model.settings import QueueSettings
from cassq.model.shelf import Shelf
from cassq.model.transaction import Advance, Seal, Transaction
from cassq.model.uses import with_uses
from cassq.observing.inspection import Inspection, MessageState
from cassq.observing.purging import Purging
from cassq.observing.statistics import Statistics
from cassq.pipes.batch_reader import read_all
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.reaping.keeper import LOOK_AFTER_S, STAGED_S, Keeper
from cassq.reaping.reap_report import ReapReport
from cassq.reaping.reaper import Reaper
from cassq.storage.sqlite.storage import SqliteStorage
from cassq.storage.witnessed import witnessed

SETTINGS = QueueSettings()
PILE = SOON + 1


class Scene:
    """Piles of one queue, and keepers."""

    def __init__(self):
        self.clock = HandClock()
        self.rows = SqliteStorage(None, is_synced=False, clock=self.clock)
        self.storage = Interrupted(self.rows)
        record = QueueRecord("q", new_token(), SETTINGS, new_token())
        record = with_uses(record, Label(due_class=SOON))
        assert self.rows.change_queue(None, record)
        coordinator = LocalCoordinator(None, self.clock)
        self.context = context_of(self.storage, record.settings, self.clock, coordinator=coordinator)
        self.keeper = self.make_keeper()
        self.reaper = Reaper(self.context, "a reaper", lambda _: None)

    def make_keeper(self):
        return Keeper(self.context, f"keeper {new_token()}")

    @property
    def now_ms(self):
        return self.rows.list_pipes("q").now_ms

    def pile(self, *leads_s, due_class=PILE, is_sealed=True, pusher="a pusher"):
        """Make a pile, of a message for each lead."""
        dues = tuple(self.now_ms + round(1000 * lead_s) for lead_s in leads_s)
        pipe = new_pipe_id(min(dues) - 1000)
        entry = PipeEntry(pipe, pusher, priority=2, due_class=due_class, shelf=Shelf.SCHEDULED)
        self.rows.create_pipe("q", entry, Head(new_token()))
        bodies = tuple(b"%g" % lead_s for lead_s in leads_s)
        self.rows.append(pipe, Batch(1, bodies, None, len(dues), dues=dues))
        if is_sealed:
            assert self.rows.transact(pipe, Transaction(Seal(len(dues)))).is_applied
        return entry

    def keep(self, keeper=None):
        report = ReapReport()
        (keeper or self.keeper).run_once(report)
        return report

    def listed(self, shelf):
        return listed(self.rows, shelf)

    @property
    def lists(self):
        return counts(self.rows)

    def target(self, pile):
        """Return the pipe that a pile was moved to."""
        (target,) = {mark.target for mark in self.rows.load_pipe(pile.pipe).marks if mark.end is End.MOVED}
        return target

    def bodies(self, pipe):
        return [body for batch in read_all(self.rows, pipe, NO_LIMIT) for body in batch.bodies]

    def consume(self):
        """Take and commit all that poppers see; return the bodies, and the ids they had first."""
        found = []
        for entry in self.rows.list_pipes("q", shelf=Shelf.DUE).entries:
            owned = OwnedPipe(self.context, entry, self.rows.load_pipe(entry.pipe), Taker("a popper"))
            owned.horizon.ahead_ms = 10**9
            result = owned.take(1000)
            for taken in result.runs if result else ():
                for part in taken.parts:
                    ids = [
                        part.origin(entry.pipe, seq).message_id for seq in range(part.first, part.last + 1)
                    ]
                    found += zip(part.bodies, ids, strict=True)
                    self.rows.mark(entry.pipe, [Mark(part.first, part.last, End.COMMITTED)])
        return found


@pytest.fixture
def scene():
    return Scene()


def test_one_constant_delay_is_listed_as_it_is(scene):
    pile = scene.pile(20, 20, 21)
    assert scene.keep().moved == 0
    assert scene.listed(Shelf.DUE) == [pile.pipe]
    assert scene.lists == {Shelf.DUE: 1}


def test_other_delays_are_sorted_and_keep_their_ids(scene):
    pile = scene.pile(50, 20, 40, 20)
    assert scene.keep().moved == 4
    target = scene.target(pile)
    assert scene.listed(Shelf.DUE) == [target]
    assert scene.listed(Shelf.MOVED) == [pile.pipe]
    assert scene.bodies(target) == [b"20", b"20", b"40", b"50"]
    (entry,) = scene.rows.list_pipes("q", shelf=Shelf.DUE).entries
    assert (entry.priority, entry.due_class, entry.moved_from) == (2, PILE, pile.pipe)
    assert [(body, message_id.seq) for body, message_id in scene.consume()] == [
        (b"20", 2), (b"20", 4), (b"40", 3), (b"50", 1)
    ]  # fmt: skip


def test_what_was_written_in_bulk_is_sorted_and_keeps_its_ids(scene):
    context = replace(scene.context, storage=witnessed(scene.rows, scene.clock, 1.0))
    staged = StagedPipes(context, "loader/1/a task")
    for lead_s in (50, 20, 40):
        staged.add(b"%d" % lead_s, delay=timedelta(seconds=lead_s))
    (pile,) = staged.close()
    scene.clock.seconds += 3600  # which the write took
    StagedList(context).publish({pile})
    assert scene.keep().moved == 3
    assert scene.lists == {Shelf.MOVED: 1, Shelf.DUE: 1}
    assert scene.consume() == [(b"20", (pile, 2)), (b"40", (pile, 3)), (b"50", (pile, 1))]


def test_what_is_not_near_is_left_alone(scene):
    pile = scene.pile(10 * NEAR_S, 5 * NEAR_S, due_class=4)
    scene.keep()
    assert scene.lists == {Shelf.SCHEDULED: 1}
    scene.clock.seconds += 4 * NEAR_S
    assert scene.keep().moved == 2
    # The first of it is due in a minute; what it is moved to waits where nobody takes it until then.
    assert scene.bodies(scene.target(pile)) == [b"%g" % (5 * NEAR_S), b"%g" % (10 * NEAR_S)]


def test_what_was_sorted_long_before_is_listed_when_it_is_near(scene):
    pile = scene.pile(9 * NEAR_S, 8 * NEAR_S)
    far = replace(pile, pipe=new_pipe_id(scene.now_ms))
    # Given a pile that is looked at much earlier than its messages are due
    scene.rows.create_pipe("q", far, Head(new_token()))
    dues = tuple(scene.now_ms + 1000 * lead for lead in (9 * NEAR_S, 8 * NEAR_S))
    scene.rows.append(far.pipe, Batch(1, (b"late", b"early"), None, 2, dues=dues))
    assert scene.rows.transact(far.pipe, Transaction(Seal(2))).is_applied
    scene.keep()
    target = scene.target(far)
    assert target in scene.listed(Shelf.SCHEDULED)
    scene.clock.seconds += 7.5 * NEAR_S
    scene.keep()
    assert target in scene.listed(Shelf.DUE)
    assert scene.bodies(target) == [b"early", b"late"]


def test_an_open_pile_is_its_pushers_until_that_must_be_dead(scene):
    pile = scene.pile(20, 16, is_sealed=False)
    scene.keep()
    assert scene.lists == {Shelf.SCHEDULED: 1}
    scene.clock.seconds += open_max_s(PILE, SETTINGS) + SETTINGS.push_grace.total_seconds() + 2
    report = scene.keep()
    assert (report.sealed, report.moved) == (1, 2)
    assert scene.rows.load_pipe(pile.pipe).head.last == 2
    assert [body for body, _ in scene.consume()] == [b"16", b"20"]


def test_what_was_cancelled_is_not_moved(scene):
    pile = scene.pile(50, 20, 40)
    assert Purging(scene.context).cancel(MessageId(pile.pipe, 3), is_running_meant=False)
    assert scene.keep().moved == 2
    assert scene.bodies(scene.target(pile)) == [b"20", b"50"]


def test_what_is_empty_is_left_to_the_reaper(scene):
    scene.pile(50, 20)
    assert Purging(scene.context).purge() == 2
    assert scene.keep().moved == 0
    assert scene.lists == {Shelf.MOVED: 1}
    scene.reaper.run_once()
    assert scene.lists == {}


def test_a_cancellation_beside_the_move_is_not_lost(scene):
    pile = scene.pile(50, 20, 40)

    def cancel(pipe, transaction):
        assert isinstance(transaction.head, Seal)  # of what is staged: the pile was read before
        assert Purging(replace(scene.context, storage=scene.rows)).cancel(
            MessageId(pile.pipe, 2), is_running_meant=False
        )

    scene.storage.before["transact"] = cancel
    assert scene.keep().moved == 0
    assert scene.lists == {Shelf.SCHEDULED: 1}
    assert scene.keep().moved == 2
    assert [body for body, _ in scene.consume()] == [b"40", b"50"]


def decision(storage, do):
    """Do something at the transaction that decides."""

    def on_transact(pipe, transaction):
        if isinstance(transaction.head, Advance) and transaction.marks:
            do()
        else:
            storage[1]["transact"] = on_transact

    storage[1]["transact"] = on_transact


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_decision_whose_answer_is_lost_moves_each_message_once(scene, is_applied):
    pile = scene.pile(50, 20, 40)
    calls = scene.storage.after if is_applied else scene.storage.before
    decision((scene.storage, calls), lose)
    assert scene.keep().failed
    assert (pile.pipe in scene.listed(Shelf.SCHEDULED), scene.listed(Shelf.DUE)) == (True, [])
    scene.keep(scene.make_keeper())
    assert scene.listed(Shelf.MOVED) == [pile.pipe]
    assert [body for body, _ in scene.consume()] == [b"20", b"40", b"50"]
    # What was staged in vain goes, and nothing else.
    scene.clock.seconds += STAGED_S + LOOK_AFTER_S + 1
    scene.keep(scene.make_keeper())
    assert scene.listed(Shelf.SORTED) == []
    assert scene.consume() == []


def test_whoever_dies_before_it_published_what_it_moved_is_followed_by_another(scene):
    pile = scene.pile(50, 20)
    scene.storage.before["publish_pipes"] = lose
    assert scene.keep().failed
    assert scene.lists == {Shelf.SCHEDULED: 1, Shelf.SORTED: 1}
    # Nobody may take the pile for one that is over, and forget where its messages are.
    scene.keep(scene.make_keeper())
    assert scene.listed(Shelf.DUE) == [scene.target(pile)]
    assert scene.lists == {Shelf.DUE: 1, Shelf.MOVED: 1}


def test_what_was_moved_is_of_no_schedule_whatever_the_name_of_who_pushed_it(scene):
    # Given what a writer that is called "schedule" wrote in bulk, moved by somebody who dies, and no reaper
    pile = scene.pile(50, 20, pusher="schedule/7/a task")
    scene.storage.before["publish_pipes"] = lose
    assert scene.keep().failed
    # When it is looked after, and before that nobody looks at the pile
    scene.clock.seconds += STAGED_S + 1
    keeper = scene.make_keeper()
    keeper._near()
    keeper._look_after_all(ReapReport())
    # Then it is listed, as its pile names it
    assert scene.listed(Shelf.DUE) == [scene.target(pile)]
    assert len(scene.consume()) == 2


def test_whoever_dies_between_two_lists_leaves_it_in_both(scene):
    pile = scene.pile(50, 20)
    calls = []

    def die_second(*_, **__):
        calls.append(1)
        scene.storage.before["publish_pipes"] = lose

    scene.storage.before["publish_pipes"] = die_second
    assert scene.keep().failed
    assert scene.lists == {Shelf.SCHEDULED: 1, Shelf.DUE: 1}
    scene.keep(scene.make_keeper())
    assert scene.lists == {Shelf.DUE: 1, Shelf.MOVED: 1}
    assert len(scene.consume()) == 2
    assert scene.listed(Shelf.MOVED) == [pile.pipe]


def test_whoever_stops_until_what_it_stages_is_deleted_moves_nothing(scene):
    # Given a keeper that stops after it has filled a pipe, for so long that others take it for dead
    pile = scene.pile(30, 20)

    def look_after(*_, **__):
        scene.clock.seconds += STAGED_S + 1
        (staged,) = scene.listed(Shelf.SORTED)
        others = scene.make_keeper()
        others._look_after_all(ReapReport())
        assert scene.listed(Shelf.SORTED) == [], staged

    scene.storage.after["append"] = look_after

    # When it goes on
    report = scene.keep()

    # Then its work was for nothing, and the next pass does it
    assert (report.moved, report.failed) == (0, [])
    assert scene.keep().moved == 2
    assert scene.target(pile) in scene.listed(Shelf.DUE)


def test_a_pile_stays_until_what_it_was_moved_to_is_gone(scene):
    pile = scene.pile(50, 20)
    scene.keep()
    scene.clock.seconds += LOOK_AFTER_S
    scene.keep()
    assert scene.listed(Shelf.MOVED) == [pile.pipe]
    scene.consume()
    scene.reaper.run_once()
    scene.clock.seconds += LOOK_AFTER_S
    scene.keep()
    assert scene.lists == {Shelf.MOVED: 1}
    scene.reaper.run_once()
    assert scene.lists == {}
    totals = scene.rows.read_queues("q")[0].totals
    assert (totals.pushed, totals.committed, totals.popped) == (2, 2, 2)


def test_a_staged_entry_that_comes_back_takes_nothing_along(scene):
    pile = scene.pile(50, 20)
    scene.keep()
    (entry,) = scene.rows.list_pipes("q", shelf=Shelf.DUE).entries
    with scene.rows._file.writing() as db:
        db.execute(
            "INSERT INTO pipes SELECT queue, -2, pipe, pusher, priority, lane, created_at_ms, type,"
            " due_class, moved_from, slot FROM pipes WHERE shard = 1"
        )
    assert scene.listed(Shelf.SORTED) == [entry.pipe]
    scene.clock.seconds += STAGED_S + LOOK_AFTER_S + 1
    scene.keep()
    assert scene.listed(Shelf.SORTED) == []
    assert len(scene.consume()) == 2
    assert scene.listed(Shelf.MOVED) == [pile.pipe]


def test_an_id_is_known_while_its_message_is_wherever_it_is(scene):
    pile = scene.pile(50, 20, 40)
    inspection, purging = Inspection(scene.context), Purging(scene.context)
    first = MessageId(pile.pipe, 1)
    assert inspection.status(first).state is MessageState.DELAYED
    due = inspection.status(first).due
    scene.keep()
    assert inspection.status(first).state is MessageState.DELAYED
    assert inspection.status(first).due == due
    assert purging.cancel(first, is_running_meant=False)
    assert purging.cancel(first, is_running_meant=False)
    assert inspection.status(first).state is MessageState.PURGED
    assert [body for body, _ in scene.consume()] == [b"20", b"40"]
    assert not purging.cancel(MessageId(pile.pipe, 2), is_running_meant=False)
    assert inspection.status(MessageId(pile.pipe, 2)).state is MessageState.COMMITTED


def test_of_a_pile_with_a_gap_nothing_is_moved_nor_ended(scene):
    # Given a pile of which a batch is gone
    now_ms = scene.now_ms
    entry = PipeEntry(new_pipe_id(now_ms + 15_000), "a pusher", due_class=PILE, shelf=Shelf.SCHEDULED)
    scene.rows.create_pipe("q", entry, Head(new_token()))
    for first, lead_ms in ((1, 20_000), (3, 16_000)):
        scene.rows.append(entry.pipe, Batch(first, (b"x",), None, 1, dues=(now_ms + lead_ms,)))
    assert scene.rows.transact(entry.pipe, Transaction(Seal(3))).is_applied
    # When it is near
    assert scene.keep().moved == 0
    # Then whoever takes from it hears of that, and no row says that something ended
    assert scene.lists == {Shelf.DUE: 1}
    assert scene.rows.load_pipe(entry.pipe).marks == ()
    scene.clock.seconds += 30
    assert [body for body, _ in scene.consume()] == [b"x"]
    with pytest.raises(DecodeError, match="gone"):
        scene.consume()


def test_what_comes_late_to_its_list_is_told(scene):
    scene.pile(20, 20)
    publications = scene.context.record.publications
    scene.keep()
    assert scene.context.record.publications == publications
    scene.pile(20, 20)
    scene.clock.seconds += 3600  # in which nobody kept
    scene.keep()
    assert scene.context.record.publications == publications + 1
    assert len(scene.listed(Shelf.DUE)) == 2


def test_a_purge_ends_each_message_once_whatever_is_moved_meanwhile(scene):
    for is_decided in (False, True):
        pile = scene.pile(50, 20, 30, 40)
        if is_decided:
            scene.storage.before["publish_pipes"] = lose
            assert scene.keep().failed
            assert scene.target(pile)
        else:
            decision((scene.storage, scene.storage.before), lose)
            assert scene.keep().failed
        assert scene.listed(Shelf.SORTED)
        assert Purging(scene.context).purge() == 4
        scene.keep(scene.make_keeper())
        assert scene.consume() == []


def test_figures_count_what_is_moved_and_not_listed_yet(scene):
    scene.pile(50, 20, 30)
    scene.storage.before["publish_pipes"] = lose
    assert scene.keep().failed
    stats = Statistics(scene.context).queue_stats(scene.context.record.read)
    assert (stats.delayed, stats.waiting, stats.pushed, stats.committed) == (3, 0, 3, 0)


def test_a_first_look_that_fails_is_made_up_for(scene):
    scene.pile(50, 20)
    scene.storage.before["list_pipes"] = lose
    with pytest.raises(OutcomeUnknownError):
        scene.keep()
    assert scene.keep().moved == 2


def test_a_keeper_leaves_a_pile_to_another_that_has_it(scene):
    pile = scene.pile(50, 20)
    assert scene.context.coordinator.claim("q", pile.pipe, "another")
    assert scene.keep().busy == 1
    assert scene.lists == {Shelf.SCHEDULED: 1}
    assert scene.rows.load_pipe(pile.pipe).head.phase is Phase.SEALED


def test_a_queue_without_due_times_is_not_looked_at():
    scene = Scene()
    scene.context.record.change(lambda record: replace(record, settings=QueueSettings()))
    for name in ("list_pipes", "load_pipe"):
        scene.storage.before[name] = lose
    assert not scene.keeper.run_once(ReapReport())
    assert least_lead_s(PILE) > 0

"""One message is moved by hand: it is in one pipe and is told to be there, whatever fails or dies."""

from dataclasses import replace

import pytest
from support.clocks import HandClock
from support.contexts import context_of
from support.interrupted import Interrupted, Killed, die, lose, refuse
from support.lists import counts, listed

from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.errors import DecodeError, OutcomeUnknownError, StorageUnavailableError
from cassq.limits import NO_LIMIT
from cassq.model.ids import MessageId, new_pipe_id, new_token
from cassq.model.label import Label
from cassq.model.message import Batch
from cassq.model.pipe import End, Head, Mark, PipeEntry, RunState
from cassq.model.queue_record import QueueRecord
from cassq.model.schedule import SOON
from cassq.model.settings import QueueSettings
from cassq.model.shelf import Shelf
from cassq.model.transaction import Advance, Seal, Transaction
from cassq.model.uses import with_uses
from cassq.observing.inspection import Inspection, MessageState
from cassq.observing.purging import Purging
from cassq.observing.statistics import Statistics
from cassq.pipes import by_hand, upkeep
from cassq.pipes.batch_reader import read_all
from cassq.pipes.fenced_pipe import FencedPipe, Taker
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.reaping.duty import PASS_MAX_S
from cassq.reaping.keeper import LOOK_AFTER_S, STAGED_S, Keeper
from cassq.reaping.reap_report import ReapReport
from cassq.reaping.reaper import Reaper
from cassq.reaping.rescheduling import Place, Rescheduling
from cassq.reaping.sources import LET_GO_S
from cassq.storage.sqlite.storage import SqliteStorage
from cassq.storage.witnessed import witnessed

SETTINGS = QueueSettings(max_attempts=3)
AT_ONCE = Place(due_ms=0)
URGENT = Place(priority=9)


def corrupt(*_, **__):
    raise DecodeError("planted")


class Scene:
    """Pipes of one queue, somebody who moves messages, a reaper and keepers."""

    def __init__(self):
        self.clock = HandClock()
        self.rows = SqliteStorage(None, is_synced=False, clock=self.clock)
        self.storage = Interrupted(self.rows)
        record = with_uses(QueueRecord("q", new_token(), SETTINGS, new_token()), Label(due_class=SOON))
        assert self.rows.change_queue(None, record)
        coordinator = LocalCoordinator(None, self.clock)
        heard = witnessed(self.storage, self.clock, 0.0)
        self.context = context_of(heard, record.settings, self.clock, coordinator=coordinator)
        self.beside = replace(self.context, storage=self.rows)
        self.rescheduling = Rescheduling(self.context)
        self.reaper = Reaper(self.beside, "a reaper", lambda _: None)

    @property
    def now_ms(self):
        return self.rows.list_pipes("q").now_ms

    def in_s(self, seconds):
        return Place(due_ms=self.now_ms + round(1000 * seconds))

    def pipe(self, *leads_s, due_class=0, is_sealed=True):
        """Make a pipe, of a message for each lead; leads are of a class of due times."""
        shelf = (Shelf.READY, Shelf.DUE, Shelf.SCHEDULED)[min(due_class, 2)]
        dues = tuple(self.now_ms + round(1000 * lead) for lead in leads_s) if due_class else None
        pipe = new_pipe_id(min(dues or [self.now_ms]))
        entry = PipeEntry(pipe, "a pusher", due_class=due_class, shelf=shelf)
        self.rows.create_pipe("q", entry, Head(new_token()))
        bodies = tuple(b"%g" % lead for lead in leads_s)
        self.rows.append(pipe, Batch(1, bodies, None, len(bodies), dues=dues))
        if is_sealed:
            assert self.rows.transact(pipe, Transaction(Seal(len(bodies)))).is_applied
        return entry

    def move(self, entry, seq, place=AT_ONCE):
        return self.rescheduling.move(MessageId(entry.pipe, seq), place)

    def moved_from(self, entry):
        """Return the pipe that messages of a pipe were moved to."""
        (target,) = {mark.target for mark in self.rows.load_pipe(entry.pipe).marks if mark.end is End.MOVED}
        return target

    def listed(self, shelf):
        return listed(self.rows, shelf)

    @property
    def lists(self):
        return counts(self.rows)

    def own(self, entry):
        owned = OwnedPipe(self.beside, entry, self.rows.load_pipe(entry.pipe), Taker("a popper"))
        owned.horizon.ahead_ms = 10**9
        return owned

    def take(self, entry, wanted=100):
        result = self.own(entry).take(wanted)
        return [message[1] for run in (result.runs if result else ()) for message in run.messages]

    def consume(self):
        """Take and commit all that poppers see; return bodies, first ids and attempts."""
        found = []
        for shelf in (Shelf.READY, Shelf.DUE):
            for entry in self.rows.list_pipes("q", shelf=shelf).entries:
                result = self.own(entry).take(1000)
                for taken in result.runs if result else ():
                    for part in taken.parts:
                        numbers = range(part.first, part.last + 1)
                        ids = [part.origin(entry.pipe, seq).message_id for seq in numbers]
                        found += zip(part.bodies, ids, [taken.run.attempt] * len(ids), strict=True)
                        self.rows.mark(entry.pipe, [Mark(part.first, part.last, End.COMMITTED)])
        return found

    def return_run(self, entry, seconds=60):
        """Let the leases of a pipe run out, and its messages come back."""
        self.clock.seconds += seconds
        fenced = FencedPipe(self.beside, entry, self.rows.load_pipe(entry.pipe), Taker("a reaper"))
        upkeep.return_expired(fenced)

    def keep(self):
        report = ReapReport()
        Keeper(self.beside, f"keeper {new_token()}").run_once(report)
        return report

    @property
    def publications(self):
        return self.rows.read_queues("q")[0].publications

    def totals(self):
        return self.rows.read_queues("q")[0].totals

    def stats(self):
        return Statistics(self.beside).queue_stats(self.beside.record.read)

    def status(self, entry, seq):
        return Inspection(self.beside).status(MessageId(entry.pipe, seq))

    def at_decision(self, do, *, is_after=False):
        """Do something as the transaction is sent that decides, or once it was applied."""
        calls = self.storage.after if is_after else self.storage.before

        def on_transact(pipe, transaction):
            if isinstance(transaction.head, Advance) and transaction.marks:
                do()
            else:
                calls["transact"] = on_transact

        calls["transact"] = on_transact


@pytest.fixture
def scene():
    return Scene()


class TestADecision:
    def test_that_is_refused_is_taken_again_from_what_stands_by_then(self, scene):
        entry = scene.pipe(0, 1, 2, 3)
        scene.at_decision(lambda: scene.take(entry, 2))

        assert scene.move(entry, 3)

        assert scene.listed(Shelf.SORTED) == []  # what was staged in vain is deleted
        assert scene.listed(Shelf.DUE) == [scene.moved_from(entry)]
        assert scene.take(entry) == [b"3"]
        assert [(body, seq) for body, (_, seq), _ in scene.consume()] == [(b"2", 3)]

    def test_that_comes_too_late_moves_nothing(self, scene):
        entry = scene.pipe(0, 1)
        scene.at_decision(lambda: scene.take(entry))

        assert not scene.move(entry, 2)

        assert scene.lists == {Shelf.READY: 1}
        assert scene.rows.load_pipe(entry.pipe).marks == ()

    def test_is_refused_whatever_came_while_a_pipe_was_staged(self, scene):
        entry = scene.pipe(0, 1)
        scene.storage.after["append"] = lambda *_: scene.take(entry)

        assert not scene.move(entry, 2)

        assert scene.lists == {Shelf.READY: 1}
        assert scene.rows.load_pipe(entry.pipe).marks == ()

    def test_and_a_cancellation_end_a_message_once(self, scene):
        entry = scene.pipe(0, 1)
        message_id = MessageId(entry.pipe, 2)
        scene.at_decision(lambda: Purging(scene.beside).cancel(message_id, is_running_meant=False))
        assert not scene.move(entry, 2)
        assert [body for body, *_ in scene.consume()] == [b"0"]

    @pytest.mark.parametrize("is_applied", [True, False])
    def test_whose_answer_is_lost_is_found_out(self, scene, is_applied):
        entry = scene.pipe(0, 1, 2)
        scene.at_decision(lose, is_after=is_applied)

        assert scene.move(entry, 2)

        assert scene.listed(Shelf.DUE) == [scene.moved_from(entry)]
        assert sorted(body for body, *_ in scene.consume()) == [b"0", b"1", b"2"]
        # What was staged in vain goes, and nothing else.
        assert len(scene.listed(Shelf.SORTED)) == (0 if is_applied else 1)
        scene.clock.seconds += STAGED_S + LOOK_AFTER_S + 1
        scene.keep()
        assert scene.listed(Shelf.SORTED) == []
        assert scene.consume() == []

    def test_that_lands_late_is_refused_behind_the_next_one(self, scene):
        entry = scene.pipe(0, 1, 2)
        late = []
        transact = scene.rows.transact

        def hold_back(pipe, transaction):
            if isinstance(transaction.head, Advance) and transaction.marks and not late:
                late.append((pipe, transaction))
                raise OutcomeUnknownError("lost")
            return transact(pipe, transaction)

        scene.rows.transact = hold_back
        assert scene.move(entry, 2)
        assert not transact(*late[0]).is_applied
        assert sorted(body for body, *_ in scene.consume()) == [b"0", b"1", b"2"]

    def test_that_lands_late_is_refused_once_what_was_staged_is_deleted(self, scene):
        entry = scene.pipe(0, 1, 2)
        late = []
        transact = scene.rows.transact

        def hold_back(pipe, transaction):
            if isinstance(transaction.head, Advance) and transaction.marks:
                late.append((pipe, transaction))
                raise Killed
            return transact(pipe, transaction)

        scene.rows.transact = hold_back
        with pytest.raises(Killed):
            scene.move(entry, 2)
        scene.rows.transact = transact

        scene.clock.seconds += STAGED_S + LOOK_AFTER_S + 1
        scene.keep()
        assert scene.listed(Shelf.SORTED) == []
        assert not transact(*late[0]).is_applied
        assert [body for body, *_ in scene.consume()] == [b"0", b"1", b"2"]

    @pytest.mark.parametrize("call", ["load_pipe", "transact", "create_pipe"])
    def test_whose_answer_is_lost_stays_unknown_where_nobody_answers_any_more(self, scene, monkeypatch, call):
        entry = scene.pipe(0, 1)

        def lose_and_go():
            monkeypatch.setattr(scene.rows, call, refuse)
            lose()

        scene.at_decision(lose_and_go)
        with pytest.raises(OutcomeUnknownError, match="lost"):
            scene.move(entry, 2)

    def test_that_may_still_land_is_not_told_to_be_none(self, scene):
        # Given a message that came back, and a decision to move it that is on its way
        entry = scene.pipe(0)
        assert scene.take(entry) == [b"0"]
        scene.return_run(entry)

        def commit_late():
            # which the holder of before, who needs no op for that, comes before
            scene.rows.mark(entry.pipe, [Mark(1, 1, End.COMMITTED)])
            lose()

        scene.at_decision(commit_late)
        # Then nobody knows whether it will be moved
        with pytest.raises(OutcomeUnknownError, match="lost"):
            scene.move(entry, 1)

    def test_of_which_somebody_else_is_always_first_is_given_up_in_the_end(self, scene):
        entry = scene.pipe(*range(2 * by_hand.ATTEMPTS_MAX))

        def take_and_again():
            scene.take(entry, 1)
            scene.at_decision(take_and_again)

        scene.at_decision(take_and_again)
        with pytest.raises(OutcomeUnknownError, match=r"pause the queue"):
            scene.move(entry, 2 * by_hand.ATTEMPTS_MAX)
        assert scene.listed(Shelf.SORTED) == []

    def test_is_not_sent_where_nothing_can_be_staged(self, scene):
        entry = scene.pipe(0)
        scene.storage.before["create_pipe"] = refuse
        with pytest.raises(StorageUnavailableError):
            scene.move(entry, 1)
        assert scene.lists == {Shelf.READY: 1}

    def test_of_who_stopped_until_what_it_staged_was_deleted_is_taken_again(self, scene):
        entry = scene.pipe(0, 1)

        def stop(*_, **__):
            scene.clock.seconds += STAGED_S + LOOK_AFTER_S + 1
            scene.keep()
            assert scene.listed(Shelf.SORTED) == []

        scene.storage.after["append"] = stop
        assert scene.move(entry, 2)
        assert sorted(body for body, *_ in scene.consume()) == [b"0", b"1"]


class TestADeathBeforeTheListing:
    @pytest.fixture
    def entry(self, scene):
        """A pipe of which message 2 is moved, and not listed."""
        made = scene.pipe(0, 1)
        scene.storage.before["publish_pipes"] = die
        with pytest.raises(Killed):
            scene.move(made, 2)
        assert scene.lists == {Shelf.READY: 1, Shelf.SORTED: 1}
        assert [body for body, *_ in scene.consume()] == [b"0"]
        return made

    def test_is_made_up_for_by_the_next_call(self, scene, entry):
        assert scene.move(entry, 2)
        (found,) = scene.consume()
        assert found == (b"1", MessageId(entry.pipe, 2), 1)
        assert scene.listed(Shelf.SORTED) == []

    def test_is_made_up_for_by_a_reaper_once_the_rest_has_ended(self, scene, entry):
        scene.reaper.run_once()
        assert scene.lists == {Shelf.DUE: 1, Shelf.MOVED: 1}
        assert [body for body, *_ in scene.consume()] == [b"1"]

    @pytest.mark.parametrize("late_s", [0, 3600])
    def test_is_told_to_poppers_where_the_listing_is_late(self, scene, entry, late_s):
        scene.clock.seconds += late_s
        assert scene.move(entry, 2, URGENT)
        assert scene.publications == (1 if late_s else 0)
        assert scene.move(entry, 2)
        assert scene.publications == (1 if late_s else 0)

    def test_is_told_to_poppers_by_a_reaper_too(self, scene, entry):
        scene.clock.seconds += 3600
        scene.storage.before["change_queue"] = refuse
        reaper = Reaper(scene.context, "another", lambda _: None)
        assert "not told" in reaper.run_once().failed[0]
        assert (scene.publications, scene.listed(Shelf.DUE)) == (0, [scene.moved_from(entry)])
        reaper.run_once()
        assert scene.publications == 1

    def test_is_told_to_poppers_by_the_next_call_where_that_failed(self, scene, entry):
        scene.clock.seconds += 3600
        scene.storage.before["change_queue"] = refuse
        assert scene.move(entry, 2)
        assert scene.publications == 1
        assert [body for body, *_ in scene.consume()] == [b"1"]

    def test_is_made_up_for_by_a_keeper_in_ten_minutes(self, scene, entry):
        scene.keep()
        assert scene.listed(Shelf.DUE) == []
        scene.clock.seconds += STAGED_S + 1
        scene.keep()
        assert scene.listed(Shelf.DUE) == [scene.moved_from(entry)]
        assert [body for body, *_ in scene.consume()] == [b"1"]

    def test_is_told_as_waiting_and_counted_once(self, scene, entry):
        assert scene.status(entry, 2).state is MessageState.WAITING
        stats = scene.stats()
        assert (stats.pushed, stats.committed, stats.waiting + stats.delayed) == (2, 1, 1)

    def test_is_no_hiding_place_from_cancellations_and_purges(self, scene, entry):
        assert Purging(scene.beside).cancel(MessageId(entry.pipe, 2), is_running_meant=False)
        assert Purging(scene.beside).purge() == 0
        assert scene.status(entry, 2).state is MessageState.PURGED
        assert not scene.move(entry, 2)
        assert scene.consume() == []

    def test_is_ended_by_a_purge(self, scene, entry):
        assert Purging(scene.beside).purge() == 1
        assert not scene.move(entry, 2)


def test_a_listing_that_fails_is_tried_again_and_told_where_it_is_in_vain(scene, monkeypatch):
    entry = scene.pipe(0, 1, 2)
    scene.storage.before["publish_pipes"] = refuse
    assert scene.move(entry, 2)
    assert scene.listed(Shelf.DUE) == [scene.moved_from(entry)]

    monkeypatch.setattr(scene.rows, "publish_pipes", refuse)
    with pytest.raises(OutcomeUnknownError, match=r"not listed yet: a keeper does that within ten minutes"):
        scene.move(entry, 3)


@pytest.mark.parametrize("fail", [lose, refuse, corrupt])
class TestASourceThatIsOverByThat:
    """It is put aside besides, and nobody hears where that fails."""

    @pytest.fixture
    def entry(self, scene):
        return scene.pipe(3600, due_class=3)

    def test_is_ended_by_a_cancellation(self, scene, entry, fail):
        scene.storage.before["publish_pipes"] = fail
        assert Purging(scene.context).cancel(MessageId(entry.pipe, 1), is_running_meant=False)
        self._ends_later(scene)

    def test_is_ended_by_a_purge(self, scene, entry, fail):
        scene.storage.before["publish_pipes"] = fail
        assert Purging(scene.context).purge() == 1
        self._ends_later(scene)

    def test_is_ended_by_a_move(self, scene, entry, fail):
        scene.storage.after["publish_pipes"] = lambda *_: scene.storage.before.update(publish_pipes=fail)
        assert scene.move(entry, 1)
        assert "publish_pipes" not in scene.storage.before
        assert [body for body, *_ in scene.consume()] == [b"3600"]
        self._ends_later(scene)

    def _ends_later(self, scene):
        assert scene.lists[Shelf.SCHEDULED] == 1
        scene.clock.seconds += 3600
        scene.keep()
        for _ in range(2):
            scene.reaper.run_once()
        assert scene.lists == {}


class TestWhatStandsForWhatWasMoved:
    """It is looked at once an hour, by each reaper; a pass of it takes its time, and no more."""

    COUNT = 6

    @pytest.fixture
    def looked_at(self, scene):
        """Pipes that stand for what was moved, as they are looked at; each look takes a quarter of a pass."""
        for _ in range(self.COUNT):
            assert scene.move(scene.pipe(0), 1, scene.in_s(3600))
        scene.reaper.run_once()
        standing = scene.listed(Shelf.MOVED)
        assert len(standing) == self.COUNT
        load_pipe, seen = scene.rows.load_pipe, []

        def load_slowly(pipe):
            if pipe in standing:
                seen.append(pipe)
                scene.clock.seconds += PASS_MAX_S / 4
            return load_pipe(pipe)

        scene.rows.load_pipe = load_slowly
        return seen

    def test_is_looked_at_in_parts(self, scene, looked_at):
        reaper = Reaper(scene.beside, "another", lambda _: None)
        reached = []
        for _ in range(4):
            reaper.run_once(32)
            reached.append(len(looked_at))
        assert reached == [2, 4, 6, 6]
        assert len(set(looked_at)) == 6
        scene.clock.seconds += LET_GO_S
        reaper.run_once(32)
        assert len(looked_at) == 8

    def test_is_looked_at_whole_by_who_reaps_all(self, scene, looked_at):
        Reaper(scene.beside, "another", lambda _: None).run_once()
        assert len(looked_at) == 6

    def test_is_remembered_as_long_as_it_stands(self, scene, looked_at):
        reaper = Reaper(scene.beside, "another", lambda _: None)
        reaper.run_once()
        assert len(reaper._sources._awaited) == 6
        for entry in scene.rows.list_pipes("q", shelf=Shelf.MOVED).entries:
            scene.rows.delete_pipe("q", entry.pipe, Shelf.MOVED)  # as others do
        scene.clock.seconds += LET_GO_S
        reaper.run_once()
        assert not reaper._sources._awaited


class TestASource:
    def test_stands_until_what_it_names_is_gone_and_counts_what_went_through_it(self, scene):
        entry = scene.pipe(0, 1)
        assert scene.move(entry, 2, scene.in_s(3600))
        assert [body for body, *_ in scene.consume()] == [b"0"]
        scene.reaper.run_once()
        assert scene.lists == {Shelf.SCHEDULED: 1, Shelf.MOVED: 1}
        scene.clock.seconds += 10 * LET_GO_S
        scene.reaper.run_once()
        assert scene.listed(Shelf.MOVED) == [entry.pipe]
        scene.keep()
        assert [body for body, *_ in scene.consume()] == [b"1"]
        for _ in range(2):
            scene.reaper.run_once()
        assert scene.lists == {}
        totals = scene.totals()
        assert (totals.pushed, totals.popped, totals.committed) == (2, 2, 2)
        assert scene.status(entry, 2).state is MessageState.ENDED

    def test_that_is_over_after_what_it_names_retires_at_once(self, scene):
        entry = scene.pipe(0, 1)
        assert scene.move(entry, 2)
        (target,) = scene.rows.list_pipes("q", shelf=Shelf.DUE).entries
        assert scene.take(target) == [b"1"]
        scene.rows.mark(target.pipe, [Mark(1, 1, End.COMMITTED)])
        scene.reaper.run_once()
        assert scene.lists == {Shelf.READY: 1}
        assert [body for body, *_ in scene.consume()] == [b"0"]
        scene.reaper.run_once()
        assert scene.lists == {}
        assert scene.totals().committed == 2
        assert scene.rows.load_pipe(entry.pipe) is None

    def test_stands_where_a_look_at_what_it_names_failed(self, scene):
        entry = scene.pipe(0, 1)
        assert scene.move(entry, 2, scene.in_s(3600))
        assert [body for body, *_ in scene.consume()] == [b"0"]
        load_pipe, target = scene.rows.load_pipe, scene.moved_from(entry)
        scene.rows.load_pipe = lambda pipe: refuse() if pipe == target else load_pipe(pipe)
        assert len(scene.reaper.run_once().failed) == 1
        assert scene.lists == {Shelf.READY: 1, Shelf.SCHEDULED: 1}

    @pytest.mark.parametrize("is_another", [False, True])
    def test_of_a_source_of_a_source_goes_in_the_end(self, scene, is_another):
        entry = scene.pipe(0)
        for _ in range(6):
            assert scene.move(entry, 1)
            scene.clock.seconds += 1
            scene.reaper.run_once()
        assert scene.lists == {Shelf.DUE: 1, Shelf.MOVED: 6}
        assert scene.consume() == [(b"0", MessageId(entry.pipe, 1), 1)]
        for _ in range(8):
            if is_another:  # which has not heard of what the others found, and looks first
                scene.reaper = Reaper(scene.beside, "another", lambda _: None)
            scene.reaper.run_once()
        assert scene.lists == {}
        totals = scene.totals()
        assert (totals.pushed, totals.popped, totals.committed) == (1, 1, 1)

    def test_never_comes_back_to_a_list_that_it_has_left(self, scene):
        """What is deleted from one stays deleted in Cassandra."""
        seen = []
        publish = scene.rows.publish_pipes

        def note(queue, entries, to):
            seen.extend((each.pipe, each.shelf, to) for each in entries)
            publish(queue, entries, to)

        scene.rows.publish_pipes = note
        for due_class in (0, 1, 3):
            entry = scene.pipe(5 * 60 * (due_class > 1), due_class=due_class)
            for place in (scene.in_s(5), scene.in_s(500), AT_ONCE, URGENT):
                assert scene.move(entry, 1, place)
                scene.reaper.run_once()
                scene.keep()
        assert len(scene.consume()) == 3
        for _ in range(10):
            scene.clock.seconds += LET_GO_S
            scene.keep()
            scene.reaper.run_once()
        assert scene.lists == {}
        for place, (pipe, _, to) in enumerate(seen):
            assert (pipe, to) not in {(each, shelf) for each, shelf, _ in seen[:place]}


class TestAPile:
    @pytest.mark.parametrize("is_sealed", [False, True])
    def test_of_which_a_message_was_moved_is_sorted_with_the_rest(self, scene, is_sealed):
        entry = scene.pipe(300, 200, 250, due_class=3, is_sealed=is_sealed)
        assert scene.move(entry, 2, AT_ONCE)
        assert scene.move(entry, 1, scene.in_s(4000))
        assert [body for body, *_ in scene.consume()] == [b"200"]
        if not is_sealed:
            dues = (scene.now_ms + 220_000,)
            scene.rows.append(entry.pipe, Batch(4, (b"220",), None, 1, dues=dues))
            assert scene.rows.transact(entry.pipe, Transaction(Seal(4))).is_applied
        scene.clock.seconds += 195
        assert scene.keep().moved == (1 if is_sealed else 2)
        came = [body for body, *_ in scene.consume()]
        assert came == ([b"250"] if is_sealed else [b"220", b"250"])
        scene.clock.seconds += 4000
        scene.keep()
        assert scene.consume() == [(b"300", MessageId(entry.pipe, 1), 1)]
        scene.clock.seconds += LET_GO_S
        for _ in range(4):
            scene.reaper.run_once()
        assert scene.lists == {}
        totals = scene.totals()
        assert (totals.pushed, totals.committed) == ((3, 3) if is_sealed else (4, 4))

    def test_that_is_sorted_meanwhile_gives_its_message_all_the_same(self, scene):
        entry = scene.pipe(50, 20, 40, due_class=2)
        scene.at_decision(scene.keep)
        assert scene.move(entry, 1)
        assert sorted(body for body, *_ in scene.consume()) == [b"20", b"40", b"50"]


class TestAMessageThatCameBack:
    def test_keeps_its_attempts_its_reason_and_its_rest(self, scene):
        entry = scene.pipe(0, 1)
        assert scene.take(entry) == [b"0", b"1"]
        scene.return_run(entry)
        assert scene.move(entry, 2, URGENT)
        (target,) = scene.rows.list_pipes("q", shelf=Shelf.DUE).entries
        (run,) = scene.rows.load_pipe(target.pipe).runs
        (before,) = scene.rows.load_pipe(entry.pipe).runs
        assert (run.state, run.attempt, run.reason) == (RunState.RETURNED, 1, before.reason)
        assert (run.first, run.last, run.not_before_ms) == (1, 1, before.not_before_ms)
        assert (target.priority, target.moved_from) == (9, entry.pipe)
        scene.clock.seconds += 3600
        assert {(body, attempt) for body, _, attempt in scene.consume()} == {(b"0", 2), (b"1", 2)}
        for _ in range(3):
            scene.reaper.run_once()
        totals = scene.totals()
        assert (totals.pushed, totals.popped, totals.committed, totals.rolled_back) == (2, 2, 2, 2)

    def test_is_taken_from_a_holder_whose_lease_has_ended(self, scene):
        entry = scene.pipe(0)
        assert scene.take(entry) == [b"0"]
        assert not scene.move(entry, 1)
        scene.clock.seconds += 60
        assert scene.move(entry, 1)
        ((body, message_id, attempt),) = scene.consume()
        assert (body, message_id, attempt) == (b"0", MessageId(entry.pipe, 1), 2)

    def test_from_its_last_attempt_is_left_to_be_a_dead_letter(self, scene):
        entry = scene.pipe(0)
        for _ in range(SETTINGS.max_attempts):
            assert scene.take(entry) == [b"0"]
            scene.return_run(entry, 3600)
        assert not scene.move(entry, 1)
        assert not scene.move(entry, 1, URGENT)


class TestByHand:
    def test_a_window_is_over_and_taken_over_before_something_is_moved(self, scene):
        entry = scene.pipe(0, is_sealed=False)
        result = scene.own(entry).take(1, is_flowing=True)
        assert result.window
        scene.rows.append(entry.pipe, Batch(2, (b"1",), None, 1))
        scene.clock.seconds += 3600
        assert scene.move(entry, 2, scene.in_s(500))
        assert scene.rows.load_pipe(entry.pipe).window is None
        assert scene.status(entry, 2).state is MessageState.DELAYED

    def test_a_pipe_that_is_gone_is_none(self, scene):
        hand = by_hand.ByHand(scene.context)
        gone = PipeEntry(new_pipe_id(), "a pusher")
        assert hand.load(gone) is None
        assert hand.targets_of(gone) == frozenset()

    def test_targets_are_what_was_moved(self, scene):
        entry = scene.pipe(0, 1)
        hand = by_hand.ByHand(scene.context)
        assert hand.targets_of(entry) == set()
        assert scene.move(entry, 1)
        assert hand.targets_of(entry) == {scene.moved_from(entry)}

    def test_what_is_handed_out_is_idle_once_it_came_back(self, scene):
        entry = scene.pipe(0, 1)
        assert by_hand.run_with(scene.own(entry), 1) is None
        assert by_hand.is_pushed(scene.own(entry), 2)
        assert not by_hand.is_pushed(scene.own(entry), 3)
        scene.take(entry, 1)
        owned = scene.own(entry)
        assert not by_hand.is_idle(owned, by_hand.run_with(owned, 1))
        scene.clock.seconds += 60
        owned = scene.own(entry)
        assert by_hand.is_idle(owned, by_hand.run_with(owned, 1))
        assert by_hand.ByHand(scene.context).make_way(owned, set()) == 1
        owned = scene.own(entry)
        run = by_hand.run_with(owned, 1)
        assert run.state is RunState.RETURNED
        assert not by_hand.is_idle(owned, replace(run, attempt=SETTINGS.max_attempts))


def test_no_message_is_moved_that_was_never_pushed(scene):
    entry = scene.pipe(0, is_sealed=False)
    assert not scene.move(entry, 2)
    assert not scene.move(PipeEntry(new_pipe_id(), "nobody"), 1)
    scene.rows.append(entry.pipe, Batch(2, (b"1",), None, 1))
    assert scene.move(entry, 2)
    assert [
        body for batch in read_all(scene.rows, scene.moved_from(entry), NO_LIMIT) for body in batch.bodies
    ] == [b"1"]


@pytest.mark.parametrize("due_class", [0, SOON])
@pytest.mark.parametrize("place", range(12))
class TestASourceThatMovesOn:
    """To the list of those that stand for their targets, while somebody reads one list after the other."""

    @pytest.fixture
    def entry(self, scene, place, due_class):
        """A pipe that is over but for what was moved; a reaper finds that before list `place` is read."""
        made = scene.pipe(0, 0, 0, due_class=due_class)
        assert scene.move(made, 2, scene.in_s(3600))
        assert len(scene.consume()) == 2
        list_pipes, calls = scene.rows.list_pipes, []

        def list_while_reaped(*values, **named):
            calls.append(values)
            if len(calls) == place + 1:
                scene.rows.list_pipes = list_pipes
                scene.reaper.run_once()
                assert scene.lists.items() >= {Shelf.SCHEDULED: 1, Shelf.MOVED: 1}.items()
            return list_pipes(*values, **named)

        scene.rows.list_pipes = list_while_reaped
        return made

    def test_is_found_by_who_cancels(self, scene, entry):
        assert Purging(scene.beside).cancel(MessageId(entry.pipe, 2), is_running_meant=False)

    def test_is_found_by_who_moves(self, scene, entry):
        assert scene.move(entry, 2)

    def test_is_counted_once(self, scene, entry):
        stats = scene.stats()
        assert (stats.pushed, stats.committed, stats.delayed) == (3, 2, 1)

    def test_is_purged_with_what_it_names(self, scene, entry):
        assert Purging(scene.beside).purge() == 1

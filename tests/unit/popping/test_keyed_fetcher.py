"""A popper of a queue with keys: whether it takes from pipes or from slots, and what it leaves to others."""

import threading
from functools import partial

import pytest
from support.slot_scene import Flaky, Scene, commit

from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.coordination.port import name_in_line
from cassq.errors import StorageUnavailableError
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.label import Label
from cassq.model.message import Batch
from cassq.model.pipe import Head, PipeEntry
from cassq.model.queue_record import QueueRecord
from cassq.model.settings import QueueSettings
from cassq.model.uses import wanted_bits, with_uses
from cassq.popping.fetcher import Fetcher
from cassq.popping.reach import Reach
from cassq.popping.timing import LOOK_S


def _told(*labels):
    record = QueueRecord("q", new_token(), QueueSettings(), new_token())
    return dict(with_uses(record, *labels).settings.others)


#: What a queue says of itself once a message was pushed with a key.
USES = _told(Label(slot=0))
#: And once messages of two types were.
TYPES = _told(Label(slot=0, type="refund"), Label(slot=0, type="invoice"))


class FetcherScene(Scene):
    """Pipes with and without keys, and a popper's fetcher."""

    def __init__(self):
        super().__init__()
        self.flaky = Flaky(self.storage)
        self.coordinator = LocalCoordinator(None, self.clock)
        self.made = []

    def fetcher(self, holder="a popper", others=USES):
        context = self.context(self.flaky, self.coordinator, others=others)
        made = Fetcher(context, holder, on_pipe_over=self.over.append)
        self.made.append(made)
        return made

    def open_plain(self, count):
        entry = PipeEntry(new_pipe_id(), "a pusher")
        self.storage.create_pipe("q", entry, Head(new_token()))
        self.storage.append(entry.pipe, Batch(1, (b"body",) * count, None, count))
        return entry.pipe

    def hunger(self, types=None):
        """Have another popper be hungry, for messages of some types; return what it hears."""
        woken = []
        bits = types and wanted_bits(QueueSettings(others=TYPES), types)
        self.coordinator.announce_hunger("q", name_in_line("another", bits), partial(woken.append, True))
        return woken


@pytest.fixture
def scene():
    made = FetcherScene()
    yield made
    for each in made.made:
        each.close()
    made.coordinator.close()
    made.storage.close()


def came(fetched):
    """Which pipes messages came of, in the order in which they came, and how many."""
    return [(run.pipe, taken.count) for run, taken in fetched]


class TestTurns:
    def test_go_to_pipes_and_to_slots_one_after_the_other(self, scene):
        plain, keyed = scene.open_plain(3), scene.open("a", "b", "c")
        fetcher = scene.fetcher()
        order = [came(fetcher.feed(1)) for _ in range(6)]
        assert order == [[(plain, 1)], [(keyed, 1)]] * 3

    def test_come_to_pipes_that_were_opened_while_slots_gave_all_that_was_wanted(self, scene):
        scene.open("a", "b", "c", "d", "e")
        fetcher = scene.fetcher()
        fetcher.feed(1)
        plain = scene.open_plain(1)
        fetcher.feed(1)
        scene.clock.seconds += LOOK_S
        assert (plain, 1) in came(fetcher.feed(1)) + came(fetcher.feed(1))

    def test_list_no_pipes_where_there_were_none_a_moment_ago(self, scene):
        scene.open("a", "b", "c", "d", "e")
        fetcher = scene.fetcher()
        fetcher.feed(1)
        scene.flaky.calls.clear()
        assert sum(count for _ in range(3) for _, count in came(fetcher.feed(1))) == 3
        assert "list_pipes" not in scene.flaky.calls

    def test_go_on_with_the_other_side_where_more_is_wanted(self, scene):
        plain, keyed = scene.open_plain(2), scene.open("a")
        fetcher = scene.fetcher()
        assert came(fetcher.feed(9)) == [(plain, 2), (keyed, 1)]

    def test_stop_at_what_is_wanted(self, scene):
        scene.open_plain(5)
        scene.open("a", "b")
        assert sum(count for _, count in came(scene.fetcher().feed(4))) == 4

    def test_end_with_the_first_side_that_gives_to_who_is_hungry_already(self, scene):
        plain = scene.open_plain(2)
        scene.open("a")
        assert came(scene.fetcher().feed(9, Reach.BUSY)) == [(plain, 2)]

    def test_spare_slots_where_the_queue_never_had_a_key(self, scene):
        plain = scene.open_plain(1)
        keyed = scene.open("a")
        fetcher = scene.fetcher(others={})
        assert came(fetcher.feed(9, Reach.DRAINED)) == [(plain, 1)]
        assert scene.leased(keyed) == []
        assert scene.op_of(3) is None

    def test_that_fail_on_one_side_give_what_the_other_has(self, scene):
        plain = scene.open_plain(1)
        scene.open("a")
        fetcher = scene.fetcher()
        scene.flaky.fails["read_slot"] = (StorageUnavailableError("away"), False)
        assert came(fetcher.feed(9)) == [(plain, 1)]

    def test_that_fail_tell_why_where_nothing_came(self, scene):
        scene.open("a")
        fetcher = scene.fetcher()
        scene.flaky.fails["read_slot"] = (StorageUnavailableError("away"), False)
        with pytest.raises(StorageUnavailableError):
            fetcher.feed(9)


class TestALook:
    def test_finds_new_slots_now_and_then(self, scene):
        fetcher = scene.fetcher()
        assert fetcher.feed(9) == []
        keyed = scene.open("a")
        assert fetcher.feed(9) == []
        scene.clock.seconds += LOOK_S
        assert came(fetcher.feed(9)) == [(keyed, 1)]

    @pytest.mark.parametrize("reach", [Reach.BUSY, Reach.DRAINED])
    def test_that_reaches_far_finds_new_slots_at_once(self, scene, reach):
        fetcher = scene.fetcher()
        assert fetcher.feed(9) == []
        keyed = scene.open("a")
        assert came(fetcher.feed(9, reach)) == [(keyed, 1)]

    def test_of_who_was_woken_tries_slots_that_others_had(self, scene):
        keyed = scene.open("a", "b")
        other, fetcher = scene.fetcher("another"), scene.fetcher()
        other.feed(1)
        assert fetcher.feed(9) == []
        other.let_go()
        assert fetcher.feed(9, Reach.BUSY) == []
        assert came(fetcher.feed(9, Reach.DRAINED)) == [(keyed, 1)]

    def test_of_who_is_to_finish_takes_nothing(self, scene):
        keyed = scene.open("a", "b")
        fetcher = scene.fetcher()
        assert came(fetcher.feed(1)) == [(keyed, 1)]
        fetcher.finish()
        assert fetcher.feed(9) == []


class TestLeaving:
    def test_some_slots_to_who_is_hungry_wakes_as_many(self, scene):
        for slot in range(4):
            scene.open("a", "a", slot=slot)
        fetcher = scene.fetcher()
        fetcher.feed(9)
        woken = scene.hunger()
        fetcher.share()
        assert len(scene.coordinator.holders("q")) == 2
        assert woken == [True]

    def test_no_slot_where_nobody_is_hungry(self, scene):
        for slot in range(4):
            scene.open("a", "a", slot=slot)
        fetcher = scene.fetcher()
        fetcher.feed(9)
        fetcher.share()
        fetcher.leave_slots()
        assert len(scene.coordinator.holders("q")) == 4

    @pytest.mark.parametrize("leave", [Fetcher.share, Fetcher.leave_slots])
    def test_its_only_slot_to_who_waits_there_for_types_that_it_does_not_take(self, scene, leave):
        scene.open("a", "a", kind="refund")
        invoice = scene.open("b", "b", kind="invoice")
        fetcher = scene.fetcher(others=TYPES)
        fetcher.take_only({"invoice"})
        assert came(fetcher.feed(9)) == [(invoice, 1)]
        woken = scene.hunger(types={"refund"})
        leave(fetcher)
        assert scene.coordinator.holders("q") == {}
        assert scene.leased(invoice) == [1]  # what was held went back
        assert woken == [True]

    @pytest.mark.parametrize("leave", [Fetcher.share, Fetcher.leave_slots])
    def test_no_slot_to_who_waits_for_types_that_are_not_there(self, scene, leave):
        for slot in range(2):
            scene.open("b", "b", kind="invoice", slot=slot)
        fetcher = scene.fetcher(others=TYPES)
        fetcher.take_only({"invoice"})
        fetcher.feed(9)
        scene.hunger(types={"refund"})
        leave(fetcher)
        assert len(scene.coordinator.holders("q")) == 2

    def test_a_slot_of_which_it_takes_nothing_though_nobody_waits(self, scene):
        # Given one who has taken all of its type, in a slot where others have a backlog
        invoice = scene.open("b", kind="invoice")
        fetcher = scene.fetcher(others=TYPES)
        fetcher.take_only({"invoice"})
        commit(fetcher.feed(9))
        scene.open("a", "a", kind="refund")
        scene.clock.seconds += LOOK_S
        assert fetcher.feed(9, Reach.BUSY) == []
        fetcher.leave_slots()
        assert scene.coordinator.holders("q") == {}
        # And it comes back for more
        scene.push(invoice, "b")
        assert came(fetcher.feed(9, Reach.DRAINED)) == [(invoice, 1)]

    @pytest.mark.parametrize("leave", [Fetcher.leave, Fetcher.leave_slots])
    def test_all_slots_keeps_those_of_which_something_is_held(self, scene, leave):
        scene.open("a", slot=1)
        kept = scene.open("a", "a", slot=2)
        fetcher = scene.fetcher()
        first = fetcher.feed(9)
        scene.hunger()
        leave(fetcher)
        assert len(scene.coordinator.holders("q")) == 1
        assert fetcher.is_holding
        commit(first)
        assert came(fetcher.feed(9)) == [(kept, 1)]

    def test_for_good_gives_back_what_is_held(self, scene):
        keyed = scene.open("a", "a")
        fetcher = scene.fetcher()
        fetcher.feed(9)
        fetcher.close()
        assert scene.coordinator.holders("q") == {}
        assert scene.leased(keyed) == [1]


class TestWhatAFetcherHas:
    def test_is_not_nothing_where_there_are_pipes_of_slots_alone(self, scene):
        fetcher = scene.fetcher()
        fetcher.feed(9)
        assert fetcher.is_empty
        scene.open()
        fetcher.feed(9, Reach.BUSY)
        assert not fetcher.is_empty

    def test_is_kept_up_while_it_waits_for_its_key(self, scene):
        keyed = scene.open("a", "a")
        fetcher = scene.fetcher()
        assert fetcher.keep_up() == []
        fetcher.feed(9)
        assert [run.pipe for run in fetcher.keep_up()] == [keyed]
        assert fetcher.is_holding

    def test_is_of_its_types_alone(self, scene):
        scene.open("a", kind="refund", slot=1)
        invoice = scene.open("a", kind="invoice", slot=2)
        fetcher = scene.fetcher()
        fetcher.take_only({"invoice"})
        assert came(fetcher.feed(9)) == [(invoice, 1)]
        assert scene.op_of(1) is None

    def test_tells_consumers_threads_whom_to_call_once_a_key_is_free(self, scene):
        scene.open("a", "a")
        fetcher = scene.fetcher()
        fetcher.listen(lambda: None, partial(scene.freed.append, True))
        first = fetcher.feed(9)
        consumer = threading.Thread(target=commit, args=(first,))
        consumer.start()
        consumer.join()
        assert scene.freed == [True]

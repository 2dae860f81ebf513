"""What is let go of the pipes that a popper claims, and that nothing of it is left behind."""

from datetime import timedelta
from types import SimpleNamespace

import pytest

from cassq.errors import StorageUnavailableError
from cassq.model.ids import just_before, new_pipe_id
from cassq.model.pipe import Phase, PipeEntry
from cassq.model.settings import QueueSettings
from cassq.pipes import window_steps
from cassq.popping.claims import Claims
from cassq.popping.timing import BUSY_S


class Owned:
    """A pipe that is claimed."""

    is_exhausted = False

    def __init__(
        self, *, may_have_more=True, due=None, window=None, priority=0, due_class=0, phase=Phase.OPEN
    ):
        self.pipe = new_pipe_id()
        self.entry = PipeEntry(self.pipe, "a pusher", priority, due_class=due_class)
        self.head = SimpleNamespace(phase=phase)
        self.sent_at = 0.0
        self.may_have_more = may_have_more
        self.due = due
        self.window = window

    def next_due(self):
        return self.due

    def has_news(self):
        return False


class Context:
    """A queue's, of which the claims need little; keeps what is released."""

    queue = "q"
    record = clock = None
    settings = QueueSettings(ageing=timedelta(0))

    def __init__(self):
        self.coordinator = self
        self.released = []

    def release(self, queue, pipe, holder):
        self.released.append((queue, pipe, holder))


class Memory:
    def __init__(self):
        self.rests = {}

    def note_rest(self, pipe, seconds):
        self.rests[pipe] = seconds


@pytest.fixture
def context():
    return Context()


@pytest.fixture
def memory():
    return Memory()


@pytest.fixture
def claims(context, memory):
    return Claims(context, "a popper", None, memory, None)


def entry(priority):
    return PipeEntry(new_pipe_id(), "a pusher", priority=priority)


def add(claims, *pipes):
    for owned in pipes:
        assert claims.add(owned).owned is owned
    return [owned.pipe for owned in pipes]


def test_only_a_pipe_with_nothing_to_take_makes_room(context, memory, claims):
    full, empty = add(claims, Owned(), Owned(may_have_more=False))
    assert claims.make_room(entry(0))
    assert (empty in claims, memory.rests) == (False, {empty: BUSY_S})
    assert context.released == [("q", empty, "a popper")]
    assert not claims.make_room(entry(0))
    assert full in claims


def test_what_is_less_urgent_makes_room(context, memory, claims):
    low, high = add(claims, Owned(priority=3), Owned(priority=7))
    assert not claims.make_room(entry(3))
    assert claims.make_room(entry(4))
    assert (low in claims, high in claims, memory.rests) == (False, True, {low: 0.0})


def test_what_has_waited_for_longer_than_its_priority_makes_up_for_is_claimed_instead(context, claims):
    context.settings = QueueSettings(ageing=timedelta(minutes=1))
    old = PipeEntry(just_before(new_pipe_id(), 180), "a pusher", priority=1)
    young, urgent = Owned(priority=3), Owned(priority=5)
    add(claims, young, urgent)
    assert claims.make_room(old)
    assert (young.pipe in claims, urgent.pipe in claims) == (False, True)
    assert not claims.make_room(old)


def test_of_what_is_empty_and_of_one_priority_the_first_makes_room(claims):
    first, second = add(claims, Owned(may_have_more=False), Owned(may_have_more=False))
    assert claims.make_room(entry(0))
    assert (first in claims, second in claims) == (False, True)


def test_of_what_is_empty_the_least_urgent_makes_room(claims):
    high, low = add(claims, Owned(may_have_more=False, priority=7), Owned(may_have_more=False))
    assert claims.make_room(entry(0))
    assert (high in claims, low in claims) == (True, False)


def test_others_get_what_is_empty_here_and_half_of_what_is_full(claims):
    full = [Owned() for _ in range(3)]
    empty = Owned(may_have_more=False)
    add(claims, *full, empty)
    assert claims.types == {""}
    assert claims.leave_some({"refund"}, is_full=True) == {}
    assert claims.leave_some({""}, is_full=False) == {"": 2}
    assert list(claims) == [claims.get(full[0].pipe)]


def test_what_comes_due_by_and_by_is_left_to_others_only_by_who_has_enough_or_where_it_is_pushed_into(claims):
    later = Owned(due_class=2, phase=Phase.SEALED)
    pushed_into = Owned(due_class=1)
    plain = Owned(phase=Phase.SEALED)
    add(claims, later, pushed_into, plain)
    claims.leave()
    assert [each.owned for each in claims] == [later]
    assert claims.leave_some({""}, is_full=False) == {}
    assert later.pipe in claims
    assert claims.leave_some({""}, is_full=True) == {"": 1}
    assert later.pipe not in claims


def test_what_is_over_is_left_whatever_its_due_times(claims):
    over = Owned(due_class=2, phase=Phase.SEALED)
    add(claims, over)
    over.is_exhausted = True
    claims.leave()
    assert over.pipe not in claims


def test_a_claim_is_given_up_though_its_window_cannot_be_ended(monkeypatch, context, claims):
    def cut(owned):
        raise StorageUnavailableError(f"{owned.pipe} is out of reach")

    monkeypatch.setattr(window_steps, "cut", cut)
    (pipe,) = add(claims, Owned(window=object()))
    claims.let_go(pipe)
    assert context.released == [("q", pipe, "a popper")]


def test_where_one_window_cannot_be_ended_the_other_pipes_stay(monkeypatch, claims):
    lost = Owned(window=object())
    lost_pipe, kept, plain = add(claims, lost, Owned(window=object()), Owned())
    monkeypatch.setattr(window_steps, "cut", lambda owned: owned is not lost)
    claims.end_windows()
    assert [lost_pipe in claims, kept in claims, plain in claims] == [False, True, True]


def test_what_is_not_listed_any_more_is_let_go(claims):
    listed, gone = add(claims, Owned(), Owned())
    claims.keep_only({listed})
    assert [each.owned.pipe for each in claims] == [listed]
    assert gone not in claims


def test_a_pipe_of_which_nothing_is_out_has_nothing_to_come_due(claims):
    add(claims, Owned(due=2.0), Owned(), Owned(due=0.0))
    assert claims.next_due() == [2.0, 0.0]

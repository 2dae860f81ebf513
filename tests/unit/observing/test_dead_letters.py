"""What becomes of dead letters that somebody deals with, where one is missing, named twice, or fails."""

import math
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from cassq.errors import ClosedError, DeadLetterNotFoundError, InvalidOptionError, StorageUnavailableError
from cassq.model.ids import MessageId, new_pipe_id
from cassq.observing import dead_letters
from cassq.observing.dead_letters import PAGE, DeadLetters
from cassq.observing.redriving import Redriven
from cassq.runtime.clock import SystemClock
from cassq.storage.forms import DeadLetter
from cassq.storage.sqlite.storage import SqliteStorage


class Clock(SystemClock):
    """A clock that stands still but where somebody waits."""

    def __init__(self):
        self.seconds = 0.0

    def now(self):
        return self.seconds

    def wait(self, _condition, seconds):
        self.seconds += min(seconds, 0.05) + 1e-9  # a wait may end early


class Scene:
    """The dead letters of a queue, and what is pushed of them."""

    def __init__(self):
        self.storage = SqliteStorage(None, is_synced=False)
        self.pushed = []
        self.errors = {}
        self.is_open = True
        self.clock = Clock()
        self.pushed_at = []
        self.pipe = new_pipe_id()
        self.fails_again = False
        self.letters = self.open_letters("q")

    def open_letters(self, queue):
        return DeadLetters(self.storage, queue, self.push, self.check_open, self.clock)

    def bury(self, pipe, *numbers, reason="it failed"):
        """Give messages up, and return their ids."""
        ids = [MessageId(pipe, number) for number in numbers]
        added = [DeadLetter(each, b"%d" % each.seq, {"n": str(each.seq)}, 7000, 5, reason) for each in ids]
        self.storage.change_dead("q", added=added)
        return ids

    def push(self, messages):
        """Push letters again, into one pipe that is younger than theirs."""
        assert len(self.pushed) < 1000, "it goes on for ever"
        futures = []
        for body, headers, _ in messages:
            futures.append(Future())
            if body in self.errors:
                futures[-1].set_exception(self.errors[body])
                continue
            self.pushed.append((body, headers))
            futures[-1].set_result(MessageId(self.pipe, len(self.pushed)))
        self.pushed_at.append((len(messages), self.clock.now()))
        if self.fails_again:
            self.bury(self.pipe, *(future.result().seq for future in futures))
        return futures

    def check_open(self):
        if not self.is_open:
            raise ClosedError("the queue is closed")

    @property
    def left(self):
        return [letter.body for letter in self.storage.read_dead("q")]


@pytest.fixture
def scene():
    made = Scene()
    yield made
    made.storage.close()


def test_a_letter_that_cannot_be_pushed_stays_with_the_parts_behind_it(scene, monkeypatch):
    monkeypatch.setattr(dead_letters, "PAGE", 3)
    scene.bury(new_pipe_id(), 1, 2, 3, 4)
    scene.errors[b"2"] = StorageUnavailableError("away")
    told = []
    with pytest.raises(StorageUnavailableError):
        scene.letters.put_back(progress=told.append)
    assert scene.left == [b"2", b"4"]
    assert (scene.pushed, told) == ([(b"1", {"n": "1"}), (b"3", {"n": "3"})], [2])


@pytest.mark.parametrize(("size", "left"), [(1, [[b"2"], []]), (PAGE, [[]])])
def test_letters_are_told_as_put_back_once_they_are_letters_no_more(scene, monkeypatch, size, left):
    monkeypatch.setattr(dead_letters, "PAGE", size)
    scene.bury(new_pipe_id(), 1, 2)
    found = []
    assert scene.letters.put_back(progress=lambda _: found.append(scene.left)) == 2
    assert found == left


def test_what_dies_again_meanwhile_stays(scene, monkeypatch):
    monkeypatch.setattr(dead_letters, "PAGE", 2)
    scene.fails_again = True
    old = new_pipe_id()
    scene.pipe = new_pipe_id()
    scene.bury(old, 11, 12, 13)
    assert scene.letters.put_back() == 3
    assert [letter.message_id for letter in scene.letters] == [
        MessageId(scene.pipe, seq) for seq in (1, 2, 3)
    ]
    assert scene.letters.count() == 3


class TestARedrive:
    @pytest.fixture
    def died(self, scene):
        """Letters of two kinds, in the order of their ids."""
        pipe = new_pipe_id()
        scene.bury(pipe, 1, 3, 5, reason="time-out")
        scene.bury(pipe, 2, 4, reason="bad input")
        scene.pipe = new_pipe_id()

    @pytest.mark.parametrize(
        ("options", "moved"),
        [
            ({}, [b"1", b"2", b"3", b"4", b"5"]),
            ({"limit": 2}, [b"1", b"2"]),
            ({"where": lambda letter: letter.reason == "time-out"}, [b"1", b"3", b"5"]),
            ({"where": lambda letter: letter.headers["n"] > "1", "limit": 3}, [b"2", b"3", b"4"]),
            ({"where": lambda _: False}, []),
        ],
        ids=["all", "the oldest", "by reason", "by header", "none"],
    )
    @pytest.mark.usefixtures("died")
    def test_moves_those_that_are_meant(self, scene, options, moved):
        before = scene.left
        would = scene.letters.redrive(**options, dry_run=True)
        assert (scene.pushed, scene.left) == ([], before)

        told = [0]
        done = scene.letters.redrive(**options, progress=told.append)

        assert done == would
        assert done.count == told[-1] == len(moved) == sum(done.reasons.values())
        assert [body for body, _ in scene.pushed] == moved
        assert scene.left == [body for body in before if body not in moved]

    @pytest.mark.usefixtures("died")
    def test_tells_of_what_they_had_died(self, scene):
        assert scene.letters.redrive() == Redriven(5, {"time-out": 3, "bad input": 2})

    @pytest.mark.usefixtures("died")
    def test_of_another_queue_goes_there(self, scene):
        other = Scene()
        to = SimpleNamespace(dead=other.letters)
        scene.letters.redrive(to, limit=3)
        assert ([body for body, _ in other.pushed], scene.pushed) == ([b"1", b"2", b"3"], [])
        assert scene.left == [b"4", b"5"]
        other.is_open = False
        with pytest.raises(ClosedError):
            scene.letters.redrive(to)
        assert scene.left == [b"4", b"5"]
        other.storage.close()

    @pytest.mark.parametrize(("rate", "size"), [(5, 1), (0.5, 1), (50, 5), (1000, 100), (2500, 100)])
    def test_is_never_faster_than_its_rate(self, scene, rate, size):
        scene.bury(new_pipe_id(), *range(1, 204))
        scene.pipe = new_pipe_id()
        scene.letters.redrive(rate=rate)
        assert [count for count, _ in scene.pushed_at[:-1]] == [size] * (len(scene.pushed_at) - 1)
        done = 0
        for count, at in scene.pushed_at:
            assert done <= rate * at + 1e-6
            done += count
        assert done == 203
        assert scene.pushed_at[-1][1] <= 203 / rate + 0.1 * len(scene.pushed_at)

    @pytest.mark.parametrize("rate", [0, -1, 5e-324, 0.009, math.nan, math.inf, True, "fast"])
    def test_refuses_what_is_no_rate(self, scene, rate):
        with pytest.raises(InvalidOptionError, match="rate="):
            scene.letters.redrive(rate=rate)

    @pytest.mark.parametrize("limit", [0, -1, 1.5, "all"])
    def test_refuses_what_is_no_limit(self, scene, limit):
        with pytest.raises(InvalidOptionError):
            scene.letters.redrive(limit=limit)

    def test_says_what_is_no_queue(self, scene):
        with pytest.raises(InvalidOptionError, match="to='orders' is not a queue"):
            scene.letters.redrive("orders")


@pytest.mark.parametrize(("deal", "word"), [("put_back", "put back"), ("discard", "discarded")])
class TestOfThoseThatAreNamed:
    def test_the_others_are_dealt_with_where_one_is_missing(self, scene, deal, word):
        pipe = new_pipe_id()
        first, _, third = scene.bury(pipe, 1, 3, 4)
        with pytest.raises(DeadLetterNotFoundError, match=f"1 of 3 are .*; 2 were {word}") as error:
            # Another letter stands right behind the one that is missing
            getattr(scene.letters, deal)([first, MessageId(pipe, 2), str(third)])
        assert error.value.count == 2
        assert str(MessageId(pipe, 2)) in str(error.value)
        assert scene.left == [b"3"]

    def test_one_that_is_named_twice_is_dealt_with_once(self, scene, deal, word):
        (one,) = scene.bury(new_pipe_id(), 1)
        assert getattr(scene.letters, deal)([one, str(one)]) == 1, word
        assert scene.left == []

    def test_all_of_many_pages_are_dealt_with(self, scene, deal, word, monkeypatch):
        monkeypatch.setattr(dead_letters, "PAGE", 3)
        ids = scene.bury(new_pipe_id(), *range(1, 8)) + scene.bury(new_pipe_id(), *range(1, 4))
        assert getattr(scene.letters, deal)() == len(ids), word
        assert scene.left == []
        assert len(scene.pushed) == (len(ids) if deal == "put_back" else 0)


@pytest.mark.parametrize(
    "call",
    [
        lambda letters, _: list(letters),
        lambda letters, _: letters.peek(),
        lambda letters, _: letters.count(),
        lambda letters, _: letters.redrive(),
        lambda letters, one: letters.put_back(one),
        lambda letters, _: letters.put_back(),
        lambda letters, one: letters.discard(one),
        lambda letters, _: letters.discard(),
    ],
    ids=["iterate", "peek", "count", "redrive", "put one back", "put all back", "discard one", "discard all"],
)
def test_nobody_looks_at_the_letters_of_a_queue_that_is_closed(scene, call):
    (one,) = scene.bury(new_pipe_id(), 1)
    scene.is_open = False
    with pytest.raises(ClosedError):
        call(scene.letters, one)
    assert scene.left == [b"1"]


def test_a_letter_tells_when_it_was_pushed_and_when_it_died(scene):
    scene.bury(new_pipe_id(), 1)
    (stored,) = scene.storage.read_dead("q")
    (letter,) = scene.letters.peek()
    assert letter.pushed_at.timestamp() * 1000 == stored.pushed_at_ms
    assert letter.died_at.timestamp() * 1000 == pytest.approx(stored.died_at_ms)
    assert stored.died_at_ms > stored.pushed_at_ms


def test_letters_come_page_by_page_each_once(scene, monkeypatch):
    monkeypatch.setattr(dead_letters, "PAGE", 2)
    ids = scene.bury(new_pipe_id(), 1, 2, 3) + scene.bury(new_pipe_id(), 1, 5)
    assert [letter.message_id for letter in scene.letters] == ids


class TestPeek:
    def test_goes_on_after_a_letter(self, scene):
        ids = scene.bury(scene.pipe, *range(1, 31))
        found = scene.letters.peek(12)
        rest = scene.letters.peek(30, after=found[-1].message_id)
        assert [each.message_id for each in found + rest] == ids
        assert scene.letters.peek(5, after=str(ids[-1])) == []

    def test_ends_before_there_are_more_bytes_but_has_one_letter(self, scene):
        scene.bury(scene.pipe, *range(1, 31))  # "1" and the header "n": "1" each, of the first nine
        assert len(scene.letters.peek(30, bytes_max=3 * 7)) == 7
        assert len(scene.letters.peek(30, bytes_max=1)) == 1
        assert len(scene.letters.peek(25, bytes_max=1_000_000)) == 25
        assert len(scene.letters.peek(100, bytes_max=1_000_000)) == 30

    @pytest.mark.parametrize("after", ["x", 7])
    def test_after_what_is_no_id_is_refused(self, scene, after):
        with pytest.raises(InvalidOptionError):
            scene.letters.peek(1, after=after)

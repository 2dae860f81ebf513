"""What becomes of dead letters that somebody deals with, where one is missing, named twice, or fails."""

import pytest

from cassq.errors import ClosedError, DeadLetterNotFoundError, StorageUnavailableError
from cassq.model.ids import MessageId, new_pipe_id
from cassq.observing import dead_letters
from cassq.observing.dead_letters import DeadLetters
from cassq.storage.port import DeadLetter
from cassq.storage.sqlite.storage import SqliteStorage


class Scene:
    """The dead letters of a queue, and what is pushed of them."""

    def __init__(self):
        self.storage = SqliteStorage(None, is_synced=False)
        self.pushed = []
        self.errors = {}
        self.is_open = True
        self.letters = DeadLetters(self.storage, "q", self.push, self.check_open)

    def bury(self, pipe, *numbers):
        """Give messages up, and return their ids."""
        ids = [MessageId(pipe, number) for number in numbers]
        added = [
            DeadLetter(each, b"%d" % each.seq, {"n": str(each.seq)}, 7000, 5, "it failed") for each in ids
        ]
        self.storage.change_dead("q", added=added)
        return ids

    def push(self, body, headers):
        if body in self.errors:
            raise self.errors[body]
        self.pushed.append((body, headers))
        return MessageId(new_pipe_id(), 1)

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


def test_a_letter_that_cannot_be_pushed_stays_with_those_behind_it(scene):
    scene.bury(new_pipe_id(), 1, 2, 3)
    scene.errors[b"2"] = StorageUnavailableError("away")
    told = []
    with pytest.raises(StorageUnavailableError):
        scene.letters.put_back(progress=told.append)
    assert scene.left == [b"2", b"3"]
    assert (scene.pushed, told) == ([(b"1", {"n": "1"})], [1])


def test_a_letter_is_told_as_put_back_once_it_is_a_letter_no_more(scene):
    scene.bury(new_pipe_id(), 1, 2)
    left = []
    assert scene.letters.put_back(progress=lambda _: left.append(scene.left)) == 2
    assert left == [[b"2"], []]


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
        lambda letters, one: letters.put_back(one),
        lambda letters, _: letters.put_back(),
        lambda letters, one: letters.discard(one),
        lambda letters, _: letters.discard(),
    ],
    ids=["iterate", "peek", "put one back", "put all back", "discard one", "discard all"],
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

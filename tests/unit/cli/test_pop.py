"""Which messages `cassq pop` ends, and which it gives back, where printing ends on the way."""

import pytest

import cassq
from cassq.cli.pop import _Committing, _Returning
from cassq.errors import StorageUnavailableError


class Scene:
    """A queue with messages, and those that were popped of it."""

    def __init__(self, store):
        self.queue = store.queue("q", max_attempts=5)
        self.popper = self.queue.popper()

    def pop(self, count):
        self.queue.push_many([b"%d" % number for number in range(count)])
        found = []
        while len(found) < count:
            found += self.popper.pop_many(count - len(found), 30)
        return found

    @property
    def committed(self):
        return self.queue.stats().committed

    def come_again(self, count):
        """Pop what came back; return its bodies with the number of the attempt."""
        found = []
        while len(found) < count:
            found += self.popper.pop_many(count - len(found), 30)
        return sorted((each.body, each.attempt) for each in found)


@pytest.fixture
def scene():
    with cassq.connect("memory:") as store:
        yield Scene(store)


def test_what_was_written_out_is_committed_what_was_cut_is_rolled_back_and_the_rest_is_given_back(scene):
    finish = _Committing(scene.popper)
    finish.hold(scene.pop(6))
    finish.note(1)
    assert scene.committed == 1
    finish.note(1)
    finish.note(3)
    assert [each.body for each in finish.held] == [b"3", b"4", b"5"]
    finish.end(written=3, begun=4)
    assert scene.committed == 3
    assert scene.come_again(3) == [(b"3", 2), (b"4", 1), (b"5", 1)]


def test_each_lot_is_counted_from_its_own_beginning(scene):
    finish = _Committing(scene.popper)
    finish.hold(scene.pop(2))
    finish.end(written=2, begun=2)
    finish.hold(scene.pop(4))
    finish.note(1)
    assert scene.committed == 3
    finish.end(written=4, begun=4)
    assert scene.committed == 6
    assert scene.queue.stats().rolled_back == 0


def test_what_was_not_written_out_goes_back_though_a_commit_fails(scene, monkeypatch):
    finish = _Committing(scene.popper)
    finish.hold(scene.pop(4))

    def fail(_deliveries):
        raise StorageUnavailableError("planted")

    monkeypatch.setattr(scene.popper, "commit_many", fail)
    with pytest.raises(StorageUnavailableError):
        finish.end(written=1, begun=2)
    assert scene.come_again(3) == [(b"1", 2), (b"2", 1), (b"3", 1)]


def test_what_is_printed_to_come_again_does_so_once_all_is_printed(scene, capsys):
    finish = _Returning(scene.popper, 5, 10)
    finish.hold(scene.pop(2))
    finish.end(2, 2)
    finish.hold(scene.pop(3))
    finish.note(1)
    # Of the second lot one was written, and nothing of the last two
    finish.end(1, 1)
    assert scene.queue.stats().rolled_back == 0
    finish.close()
    assert scene.queue.stats().rolled_back == 3
    told = capsys.readouterr().err
    assert "gave 3 messages back" in told
    assert "last one" not in told
    assert "of each key" not in told
    attempts = scene.come_again(5)
    assert sorted(attempt for _, attempt in attempts) == [1, 1, 2, 2, 2]


def test_nothing_is_said_of_messages_where_none_was_printed(scene, capsys):
    finish = _Returning(scene.popper, 5, 1)
    finish.close()
    assert capsys.readouterr().err == ""

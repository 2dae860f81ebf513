"""What entries of the staged list prove, and what is deleted by them."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.clocks import HandClock
from support.contexts import context_of

from cassq.bulk.manifest import read_manifest, write_manifest
from cassq.bulk.staged_list import PUBLISH_WITHIN_S, TRUSTED_S, StagedList
from cassq.bulk.staged_pipes import StagedPipes
from cassq.errors import PipeLostError
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.queue_record import QueueRecord, Written
from cassq.model.settings import QueueSettings
from cassq.model.shelf import Shelf
from cassq.model.transaction import Advance, Retire, Transaction
from cassq.storage.sqlite.storage import SqliteStorage


class Scene:
    """The staged pipes of a queue."""

    def __init__(self):
        self.clock = HandClock()
        self.storage = SqliteStorage(None, is_synced=False, clock=self.clock)
        self.record = QueueRecord("q", new_token(), QueueSettings(), new_token())
        assert self.storage.change_queue(None, self.record)
        self.context = context_of(self.storage, QueueSettings(), self.clock)
        self.list = StagedList(self.context)

    def stage(self):
        staged = StagedPipes(self.context, "loader/1/a task")
        staged.add(b"body")
        return staged.close()[0]

    @property
    def staged(self):
        return {entry.pipe for entry in self.list.read().entries}


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.storage.close()


def test_of_a_pipe_that_was_published_only_the_entry_goes(scene):
    published, failed = scene.stage(), scene.stage()
    entries = scene.list.read().entries  # as a database that forgets deletions shows them
    scene.list.publish({published})
    assert scene.list.remove(entries) == 1
    assert scene.storage.load_pipe(published)
    assert not scene.storage.load_pipe(failed)
    assert (scene.staged, scene.list.published([published, failed])) == (set(), {published})


def test_nothing_but_what_is_staged_still_is_published(scene):
    gone, staged = new_pipe_id(), scene.stage()
    scene.list.publish({gone, staged})
    assert scene.list.published([gone, staged]) == {staged}


def test_a_manifest_is_not_among_what_may_be_removed(scene):
    pipe = scene.stage()
    manifest = write_manifest(scene.context, "loader/1/manifest", [pipe])
    record = QueueRecord(
        "q", new_token(), QueueSettings(), new_token(), writers={"loader": Written(1, manifest)}
    )
    assert {entry.pipe for entry in scene.list.undecided(record)} == {pipe}
    assert {entry.pipe for entry in scene.list.undecided(scene.record)} == {pipe, manifest}


def test_pipes_that_are_to_be_published_must_be_there(scene):
    pipe = scene.stage()
    scene.list.check_are_there([pipe])
    with pytest.raises(PipeLostError, match="not there any more"):
        scene.list.check_are_there([pipe, new_pipe_id()])
    scene.clock.seconds += TRUSTED_S + 1
    scene.list.check_are_there([pipe])
    scene.clock.seconds += PUBLISH_WITHIN_S
    with pytest.raises(PipeLostError, match="older than 24 hours"):
        scene.list.check_are_there([pipe])


def test_an_old_entry_without_its_pipe_proves_nothing(scene, monkeypatch):
    pipe = scene.stage()
    monkeypatch.setattr(scene.storage, "load_pipe", lambda _pipe: None)
    scene.list.check_are_there([pipe])
    assert not scene.list.is_standing([pipe])
    scene.clock.seconds += TRUSTED_S + 1
    with pytest.raises(PipeLostError, match="not there any more"):
        scene.list.check_are_there([pipe])


def test_an_old_entry_of_a_pipe_that_retired_proves_nothing(scene):
    # Given a pipe that was published and retired, whose staged entry came back
    pipe = scene.stage()
    head = scene.storage.load_pipe(pipe).head
    passed = replace(head, op=new_token(), cursor=head.last, floor=head.last, read_from=head.last + 1)
    for change in (Advance(head.op, passed), Retire(passed.op, new_token())):
        assert scene.storage.transact(pipe, Transaction(change)).is_applied
    scene.clock.seconds += TRUSTED_S + 1

    assert not scene.list.is_standing([pipe])
    with pytest.raises(PipeLostError, match="not there any more"):
        scene.list.check_are_there([pipe])


@pytest.mark.parametrize("count", [1, 1000, 2500])
def test_a_manifest_names_every_pipe(scene, count):
    pipes = [new_pipe_id() for _ in range(count)]
    manifest = write_manifest(scene.context, "loader/1/manifest", pipes)
    assert read_manifest(scene.storage, manifest) == set(pipes)
    scene.storage.delete_pipe("q", manifest, shelf=Shelf.STAGED)
    assert read_manifest(scene.storage, manifest) == set()

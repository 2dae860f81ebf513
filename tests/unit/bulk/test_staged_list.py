"""What entries of the staged list prove, and what is deleted by them."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from support.clocks import HandClock
from support.contexts import context_of

from cassq.bulk.manifest import read_manifest, write_manifest
from cassq.bulk.staged_list import PUBLISH_WITHIN_S, TRUSTED_S, StagedList
from cassq.bulk.staged_pipes import StagedPipes
from cassq.errors import PipeLostError
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.pipe import PipeEntry
from cassq.model.queue_record import QueueRecord, Written
from cassq.model.schedule import SOON, SOON_S
from cassq.model.settings import QueueSettings
from cassq.model.shelf import Shelf
from cassq.model.transaction import Advance, Retire, Transaction
from cassq.storage.forms import BatchQuery
from cassq.storage.sqlite.storage import SqliteStorage
from cassq.storage.witnessed import witnessed

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


class Scene:
    """The staged pipes of a queue."""

    def __init__(self, **settings):
        self.clock = HandClock()
        self.storage = witnessed(SqliteStorage(None, is_synced=False, clock=self.clock), self.clock, 1.0)
        self.record = QueueRecord("q", new_token(), QueueSettings(**settings), new_token())
        assert self.storage.change_queue(None, self.record)
        self.context = context_of(self.storage, QueueSettings(**settings), self.clock)
        self.list = StagedList(self.context)

    def stage(self, **options):
        staged = StagedPipes(self.context, "loader/1/a task")
        staged.add(b"body", **options)
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
    manifest = write_manifest(scene.context, "loader/1/manifest", [PipeEntry(pipe, "loader")])
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


@pytest.mark.parametrize(
    ("options", "shelf"),
    [
        ({}, Shelf.READY),
        ({"priority": 3, "type": "refund", "ttl": timedelta(minutes=1)}, Shelf.READY),
        ({"key": "a"}, Shelf.KEYED),
        ({"due": LONG_AGO}, Shelf.DUE),
        ({"delay": timedelta(seconds=SOON_S - 1)}, Shelf.DUE),
        ({"delay": timedelta(seconds=SOON_S + 1)}, Shelf.SCHEDULED),
    ],
    ids=str,
)
def test_a_pipe_is_published_into_the_list_for_what_its_messages_have(scene, options, shelf):
    plain, pipe = scene.stage(), scene.stage(**options)
    entries = scene.list.read().entries
    scene.list.publish({plain, pipe})
    found = scene.storage.list_pipes("q", shelf=shelf).entries
    assert pipe in {entry.pipe for entry in found}
    assert scene.list.published([plain, pipe, new_pipe_id()]) == {plain, pipe}
    # And of what is listed there only the staged entry goes
    assert scene.list.remove(entries) == 0
    assert scene.storage.load_pipe(pipe)


def test_what_was_moved_since_it_was_published_is_known_to_be_published(scene):
    pipe = scene.stage(delay=timedelta(hours=1))
    scene.list.publish({pipe})
    scene.storage.publish_pipes(
        "q", scene.storage.list_pipes("q", shelf=Shelf.SCHEDULED).entries, Shelf.MOVED
    )
    assert scene.list.published([pipe]) == {pipe}


def test_no_older_cassq_can_read_a_manifest_that_names_pipes_for_other_lists(scene):
    for entry, is_readable in (
        (PipeEntry(new_pipe_id(), "loader", 3, type="refund"), True),
        (PipeEntry(new_pipe_id(), "loader", slot=0), False),
        (PipeEntry(new_pipe_id(), "loader", due_class=SOON), False),
    ):
        manifest = write_manifest(scene.context, "loader/1/manifest", [entry])
        assert read_manifest(scene.storage, manifest) == {entry.pipe}
        # As it took each 16 bytes of each body for an id
        bodies = scene.storage.read_batches(manifest, BatchQuery(limit=1))[0].bodies
        assert all(len(body) % 16 == 0 for body in bodies) is is_readable


@pytest.mark.parametrize("due_class", [0, SOON])
@pytest.mark.parametrize("count", [1, 1000, 2500])
def test_a_manifest_names_every_pipe(scene, count, due_class):
    pipes = [new_pipe_id() for _ in range(count)]
    entries = [PipeEntry(pipe, "loader", due_class=due_class) for pipe in pipes]
    manifest = write_manifest(scene.context, "loader/1/manifest", entries)
    assert read_manifest(scene.storage, manifest) == set(pipes)
    scene.storage.delete_pipe("q", manifest, shelf=Shelf.STAGED)
    assert read_manifest(scene.storage, manifest) == set()


@pytest.mark.parametrize(
    ("how", "options", "groups"),
    [
        ({"pop_width": 1}, {}, [2, 1]),
        ({}, {}, [3]),
        ({"keys": "ordered"}, {"key": "a"}, [2, 1]),
        ({"keys": "exclusive"}, {"key": "a"}, [3]),
    ],
)
def test_no_younger_pipe_of_a_task_is_listed_with_an_older_one_where_that_is_their_turn(
    monkeypatch, how, options, groups
):
    # Given two pipes of one task, and one of another
    scene = Scene(**how)
    pipes = []
    for task in "aab":
        staged = StagedPipes(scene.context, f"loader/1/{task}")
        staged.add(b"body", **options)
        pipes += staged.close()
    told = []
    publish = scene.storage.publish_pipes
    monkeypatch.setattr(
        scene.storage,
        "publish_pipes",
        lambda queue, entries, to: (
            told.append([each.pipe for each in entries]),
            publish(queue, entries, to),
        ),
    )

    scene.list.publish(set(pipes))

    assert [len(group) for group in told] == groups
    assert [pipe for group in told for pipe in group if pipe != pipes[2]] == pipes[:2]
    scene.storage.close()

"""Ways in which the calls of two processes follow each other: one change of turns there, and one back."""

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from itertools import product

import pytest
from support.stepped import Fault, Steps
from support.topic_scene import TopicScene, hand_out

from cassq.errors import (
    CassqError,
    OffsetGoneError,
    OutcomeUnknownError,
    PartitionLostError,
    StorageUnavailableError,
    TopicNotFoundError,
)
from cassq.model.topic import TopicState
from cassq.topics.group import Group
from cassq.topics.held_partition import HeldPartition
from cassq.topics.log_end import LogEnd
from cassq.topics.log_reader import LogReader
from cassq.topics.publish_request import Numbered
from cassq.topics.retention import Retention
from cassq.topics.wishes import Wishes

#: A message of this size fills a segment.
FULL = b"x" * 2000

FAULTS = (
    None,
    *(Fault(0, "link", number, kind) for number, kind in product((0, 1), ("lost", "unanswered", "refused"))),
    *(Fault(0, "link", number, "late", later) for number, later in product((0, 1), (1, 2, 3, 5))),
    *(Fault(0, "create_segment", 0, kind) for kind in ("lost", "unanswered", "late")),
)


#: So many plans share the faults: all of them with each plan would take minutes.
SHARE = 7


class Log(TopicScene):
    """One partition, what ever was in it, and what was told of it."""

    def __init__(self, **settings):
        super().__init__(segment_bytes=1024, **settings)
        self.ever = {}
        self.told = {}
        self.refused = set()
        self.is_ended = False
        self.after_the_end = []
        real = self.rows.link

        def link(place, seen, wanted, batches=(), writers=()):
            is_applied = real(place, seen, wanted, batches, writers)
            for batch in batches if is_applied else ():
                for number, body in enumerate(batch.bodies):
                    assert batch.first + number not in self.ever
                    self.ever[batch.first + number] = body
                    if self.is_ended:
                        self.after_the_end.append(body)
            return is_applied

        self.rows.link = link

    def publisher(self, who, bodies, *, is_named=True):
        """Return a script that publishes bodies, each again until it hears what became of it."""

        def run(storage):
            end = LogEnd(self.context_of(storage), 0)
            for number, body in enumerate(bodies):
                for _ in range(5):
                    request = self.request(body, Numbered(who, number) if is_named else None)
                    try:
                        end.publish([request], request.deadline)
                        self.told[body] = request.future.result(0)
                    except OutcomeUnknownError:
                        pass
                    except TopicNotFoundError:
                        if not is_named:
                            self.refused.add(body)
                        return
                    except CassqError:
                        if not is_named:
                            self.refused.add(body)
                    if is_named and body not in self.told:
                        continue
                    break

        return run

    def check(self):
        """Check what was told, and what is there."""
        counts = Counter(self.ever.values())
        assert all(count == 1 for body, count in counts.items() if body != FULL), counts
        assert not self.refused & counts.keys()
        for body, position in self.told.items():
            assert self.ever[position.offset] == body
        assert not self.after_the_end
        assert sorted(self.ever) == list(range(1, len(self.ever) + 1))
        listed = self.rows.list_segments(self.key).segments
        if listed:
            found = self.read(listed[0].first)
            assert {each.offset: each.body for each in found} == {
                offset: body for offset, body in self.ever.items() if offset >= listed[0].first
            }


def plans(first, second):
    """Return plans: so many calls of one script, so many of the other, and then the first one to its end."""
    return product(range(first), range(1, second))


def shared(first, second, faults):
    """Return each plan with some of the faults."""
    return [
        (plan, fault)
        for place, plan in enumerate(plans(first, second))
        for fault in faults[place % SHARE :: SHARE]
    ]


def explore(make, first, second, faults=FAULTS):
    """Run two scripts by every plan, each with some of the faults: all of them have their turn."""
    for (begun, between), fault in shared(first, second, faults):
        log = Log()
        scripts = make(log)
        try:
            Steps(log.rows, [(0, begun), (1, between), (0, 1_000)], fault).run(*scripts)
            log.check()
            assert log.refused.isdisjoint(log.ever.values())
            assert not any(isinstance(each, Exception) for each in log.refused)
        except Exception as error:
            raise AssertionError(f"after {begun} calls {between} of the other, and {fault}") from error


def heard(scene, run):
    """Return a script whose errors are heard, and kept where they are none that have to be reckoned with."""

    def script(storage):
        try:
            run(storage)
        except (OutcomeUnknownError, PartitionLostError, StorageUnavailableError, TopicNotFoundError):
            pass
        except Exception as error:
            scene.refused.add(error)

    return script


@pytest.mark.parametrize("is_named", [True, False])
def test_two_publishers(is_named):
    explore(
        lambda log: (
            log.publisher("a", [b"a1" + FULL, b"a2"], is_named=is_named),
            log.publisher("b", [b"b1" + FULL, b"b2"], is_named=is_named),
        ),
        14,
        12,
    )


@pytest.mark.parametrize("is_named", [True, False])
def test_a_publisher_and_who_clears(is_named):
    explore(
        lambda log: (
            log.publisher("a", [b"a1", b"a2" + FULL, b"a3"], is_named=is_named),
            heard(log, lambda storage: Retention(log.context_of(storage), 0).clear()),
        ),
        14,
        14,
    )


@pytest.mark.parametrize("is_named", [True, False])
def test_a_publisher_and_who_deletes_the_topic(is_named):
    def make(log):
        def delete(storage):
            context = log.context_of(storage)
            context.known.change(lambda seen: replace(seen, state=TopicState.DELETED))
            Retention(context, 0).end()
            log.is_ended = True

        return log.publisher("a", [b"a1", b"a2" + FULL, b"a3"], is_named=is_named), heard(log, delete)

    explore(make, 14, 14)


def test_a_reader_and_who_publishes_and_clears():
    def make(log):
        log.publish(b"first")
        log.publish(b"second")
        read = {}

        def reader(storage):
            follower = LogReader(log.context_of(storage), 0, 1)
            for _ in range(4):
                try:
                    for each in follower.read():
                        assert each.offset not in read
                        read[each.offset] = each.body
                        assert log.ever[each.offset] == each.body
                        assert each.offset == follower.next - 1 or each.offset < follower.next
                except OffsetGoneError as error:
                    assert not read or error.wanted > max(read)
                    listed = log.rows.list_segments(log.key).segments
                    assert error.wanted < listed[-1].first
                    follower.seek(error.oldest)

        def others(storage):
            log.publisher("b", [b"b1", b"b2" + FULL, b"b3"])(storage)
            Retention(log.context_of(storage), 0).clear()
            log.publisher("c", [b"c1"])(storage)

        return heard(log, reader), heard(log, others)

    explore(make, 14, 30, (None,) * SHARE)


class Members(TopicScene):
    """A group, how its progress moved, and what its members were handed out and ended."""

    def __init__(self):
        super().__init__()
        for each in range(3):
            self.publish(b"%d" % each)
        self.id = self.group().ensure("earliest")
        self.done = set()
        self.refused = set()
        self.moves = []
        real = self.rows.change_progress

        def change(group, seen, wanted):
            is_applied = real(group, seen, wanted)
            if is_applied:
                self.moves.append((seen, wanted))
                if wanted.owner:
                    assert wanted.next >= seen.next, "it moved back"
                    assert set(range(seen.next, wanted.next)) <= self.done, "it was skipped"
                    assert wanted.epoch == seen.epoch + (wanted.next == seen.next)
            return is_applied

        self.rows.change_progress = change

    def member(self, name):
        """Return a script that takes the partition over, and works on what it gets."""

        def run(storage):
            held = HeldPartition(self.context_of(storage), self.id, name, Wishes(lambda _: True))
            for _ in range(3):
                if held.take_over(0):
                    break
            else:
                return
            for _ in range(3):
                for message in hand_out(held):
                    self.done.add(message.offset)
                    message.done()
                    with suppress(OutcomeUnknownError, StorageUnavailableError):
                        held.commit()
            held.commit_all()

        return heard(self, run)


PROGRESS_FAULTS = (
    None,
    *(
        Fault(0, "change_progress", number, kind)
        for number, kind in product(range(4), ("lost", "unanswered", "refused"))
    ),
    *(Fault(0, "change_progress", number, "late", later) for number, later in product(range(4), (1, 2, 4))),
)


@pytest.mark.parametrize("other", ["a member", "a reset", "a deletion"])
def test_a_member_and(other):
    def make(members):
        scripts = {
            "a member": members.member("b"),
            "a reset": heard(
                members, lambda storage: Group(members.context_of(storage), "g").reset("earliest")
            ),
            "a deletion": heard(members, lambda storage: Group(members.context_of(storage), "g").delete()),
        }
        return members.member("a"), scripts[other]

    for (begun, between), fault in shared(10, 8, PROGRESS_FAULTS):
        members = Members()
        Steps(members.rows, [(0, begun), (1, between), (0, 1_000)], fault).run(*make(members))
        assert not members.refused, f"after {begun} calls {between} of the other, and {fault}"

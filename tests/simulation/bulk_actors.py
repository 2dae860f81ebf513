"""What bulk writers do in a simulated history: stage, publish, repeat and discard; and what must hold then.

Two processes of one writer write the same batches, each its own attempts at them, as when a query is started
again while its driver lives; between them they write single batches of their own. Nodes forget deletions of
staged entries at any time. What must not break: of each batch one attempt is seen, whole, or none; and the
checker judges what its writer was told.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol
from uuid import UUID

from actors import Stage
from cluster import Cluster
from replicas import Mutation
from scheduler import Process

from cassq.bulk import staged_list, staging
from cassq.bulk.writers import ONCE
from cassq.errors import CassqError, ClosedError, OutcomeUnknownError, PipeLostError, UnavailableError
from cassq.model import ids
from cassq.queue import Queue
from cassq.reaping import housekeeping
from cassq.verification.ledger import Kind, Line

#: The ages of staged pipes, in the seconds of a history; each leaves the others' order as it is.
AGES = {
    (staged_list, "PUBLISH_WITHIN_S"): 2.0,
    (staging, "KEPT_S"): 4.0,
    (staging, "FORGET_S"): 0.5,
    (staging, "DECIDE_WITHIN_S"): 1.0,
    (staged_list, "TRUSTED_S"): -1.0,
    (staging, "LOSERS_WITHIN_S"): 1.0,
}


class BulkStage(Stage, Protocol):
    """The history, as bulk writers see it."""

    cluster: Cluster
    haste: float
    #: Of each writer and batch that a driver was told of: another attempt at it counts.
    told_of_others: set[tuple[str, int]]


@contextmanager
def hurried() -> Iterator[None]:
    """Let what is staged get old within a history."""
    before = {(module, name): getattr(module, name) for module, name in AGES}
    tidy_s, housekeeping.TIDY_S = housekeeping.TIDY_S, 1.0
    for (module, name), seconds in AGES.items():
        setattr(module, name, seconds)
    try:
        yield
    finally:
        housekeeping.TIDY_S = tidy_s
        for (module, name), seconds in before.items():
            setattr(module, name, seconds)


def write_all(stage: BulkStage, process: Process, batches: int) -> None:
    """Write so many batches of the common writer, and now and then one of one's own."""
    store, queue = stage.open(process)
    dice = stage.world.dice
    for number in range(dice.choice((1, 1, 2)), batches + 1):  # one that is ahead meets what is unfinished
        if dice.random() < 0.4 * (1 - stage.haste):
            _write(stage, process, queue, f"{ONCE}{ids.new_pipe_id()}", 0)
        _write(stage, process, queue, "loader", number)
        stage.world.sleep(dice.choice((0.0, 0.1, 0.5)) * (1 - stage.haste))
    store.close()


def _write(stage: BulkStage, process: Process, queue: Queue, writer: str, batch: int) -> None:
    dice = stage.world.dice
    bodies = [f"{writer}/{batch}/{process.name}/{number}" for number in range(dice.choice((1, 3, 6)))]
    stage.note(process.name, Kind.ATTEMPTED, bodies)
    pipes = _stage(stage, process, queue, writer, batch, bodies)
    if pipes is None:
        stage.note(process.name, Kind.REFUSED, bodies)
        return
    rests = (0.0, 0.0, 0.0, 1.5) if stage.haste else (0.0, 0.0, 0.2, 1.5)
    stage.world.sleep(dice.choice(rests))
    kind = _publish(stage, queue, writer, batch, pipes)
    if kind is Kind.ACKNOWLEDGED:
        stage.keys.note_told(bodies)
    stage.note(process.name, kind, bodies)


def _stage(
    stage: BulkStage, process: Process, queue: Queue, writer: str, batch: int, bodies: Iterable[str]
) -> Collection[UUID] | None:
    """Stage an attempt; None when that failed, and its pipes are nobody's."""
    try:
        task = queue.staging.open(writer, batch, process.name)
    except UnavailableError:
        return None
    try:
        for body in bodies:
            priority = stage.priority_of([body])
            key = stage.keys.key_of(f"{writer}/{batch}/{process.name}", [body], priority, None)
            if priority or key:
                task.add(body.encode(), priority=priority, key=key)
            else:
                task.add(body.encode())
        return task.close()
    except (UnavailableError, OutcomeUnknownError, PipeLostError, ClosedError):
        with suppress(CassqError):
            task.discard()
        return None


def _publish(stage: BulkStage, queue: Queue, writer: str, batch: int, pipes: Collection[UUID]) -> Kind:
    """Publish, again after errors, or give up; return what is known of it in the end."""
    dice = stage.world.dice
    kind = Kind.UNKNOWN_PUSH
    is_hasty = stage.haste > 0 and dice.random() < stage.haste
    for _ in range(1 if is_hasty else dice.choice((1, 1, 2, 6))):
        _forget_deletions(stage)
        try:
            is_ours = queue.staging.publish(writer, batch, tuple(pipes))
        except PipeLostError:
            return Kind.REFUSED
        except (UnavailableError, OutcomeUnknownError):
            # Where it is cut off it goes on as soon as it is not.
            stage.world.sleep(0.1 if is_hasty else dice.choice((0.0, 0.1, 1.0)))
            continue
        if not is_ours:
            stage.told_of_others.add((writer, batch))
        if dice.random() < 0.7:
            return Kind.ACKNOWLEDGED if is_ours else Kind.REFUSED
        kind = Kind.ACKNOWLEDGED if is_ours else Kind.REFUSED
        stage.world.sleep(dice.choice((0.0, 0.1, 1.0)))  # and once more: that it was heard is forgotten
    if kind is Kind.UNKNOWN_PUSH and dice.random() < (0.5 if is_hasty else 0.7):
        _forget_deletions(stage)
        with suppress(UnavailableError, OutcomeUnknownError):
            queue.staging.discard(writer, batch, pipes)
    return kind


def _forget_deletions(stage: BulkStage) -> None:
    if stage.cluster.is_faulty and stage.world.dice.random() < 0.5:
        for replica in stage.cluster.replicas:
            replica.compact("staged")


class Decisions:
    """What the queue's record decided to publish, message by message, as it stood at that moment.

    Each of them has to be seen: whoever repeats the batch is told that it was written before.
    """

    def __init__(self, cluster: Callable[[], Cluster]) -> None:
        self._cluster = cluster
        self._messages: dict[tuple[str, int, UUID], list[str]] = {}
        # What a pipe had when it was decided on first: a batch that is repeated may name one that is gone.
        self._had: dict[UUID, list[str]] = {}

    def hear(self, mutation: Mutation) -> None:
        """Hear of a transaction that was applied."""
        if mutation.table != "queues":
            return
        for row in mutation.rows.values():
            writers = row.cells["writers"][1] if "writers" in row.cells else {}
            for writer, (batch, manifest) in dict(writers).items():
                if manifest and (writer, batch, manifest) not in self._messages:
                    self._messages[writer, batch, manifest] = self._read(manifest)

    def _read(self, manifest: UUID) -> list[str]:
        named = b"".join(body for body in self._cluster().bodies(manifest) if len(body) % 16 == 0)
        pipes = [UUID(bytes=named[place : place + 16]) for place in range(0, len(named), 16)]
        for pipe in pipes:
            if pipe not in self._had:
                self._had[pipe] = [body.decode() for body in self._cluster().bodies(pipe)]
        return [body for pipe in pipes for body in self._had[pipe]]

    def unseen(self, lines: Iterable[Line]) -> Iterator[str]:
        """Tell which messages were decided to be published, and were never seen."""
        seen = {line.message for line in lines if line.kind is Kind.DELIVERED}
        for (writer, batch, _), messages in self._messages.items():
            missing = [message for message in messages if message not in seen]
            if missing or not messages:
                yield f"batch {writer}/{batch} was decided, and these were never seen: {missing or 'all'}"


def judge_batches(lines: Iterable[Line], told_of_others: Iterable[tuple[str, int]]) -> list[str]:
    """Tell which batches were seen in part, of two attempts, or of none though a driver was told of one.

    A batch that its writer has passed counts as published, whether it ever was; the last one was.
    """
    attempts: dict[str, set[str]] = defaultdict(set)
    seen: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        attempt = line.message.rpartition("/")[0]
        if attempt and line.kind in (Kind.ATTEMPTED, Kind.DELIVERED):
            (attempts if line.kind is Kind.ATTEMPTED else seen)[attempt].add(line.message)
    broken = [
        f"of {attempt} {len(bodies)} of {len(attempts[attempt])} messages were seen"
        for attempt, bodies in seen.items()
        if bodies != attempts[attempt]
    ]
    batches: dict[str, list[str]] = defaultdict(list)
    for attempt in seen:
        batches[attempt.rpartition("/")[0]].append(attempt)
    broken += [
        f"batch {batch} was seen of {len(each)} attempts" for batch, each in batches.items() if len(each) > 1
    ]
    last: dict[str, int] = {}
    for attempt in attempts:
        writer, number, _ = attempt.split("/")
        last[writer] = max(last.get(writer, 0), int(number))
    return broken + [
        f"batch {writer}/{batch} was told as published, and of no attempt anything was seen"
        for writer, batch in sorted(told_of_others)
        if batch == last[writer] and f"{writer}/{batch}" not in batches
    ]

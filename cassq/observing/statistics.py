"""Counts what a queue holds and what went through it.

Owns how figures come about. Totals of retired pipes come from the queue's record, the rest from the
head, runs and marks of each live pipe: one small read a pipe, never one a message. Exact once nothing is in
flight; while pipes retire under the count, it counts again.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.model.key import slot_claim
from cassq.model.pipe import PipeEntry, PipeState, RunState
from cassq.model.progress import Progress
from cassq.model.queue_record import QueueRecord, Sample
from cassq.model.schedule import is_pile
from cassq.model.shelf import Shelf
from cassq.model.tally import Tally
from cassq.observing.dead_letters import LETTERS_MAX
from cassq.observing.figures import PipeStats, PriorityStats, QueueStats, TypeStats
from cassq.pipes.batch_reader import read_all
from cassq.pipes.dues import due_after
from cassq.pipes.outside_view import find_newest, find_pushed, is_standing, progress_seen
from cassq.pipes.pipe_list import PipeList
from cassq.pipes.shelves import list_pipes
from cassq.runtime.reentry import alone
from cassq.storage.forms import Listing

RecordReader = Callable[[], QueueRecord]

#: Pipes read side by side.
PARALLEL = 8

#: How often a survey starts again, where pipes retire under it.
SURVEY_ATTEMPTS = 5

#: Rates are told over this window, from samples taken this far apart.
WINDOW = timedelta(seconds=60)
SAMPLE_EVERY = timedelta(seconds=5)
SAMPLES_MAX = 16


@dataclass(frozen=True, slots=True)
class PipeSurvey:
    """One pipe as a survey found it."""

    entry: PipeEntry
    state: PipeState
    progress: Progress
    pushed: int
    tally: Tally
    not_due: int = 0

    def count_out(self) -> tuple[int, int, int]:
        """Return how many messages wait, are pending and are delayed."""
        progress, head = self.progress, self.state.head
        waiting = progress.count_left(head.cursor + 1, self.pushed) if self.pushed > head.cursor else 0
        pending = delayed = 0
        for run in progress.runs.values():
            left = progress.count_left(run.first, run.last)
            if run.state is RunState.LEASED:
                pending += left
            elif run.is_due(self.state.now_ms):
                waiting += left
            else:
                delayed += left
        return waiting - self.not_due, pending, delayed + self.not_due


class _Held(NamedTuple):
    """What there is now of some messages, and the age of the oldest."""

    waiting: int
    pending: int
    delayed: int
    oldest_age: timedelta | None


class Statistics:
    """Surveys one queue."""

    def __init__(self, context: QueueContext) -> None:
        self._storage = context.storage
        self._context = context
        self._queue = context.queue
        self._pipes = PipeList(context)
        self._listing = threading.RLock()

    def survey(self, read_record: RecordReader) -> tuple[QueueRecord, Listing, list[PipeSurvey]]:
        """Read the record and every live pipe that the record's totals do not hold yet."""
        for _ in range(SURVEY_ATTEMPTS):
            record = read_record()
            # What moves on meanwhile moves on to those that are read later.
            with alone(self._listing, "stats()"):
                listing = self._pipes.refresh(record.publications)
            others = list_pipes(self._context, Shelf.SCHEDULED, Shelf.DUE, Shelf.MOVED, Shelf.KEYED)
            listed = {entry.pipe: entry for entry in (*listing.entries, *others)}
            pipes = [entry for entry in listed.values() if entry.pipe not in record.counted]
            surveys = list(self._read(pipes))
            missing = {target for each in surveys for target in each.progress.targets} - listed.keys()
            if missing:  # messages were moved under the count, or are moved and not listed yet
                staged = list_pipes(self._context, Shelf.SORTED)
                surveys += self._read([entry for entry in staged if entry.pipe in missing])
                missing -= {each.entry.pipe for each in surveys}
            if any(self._storage.load_pipe(pipe) for pipe in missing):
                continue
            # A pipe retires only after its counts entered the totals: the same totals, the same pipes.
            after = read_record()
            if after.totals == record.totals and after.counted == record.counted:
                return after, listing, surveys
        return record, listing, surveys

    def queue_stats(self, read_record: RecordReader) -> QueueStats:
        """Return the queue's figures."""
        record, listing, surveys = self.survey(read_record)
        total = sum((survey.tally for survey in surveys), record.totals)
        kinds = self._by_kind(surveys, listing.now_ms)
        priorities, types = {kind[0] for kind in kinds}, {kind[1] for kind in kinds}
        held = _sum(kinds.values())
        now = Sample(listing.now_ms, total.pushed, total.popped, total.committed)
        push_rate, pop_rate, commit_rate = rates_between(record.samples, now)
        return QueueStats(
            queue=self._queue,
            state=record.state.value,
            waiting=held.waiting,
            pending=held.pending,
            delayed=held.delayed,
            pushed=total.pushed,
            popped=total.popped,
            committed=total.committed,
            dead=total.dead,
            dead_letters=self._storage.count_dead(self._queue, LETTERS_MAX),
            purged=total.purged,
            expired=total.expired,
            rolled_back=total.rolled_back,
            push_rate=push_rate,
            pop_rate=pop_rate,
            commit_rate=commit_rate,
            oldest_age=held.oldest_age,
            pipes=len(surveys),
            priorities=tuple(
                PriorityStats(priority, *_sum(kinds[kind] for kind in kinds if kind[0] == priority))
                for priority in sorted(priorities, reverse=True)
            ),
            types=tuple(
                TypeStats(name or None, *_sum(kinds[kind] for kind in kinds if kind[1] == name))
                for name in sorted(types)
            ),
        )

    def pipe_stats(self, read_record: RecordReader, owners: Mapping[UUID, str]) -> list[PipeStats]:
        """Return the figures of each live pipe, oldest first."""
        _, listing, surveys = self.survey(read_record)
        stats = []
        incarnation = self._context.record.incarnation
        for survey in surveys:
            entry = survey.entry
            claim = slot_claim(incarnation, entry.slot) if entry.is_keyed else entry.pipe
            waiting, pending, delayed = survey.count_out()
            is_empty = Progress(survey.state).is_over  # not while dead letters are still to be written
            stats.append(
                PipeStats(
                    pipe=entry.pipe,
                    phase="E" if is_empty else survey.state.head.phase.short,
                    pushed=survey.tally.pushed,
                    popped=survey.tally.popped,
                    committed=survey.tally.committed,
                    waiting=waiting,
                    pending=pending,
                    delayed=delayed,
                    owner=owners.get(claim),
                    pusher=entry.pusher,
                    priority=entry.priority,
                    type=entry.type or None,
                    slot=entry.slot if entry.is_keyed else None,
                    age=_age(listing.now_ms, entry.created_at_ms),
                )
            )
        return stats

    def sample(self, read_record: RecordReader) -> Sample | None:
        """Return a sample to remember, or None when the last one is young or nothing has moved."""
        record, listing, surveys = self.survey(read_record)
        total = sum((survey.tally for survey in surveys), record.totals)
        last = record.samples[-1] if record.samples else None
        now = Sample(listing.now_ms, total.pushed, total.popped, total.committed)
        if last and (
            now.at_ms - last.at_ms < SAMPLE_EVERY / timedelta(milliseconds=1)
            or (now.pushed, now.popped, now.committed) == (last.pushed, last.popped, last.committed)
        ):
            return None
        return now

    def _read(self, pipes: Sequence[PipeEntry]) -> Iterator[PipeSurvey]:
        if len(pipes) == 1:
            found = [self._read_one(pipes[0])]
        else:
            try:
                with ThreadPoolExecutor(PARALLEL, thread_name_prefix="cassq-survey") as pool:
                    found = list(pool.map(self._read_one, pipes))
            except RuntimeError:  # the interpreter is exiting, and no new threads may start
                found = list(map(self._read_one, pipes))
        return (survey for survey in found if survey)

    def _read_one(self, entry: PipeEntry) -> PipeSurvey | None:
        state = self._storage.load_pipe(entry.pipe)
        if not is_standing(state):
            return None  # what was retired is in the totals
        pushed = find_pushed(self._storage, entry.pipe, state.head)
        state = state.seen_at(pushed)
        progress = progress_seen(state, self._context.settings.max_attempts)
        not_due = self._count_not_due(entry, state, progress, pushed) if entry.due_class else 0
        return PipeSurvey(entry, state, progress, pushed, progress.tally(pushed), not_due)

    def _count_not_due(self, entry: PipeEntry, state: PipeState, progress: Progress, pushed: int) -> int:
        """Return how many of those that were never handed out are due later."""
        head = state.head
        if entry.shelf in {Shelf.SCHEDULED, Shelf.SORTED}:
            return progress.count_left(head.cursor + 1, pushed)
        batches = read_all(self._storage, entry.pipe, pushed, is_outline=True, read_from=head.read_from)
        later = (seq for seq, _ in due_after(batches, head.cursor, state.now_ms))
        if is_pile(entry.due_class):  # sorted
            return progress.count_left(next(later, pushed + 1), pushed)
        return sum(not progress.is_ended(seq) for seq in later)

    def _by_kind(self, surveys: Sequence[PipeSurvey], now_ms: int) -> dict[tuple[int, str], _Held]:
        """Return what there is of each priority and type."""
        kinds: dict[tuple[int, str], list[PipeSurvey]] = {}
        for survey in surveys:
            kinds.setdefault((survey.entry.priority, survey.entry.type), []).append(survey)
        held = {}
        for kind, of_it in kinds.items():
            oldest_ms = self._find_oldest(of_it)
            age = None if oldest_ms is None else _age(now_ms, oldest_ms)
            held[kind] = _sum(_Held(*survey.count_out(), age) for survey in of_it)
        return held

    def _find_oldest(self, surveys: Sequence[PipeSurvey]) -> int | None:
        """Return when the oldest message that has not ended was pushed; reads little: old pipes first."""
        oldest: int | None = None
        for survey in sorted(surveys, key=lambda survey: survey.entry.created_at_ms):
            if oldest is not None and survey.entry.created_at_ms >= oldest:
                break
            first = survey.progress.first_left
            if first > survey.pushed:
                continue
            found = find_newest(self._storage, survey.entry.pipe, first)
            if found and found.pushed_at_ms is not None:
                # What is due counts from then on, and what is not due is not late.
                since_ms = min(found.dues) if found.dues else found.pushed_at_ms
                if since_ms <= survey.state.now_ms:
                    oldest = min(oldest or since_ms, since_ms)
        return oldest


def rates_between(samples: Sequence[Sample], now: Sample) -> tuple[float, float, float]:
    """Return pushed, popped and committed per second since the sample that began the window.

    Samples are taken only while something moves, so the last one from before the window still tells how
    things stood when it began.
    """
    if not samples:
        return 0.0, 0.0, 0.0
    begin_ms = now.at_ms - WINDOW / timedelta(milliseconds=1)
    before = [sample for sample in samples if sample.at_ms <= begin_ms]
    base = before[-1] if before else samples[0]
    seconds = (now.at_ms - max(base.at_ms, begin_ms)) / 1000
    if seconds <= 0:
        return 0.0, 0.0, 0.0
    return (
        max(0, now.pushed - base.pushed) / seconds,
        max(0, now.popped - base.popped) / seconds,
        max(0, now.committed - base.committed) / seconds,
    )


def _sum(held: Iterable[_Held]) -> _Held:
    parts = list(held)
    ages = [part.oldest_age for part in parts if part.oldest_age is not None]
    counts = (sum(part.waiting for part in parts), sum(part.pending for part in parts))
    return _Held(*counts, sum(part.delayed for part in parts), max(ages, default=None))


def _age(now_ms: int, then_ms: int) -> timedelta:
    return timedelta(milliseconds=max(0, now_ms - then_ms))

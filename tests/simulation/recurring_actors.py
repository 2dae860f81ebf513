"""What applications do in a simulated history with schedules: set, set again, alter and delete them.

What must not break: the watch hears of each call before it begins, and of what its caller was told.
"""

from contextlib import suppress
from typing import Protocol

from actors import Stage
from cluster import Cluster
from recurrence_watch import Call, RecurrenceWatch, cron_of
from scheduler import Process

from cassq.errors import OutcomeUnknownError, ScheduleNotFoundError, UnavailableError
from cassq.queue import Queue

#: What is asked for again after an error is asked for so often at most.
TRIES = 8


class RecurringStage(Stage, Protocol):
    """The history, as those see it who set schedules."""

    cluster: Cluster
    recurring: RecurrenceWatch


def set_schedules(
    stage: RecurringStage, process: Process, names: int, periods_s: tuple[int, ...], times: int
) -> None:
    """Set so many schedules, then alter, repeat or delete them so many times in all."""
    store, queue = stage.open(process)
    dice = stage.world.dice
    current: dict[str, tuple[int, str]] = {}
    for number in range(times + names):
        if stage.is_healed:
            break
        name = f"s{number if number < names else dice.randrange(names)}"
        roll = dice.random() if number >= names else 1.0
        if roll < 0.35:
            current.pop(name, None)
            _insist(stage, queue, stage.recurring.call(name))
        else:
            period_s, body = current.get(name, (0, ""))
            if not period_s or roll < 0.6:
                period_s, body = dice.choice(periods_s), stage.recurring.new_body(name)
            elif roll < 0.8:
                body = stage.recurring.new_body(name)
            current[name] = period_s, body
            _insist(stage, queue, stage.recurring.call(name, period_s, body))
        stage.world.sleep(dice.choice((0.0, 0.0, 0.05, 0.3, 1.0, 2.0)))
        _forget_deletions(stage)
    store.close()


def _forget_deletions(stage: RecurringStage) -> None:
    """Have nodes forget deletions of staged entries, now and then."""
    if stage.cluster.is_faulty and stage.world.dice.random() < 0.3:
        for replica in stage.cluster.replicas:
            replica.compact("staged")


def end_schedules(stage: RecurringStage, queue: Queue) -> None:
    """Ask for all schedules, and delete them, now that nothing fails."""
    for schedule in list(queue.schedules):
        with suppress(ScheduleNotFoundError):  # a look finished the deletion that was told nothing of
            stage.recurring.check_told(queue.schedules.get(schedule.name))
        _do(stage, queue, stage.recurring.call(schedule.name))


def _insist(stage: RecurringStage, queue: Queue, call: Call) -> None:
    """Do what a call says, mostly again where that failed."""
    for _ in range(TRIES):
        try:
            _do(stage, queue, call)
        except (UnavailableError, OutcomeUnknownError):
            if stage.world.dice.random() < 0.15:
                return
            stage.world.sleep(0.05)
        else:
            return


def _do(stage: RecurringStage, queue: Queue, call: Call) -> None:
    if call.body:
        cron = cron_of(call.period_s)
        stage.recurring.note_set(call, queue.schedules.set(call.name, cron, call.body.encode()))
        return
    try:
        queue.schedules.delete(call.name)
    except ScheduleNotFoundError:
        stage.recurring.note_deleted(call, was_there=False)
    else:
        stage.recurring.note_deleted(call, was_there=True)

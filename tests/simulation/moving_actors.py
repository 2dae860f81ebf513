"""What somebody does in a simulated history who gives single messages another due time or priority.

What must not break: the watch hears of each call before it begins, and of what its caller was told.
"""

from contextlib import suppress
from typing import Protocol

from actors import Stage
from cluster import Cluster
from move_watch import MoveWatch
from scheduler import Process

from cassq.errors import OutcomeUnknownError, UnavailableError
from cassq.queue import Queue


class MovingStage(Stage, Protocol):
    """The history, as those see it who move messages."""

    cluster: Cluster
    moves: MoveWatch

    def say(self, words: object, who: str) -> None: ...


def move_some(stage: MovingStage, process: Process, times: int) -> None:
    """Move so many messages: those that rest, those that were moved before, and others."""
    store, queue = stage.open(process)
    dice = stage.world.dice
    moved: list[str] = []
    while times > 0 and not stage.is_healed:
        stage.world.sleep(dice.choice((0.0, 0.02, 0.1, 0.3)))
        known = list(stage.ids)
        resting = [body for body in stage.moves.resting() if body in stage.ids]
        if not known:
            continue
        times -= 1
        roll = dice.random()
        if resting and roll < 0.5:
            body = dice.choice(resting)
        elif moved and roll < 0.7:
            body = dice.choice(moved[-3:])
        else:
            body = known[-1] if roll < 0.85 else dice.choice(known)
        moved.append(body)
        _move(stage, process, queue, body)
    store.close()


def _move(stage: MovingStage, process: Process, queue: Queue, body: str) -> None:
    message_id = stage.ids[body]
    was_asleep = stage.dues.is_asleep(body) and not stage.moves.may_be_taken_back(body)
    move, options = stage.moves.begin(stage.world.dice, process, body)
    stage.say(f"moves {body}: {options}", process.name)
    is_moved: bool | None = False
    is_told = True
    try:
        if "priority" in options:
            is_moved = queue.reprioritise(message_id, **options)
        else:
            is_moved = queue.reschedule(message_id, **options)
    except OutcomeUnknownError:
        is_moved, is_told = None, False
    except UnavailableError:
        is_told = False
    stage.say(f"has moved {body}: {is_moved}", process.name)
    stage.moves.end(move, stage.dues.slow_ms, is_moved=is_moved, is_told=is_told)
    if was_asleep and is_told and not is_moved and stage.dues.is_asleep(body):
        stage.dues.check_moved(body)
    if stage.moves.is_last(move) and stage.dues.is_asleep(body) and move.least_ms is not None:
        with suppress(UnavailableError, OutcomeUnknownError):
            status = queue.status(message_id)
            is_sure = stage.moves.is_last(move) and stage.dues.is_asleep(body)
            if is_sure and not stage.moves.may_be_taken_back(body):
                stage.moves.check_status(move, status)

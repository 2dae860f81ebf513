"""What somebody does in a simulated history who takes back what was pushed.

What must not break: what is noted of a cancellation is what the library told.
"""

from contextlib import suppress

from actors import Stage, place_of
from scheduler import Process

from cassq.errors import OutcomeUnknownError, UnavailableError
from cassq.queue import Queue
from cassq.verification.cancel_rules import RUNNING
from cassq.verification.ledger import Kind


def cancel_some(stage: Stage, process: Process, times: int, in_a_row: int) -> None:
    """Try to cancel so many messages, mostly the oldest that was not tried yet, some of them twice."""
    store, queue = stage.open(process)
    dice = stage.world.dice
    tried: list[str] = []
    while times > 0 and not stage.is_healed:
        stage.world.sleep(dice.choice((0.0, 0.02, 0.1, 0.3)))
        for _ in range(in_a_row):
            fresh = [body for body in stage.ids if body not in tried]
            times -= 1
            if tried and dice.random() < 0.15:
                body = dice.choice(tried)
            elif fresh:
                body = fresh[0] if dice.random() < 0.8 else dice.choice(fresh)
                tried.append(body)
            else:
                break
            _cancel(stage, process, queue, body, is_running_meant=dice.random() < 0.15)
    store.close()


def _cancel(stage: Stage, process: Process, queue: Queue, body: str, *, is_running_meant: bool) -> None:
    message_id = stage.ids[body]
    words = RUNNING if is_running_meant else ""
    if stage.dues.is_asleep(body):
        with suppress(UnavailableError, OutcomeUnknownError):
            status = queue.status(message_id)
            stage.dues.check_status(body, status, was_asleep=stage.dues.is_asleep(body))
    stage.note(process.name, Kind.CANCELLING, [body], words=words, **place_of(message_id))
    stage.dues.note_asked(body)
    try:
        is_cancelled = queue.cancel(message_id, running=is_running_meant)
        stage.dues.check_cancel(body, is_cancelled=is_cancelled, was_asleep=stage.dues.is_asleep(body))
    except OutcomeUnknownError:
        return
    except UnavailableError:
        stage.dues.note_refused(body)
        is_cancelled = False
    kind = Kind.CANCELLED if is_cancelled else Kind.NOT_CANCELLED
    stage.note(process.name, kind, [body], **place_of(message_id))

"""`cassq status`, `history`, `cancel`, `reschedule` and `reprioritise`: one message, by its id.

Owns nothing but words.
"""

from datetime import datetime, timedelta
from typing import Any

import click

import cassq
from cassq.cli import exit_codes
from cassq.cli.output import print_figures, print_json, say
from cassq.cli.session import Session, common_options, pass_session
from cassq.cli.values import to_duration, to_time
from cassq.model.message import to_datetime
from cassq.model.past import Attempt
from cassq.model.retrying import in_one_line


@click.command()
@click.argument("queue")
@click.argument("message_id", metavar="ID")
@common_options
@pass_session
def status(session: Session, queue: str, message_id: str) -> None:
    """Tell what became of a message: its state, attempts, when it is due, why it came back, who has it."""
    with session.queue(queue) as opened:
        told = _to_json(opened.status(message_id))
    if session.is_json:
        print_json(told)
    else:
        told["reason"] = in_one_line(told["reason"])
        print_figures({name: each for name, each in told.items() if each or name != "waits_for"})


@click.command()
@click.argument("message_id", metavar="ID")
@click.option(
    "--index", "out", metavar="OUT", help="Ask the index that `cassq pipeline journal OUT` wrote first."
)
@common_options
@pass_session
def history(session: Session, message_id: str, out: str | None) -> None:
    """Tell what happened to a message of any queue, also once its pipe is gone.

    From then on the journal tells, where the queue keeps one.
    """
    found = _find_in_index(out, message_id) if out else None
    if found is None:
        with session.store() as store:
            found = store.history(message_id)
    told = {
        "id": str(found.message_id),
        "queue": found.queue,
        "pusher": found.pusher,
        **_to_json(found.status),
        "ended_at": found.ended_at and found.ended_at.isoformat(),
        "retired_at": found.retired_at and found.retired_at.isoformat(),
        "past": [_attempt_to_json(each) for each in found.past],
        "pipes": [*map(str, found.pipes)],
    }
    if session.is_json:
        print_json(told)
        return
    told["reason"], told["pipes"] = in_one_line(told["reason"]), " ".join(told["pipes"])
    past = [f"attempt {each.attempt}: {each.holder}: {in_one_line(each.reason)}" for each in found.past]
    told["past"] = "; ".join(past)
    print_figures({name: each for name, each in told.items() if each not in {None, ""}})


@click.command()
@click.argument("queue")
@click.argument("message_id", metavar="ID")
@click.option(
    "--running", is_flag=True, help="Also while a consumer has it, and without a key: it does not come again."
)
@common_options
@pass_session
def cancel(session: Session, queue: str, message_id: str, *, running: bool) -> None:
    """End one message, which is then delivered to nobody; exit code 1 where it was too late."""
    with session.queue(queue) as opened:
        _tell(session, opened, message_id, "cancelled", is_done=opened.cancel(message_id, running=running))


@click.command()
@click.argument("queue")
@click.argument("message_id", metavar="ID")
@click.option("--delay", type=to_duration, metavar="DURATION", help="Consumers get it after so long.")
@click.option("--due", type=to_time, metavar="TIME", help="Or from then on: in ISO 8601, with a time zone.")
@common_options
@pass_session
def reschedule(
    session: Session, queue: str, message_id: str, *, delay: timedelta | None, due: datetime | None
) -> None:
    """Give one message another due time; exit code 1 where somebody has it, or it has ended.

    Also one that rests before a retry: --delay 0s has it come at once.
    """
    if delay is None and due is None:
        raise click.UsageError("give --delay or --due: --delay 0s is at once")
    with session.queue(queue) as opened:
        is_done = opened.reschedule(message_id, delay=delay, due=due)
        _tell(session, opened, message_id, "rescheduled", is_done=is_done)


@click.command()
@click.argument("queue")
@click.argument("message_id", metavar="ID")
@click.argument("priority", type=int, metavar="0..9")
@common_options
@pass_session
def reprioritise(session: Session, queue: str, message_id: str, priority: int) -> None:
    """Give one message another priority; exit code 1 where somebody has it, or it has ended."""
    with session.queue(queue) as opened:
        is_done = opened.reprioritise(message_id, priority)
        _tell(session, opened, message_id, "reprioritised", is_done=is_done)


def _tell(session: Session, queue: cassq.Queue, message_id: str, done: str, *, is_done: bool) -> None:
    """Tell what came of a command."""
    state = queue.status(message_id).state.value
    if session.is_json:
        print_json({"queue": queue.name, "id": message_id, done: is_done, "state": state})
    elif is_done:
        say(f"{done} {message_id}")
    else:
        say(f"cassq: {message_id} is {state}: not {done}")
    if not is_done:
        raise click.exceptions.Exit(exit_codes.NOT_DONE)


def _find_in_index(out: str, message_id: str) -> cassq.MessageHistory | None:
    try:
        from cassq.spark.pipeline import find_in_index  # noqa: PLC0415 - Spark is imported late
    except ImportError as error:
        raise cassq.InvalidOptionError(
            f"an index is read with Arrow: pip install 'cassq[spark]' ({error})"
        ) from error
    return find_in_index(out, message_id)


def _attempt_to_json(attempt: Attempt) -> dict[str, Any]:
    number, holder, leased_at_ms, reason = attempt
    leased_at = to_datetime(leased_at_ms).isoformat() if leased_at_ms else None
    return {"attempt": number, "holder": holder, "leased_at": leased_at, "reason": reason}


def _to_json(found: cassq.MessageStatus) -> dict[str, Any]:
    return {
        "state": found.state.value,
        "attempt": found.attempt,
        "due": found.due and found.due.isoformat(),
        "reason": found.reason,
        "holder": found.holder,
        "waits_for": found.waits_for and str(found.waits_for),
    }

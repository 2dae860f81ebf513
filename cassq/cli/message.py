"""`cassq status` and `cassq cancel`: one message, by its id.

Owns nothing but words.
"""

from typing import Any

import click

import cassq
from cassq.cli import exit_codes
from cassq.cli.output import print_figures, print_json, say
from cassq.cli.session import Session, common_options, pass_session
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
        print_figures(told | {"reason": in_one_line(told["reason"])})


@click.command()
@click.argument("queue")
@click.argument("message_id", metavar="ID")
@click.option("--running", is_flag=True, help="Also while a consumer has it: it does not come again.")
@common_options
@pass_session
def cancel(session: Session, queue: str, message_id: str, *, running: bool) -> None:
    """End one message, which is then delivered to nobody; exit code 1 where it was too late."""
    with session.queue(queue) as opened:
        is_cancelled = opened.cancel(message_id, running=running)
        state = opened.status(message_id).state.value
    if session.is_json:
        print_json({"queue": queue, "id": message_id, "cancelled": is_cancelled, "state": state})
    elif is_cancelled:
        say(f"cancelled {message_id}")
    else:
        say(f"cassq: {message_id} is {state}: not cancelled")
    if not is_cancelled:
        raise click.exceptions.Exit(exit_codes.NOT_DONE)


def _to_json(found: cassq.MessageStatus) -> dict[str, Any]:
    return {
        "state": found.state.value,
        "attempt": found.attempt,
        "due": found.due and found.due.isoformat(),
        "reason": found.reason,
        "holder": found.holder,
    }

"""`cassq schedule …`: messages that are pushed again and again.

Owns nothing but words.
"""

from datetime import timedelta
from typing import Any, TypedDict, Unpack

import click

import cassq
from cassq.cli.output import body_to_json, print_json, print_table, say
from cassq.cli.push import read_bodies
from cassq.cli.session import Session, common_options, pass_session
from cassq.cli.values import to_duration, to_header


class ScheduleOptions(TypedDict):
    """What each message of a schedule has besides its body."""

    timezone: str
    headers: tuple[tuple[str, str], ...]
    ttl: timedelta | None
    priority: int
    type: str | None
    may_be_empty: bool


@click.group("schedule")
def schedules() -> None:
    """Push messages again and again, as cron expressions say."""


@schedules.command("list")
@click.argument("queue")
@common_options
@pass_session
def list_schedules(session: Session, queue: str) -> None:
    """List the schedules of a queue; --json shows bodies and headers, too."""
    with session.queue(queue) as opened:
        found = [_to_json(each) for each in opened.schedules]
    if session.is_json:
        print_json(found)
        return
    if not found:
        say(f"queue {queue!r} has no schedules")
    shown = "name", "cron", "timezone", "next_due", "missed"
    print_table([{name: each[name] for name in shown} for each in found])


@schedules.command("set")
@click.argument("queue")
@click.argument("name")
@click.argument("cron")
@click.argument("file", default="-")
@click.option("--timezone", default="UTC", show_default=True, metavar="ZONE", help="As Europe/Berlin.")
@click.option(
    "--header",
    "headers",
    type=to_header,
    metavar="NAME=VALUE",
    multiple=True,
    help="Of each message; may be repeated.",
)
@click.option("--ttl", type=to_duration, metavar="DURATION", help="How long each may wait for a consumer.")
@click.option(
    "--priority", type=int, metavar="0..9", default=0, help="Consumers get the higher first.  [default: 0]"
)
@click.option("--type", metavar="NAME", help="Consumers may ask for messages of some types.")
@click.option("--allow-empty", "may_be_empty", is_flag=True, help="Accept a message without a single byte.")
@common_options
@pass_session
def set_schedule(
    session: Session, queue: str, name: str, cron: str, file: str, **options: Unpack[ScheduleOptions]
) -> None:
    """Push FILE, or standard input, into QUEUE each time that CRON tells: '0 9 * * MON-FRI'.

    CRON has five fields, minute, hour, day of month, month and day of week, or six, with seconds before them.
    A schedule of that NAME is replaced; where it says the same already nothing changes.
    """
    with session.queue(queue) as opened:
        bytes_max = opened.settings.body_bytes_max
        (body,) = read_bodies((file,), bytes_max, is_lines=False, may_be_empty=options["may_be_empty"])
        schedule = opened.schedules.set(
            *(name, cron, body, dict(options["headers"])),
            timezone=options["timezone"],
            ttl=options["ttl"],
            priority=options["priority"],
            type=options["type"],
        )
    if session.is_json:
        print_json(_to_json(schedule))
    else:
        say(f"schedule {name!r} of queue {queue!r} is next due at {schedule.next_due.isoformat()}")


@schedules.command("delete")
@click.argument("queue")
@click.argument("name")
@common_options
@pass_session
def delete_schedule(session: Session, queue: str, name: str) -> None:
    """Delete a schedule; what is due within 15 s may come all the same."""
    with session.queue(queue) as opened:
        opened.schedules.delete(name)
    if session.is_json:
        print_json({"queue": queue, "deleted": name})
    else:
        say(f"deleted schedule {name!r} of queue {queue!r}")


def _to_json(schedule: cassq.Schedule) -> dict[str, Any]:
    return {
        "name": schedule.name,
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "next_due": schedule.next_due.isoformat(),
        "missed": schedule.missed,
        "ttl_s": schedule.ttl and schedule.ttl.total_seconds(),
        "priority": schedule.priority,
        "type": schedule.type,
        "headers": dict(schedule.headers),
        **body_to_json(schedule.body),
    }

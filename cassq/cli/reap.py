"""`cassq reap`: one pass of the reaper, for cron, or one after the other.

Owns the report's form and the exit code. What must not break: with `--watch` an outage ends nothing.
"""

import dataclasses
from datetime import timedelta

import click

import cassq
from cassq.cli.exit_codes import DENIED, NOT_DONE
from cassq.cli.output import print_json, say
from cassq.cli.queues import wait
from cassq.cli.session import Session, common_options, pass_session
from cassq.cli.signals import Wish
from cassq.cli.values import to_pause


@click.command()
@click.option(
    "--watch", type=to_pause, metavar="DURATION", help="Again and again, this far apart, until a signal."
)
@common_options
@pass_session
@click.pass_context
def reap(context: click.Context, session: Session, watch: timedelta | None) -> None:
    """Heal what dead pushers and poppers left; safe to run any number of at once, and to kill.

    Exits 0 after a whole pass, 1 where something could not be done, 75 where the store is out of reach, 77
    where there is something to do that the role may not do. With --watch it exits 0 after SIGTERM.
    """
    if watch is not None:
        with session.ending.politely() as wish:
            _keep_reaping(session, wish, watch)
        return
    with session.store() as store:
        report = store.reap()
    print_report(report, is_json=session.is_json)
    if report.failed:
        context.exit(DENIED if report.refused else NOT_DONE)


def _keep_reaping(session: Session, wish: Wish, pause: timedelta) -> None:
    told = ""
    while not wish:
        try:
            with session.store() as store:
                while not wish:
                    report = store.reap()
                    if told:
                        told = ""
                        say("cassq: the store is back")
                    print_report(report, is_json=session.is_json)
                    wait(wish, pause)
        except (cassq.UnavailableError, cassq.OutcomeUnknownError) as error:
            if str(error) != told:  # an outage is no news at every pass
                told = str(error)
                say(f"cassq: {told}")
            wait(wish, pause)


def print_report(report: cassq.ReapReport, *, is_json: bool) -> None:
    """Print what a pass did; its failures on stderr as well."""
    if is_json:
        print_json(dataclasses.asdict(report))
    else:
        click.echo(describe_report(report))
    for failure in report.failed:
        say(f"cassq: {failure}")


def describe_report(report: cassq.ReapReport) -> str:
    """Return a report in one line."""
    return (
        f"examined {report.examined} pipes: sealed {report.sealed}, retired {report.retired}, "
        f"busy {report.busy}; returned {report.returned} messages, buried {report.buried}, "
        f"expired {report.expired}; made ready {report.moved}, pushed {report.recurred} of schedules, "
        f"missed {report.missed}; deleted {report.segments} segments of topics; failed {len(report.failed)}"
    )

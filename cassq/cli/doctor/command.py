"""`cassq doctor`: looks at everything a store rests on, and says what to do.

Owns the order of the checks and the form of the answer. What must not break: it changes nothing, and one
service that is down never keeps the others from being looked at.
"""

from collections.abc import Iterator
from itertools import chain

import click

import cassq
from cassq import installation
from cassq.cli.doctor import cassandra as doctor_cassandra
from cassq.cli.doctor import pipes as doctor_pipes
from cassq.cli.doctor import sqlite as doctor_sqlite
from cassq.cli.doctor import topics as doctor_topics
from cassq.cli.doctor import zookeeper as doctor_zookeeper
from cassq.cli.doctor.finding import Finding, Level
from cassq.cli.exit_codes import NOT_DONE
from cassq.cli.output import print_json, say
from cassq.cli.session import Session, common_options, pass_session


@click.command()
@click.option("--read-only", "is_watching", is_flag=True, help="The user is to watch only: it may not write.")
@common_options
@pass_session
@click.pass_context
def doctor(context: click.Context, session: Session, *, is_watching: bool) -> None:
    """Check a store and the services under it; exits 1 when something is broken.

    Each check ends as ok, hint (could be better), warn (will hurt one day) or fail (does not work).
    """
    url = session.require_url()
    target = installation.target_of(url)
    found = []
    for finding in _examine(url, target, is_watching=is_watching):
        found.append(finding)
        if not session.is_json:
            _print(finding)
    levels = [finding.level for finding in found]
    if session.is_json:
        counts = {level.value: levels.count(level) for level in Level}
        print_json({"checks": [finding.to_json() for finding in found], "counts": counts})
    else:
        say(", ".join(f"{levels.count(level)} {level.value}" for level in Level))
    if Level.FAIL in levels:
        context.exit(NOT_DONE)


def _examine(
    url: str, target: installation.CassandraTarget | installation.SqliteTarget, *, is_watching: bool
) -> Iterator[Finding]:
    is_whole = True
    examine = (
        doctor_sqlite.examine(target)
        if isinstance(target, installation.SqliteTarget)
        else chain(
            doctor_cassandra.examine(target, is_watching=is_watching), doctor_zookeeper.examine(target)
        )
    )
    for finding in examine:
        is_whole = is_whole and finding.level is not Level.FAIL
        yield finding
    if not is_whole:
        yield Finding("pipes", Level.HINT, "not looked at: see the failures above")
    elif isinstance(target, installation.SqliteTarget) and not doctor_sqlite.is_there(target):
        return
    else:
        try:
            with cassq.connect(url) as store:
                yield from doctor_pipes.examine(store)
                yield from doctor_topics.examine(store)
        except cassq.CassqError as error:
            yield Finding("pipes", Level.FAIL, str(error))


def _print(finding: Finding) -> None:
    click.echo(f"{finding.level.value:<5} {finding.check}: {finding.told}")
    if finding.way_out:
        click.echo(f"      → {finding.way_out}")

"""`cassq schema …`: the tables in a database.

Owns nothing but words; `cassq.installation` knows the schemas.
"""

from collections.abc import Sequence

import click

from cassq import installation
from cassq.cli.exit_codes import NOT_DONE
from cassq.cli.output import print_json, say
from cassq.cli.session import Session, common_options, pass_session
from cassq.cli.values import to_replication


@click.group()
def schema() -> None:
    """Show, apply and check the schema. An SQLite file gets its own whenever it is opened."""


@schema.command()
@click.option(
    "--replication", type=to_replication, metavar="REPLICATION", help="simple:1, dc1:3,dc2:3, or JSON."
)
@common_options
@pass_session
def show(session: Session, replication: installation.Replication | None) -> None:
    """Print the schema, for `cqlsh -f`; connects to nothing."""
    text = installation.show_schema(session.url, replication)
    if session.is_json:
        print_json({"schema": text})
    else:
        click.echo(text, nl=False)


@schema.command()
@click.option(
    "--replication",
    type=to_replication,
    metavar="REPLICATION",
    help="Of a keyspace that has to be created: simple:1, dc1:3,dc2:3, or JSON.",
)
@common_options
@pass_session
@click.pass_context
def apply(context: click.Context, session: Session, replication: installation.Replication | None) -> None:
    """Create what is missing, bring an older schema up to date, mend what has drifted; safe at any time.

    What only an operator should change is printed as statements, and the exit code is 1.
    """
    applied = installation.apply_schema(session.require_url(), replication)
    done, left, statements = applied.mended.done, applied.mended.left, applied.mended.statements
    if session.is_json:
        told = {"version": applied.version, "mended": done, "left": left, "statements": statements}
        print_json(told)
    else:
        for difference in done:
            say(f"mended: {difference}")
        for difference in left:
            say(f"left: {difference}")
        for statement in statements:
            click.echo(f"{statement};")
        say(f"the schema stands at version {applied.version}{_tell_left(left, statements)}")
    if left:
        context.exit(NOT_DONE)


def _tell_left(left: Sequence[str], statements: Sequence[str]) -> str:
    if not left:
        return ""
    if not statements:
        return ", but differs: start with a new file, and push what this one holds"
    return (
        ", but differs: stop what uses it, save what the tables and columns above hold (what is dropped is "
        "lost), run the statements that were printed, and apply again"
    )


@schema.command()
@common_options
@pass_session
@click.pass_context
def check(context: click.Context, session: Session) -> None:
    """Tell how the schema differs from what this cassq needs; exit 1 if it does."""
    differences = installation.check_schema(session.require_url())
    if session.is_json:
        print_json({"differences": differences})
    else:
        for difference in differences:
            click.echo(difference)
        say("differs: run `cassq schema apply`" if differences else "the schema is what this cassq needs")
    if differences:
        context.exit(NOT_DONE)


@schema.command()
@common_options
@pass_session
def version(session: Session) -> None:
    """Print the version of the schema that is in force, and the one this cassq needs."""
    stands, needed = installation.schema_versions(session.require_url())
    if session.is_json:
        print_json({"version": stands, "needed": needed})
    else:
        click.echo("none" if stands is None else stands)
        say(f"this cassq needs {needed}")

"""`cassq schema …`: the tables in a database.

Owns nothing but words; `cassq.installation` knows the schemas.
"""

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
def apply(session: Session, replication: installation.Replication | None) -> None:
    """Create what is missing, bring an older schema up to date; safe at any time."""
    version = installation.apply_schema(session.require_url(), replication)
    if session.is_json:
        print_json({"version": version})
    else:
        say(f"the schema stands at version {version}")


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

"""The console script `cassq`.

Owns the list of commands and the way out: every error becomes one line on stderr and an exit code of the
table in `cassq.cli.exit_codes`. What must not break: no traceback without `--debug`.
"""

import importlib
import logging
import os
import sys
import traceback
from collections.abc import Callable, Collection, Sequence
from typing import cast

import click

import cassq
from cassq.cli import exit_codes
from cassq.cli.output import replace_closed_streams, say, silence
from cassq.cli.session import Session, common_options
from cassq.cli.signals import Stopped

#: The commands, and where each is: MODULE:NAME.
COMMANDS = {
    "demo": "cassq.cli.demo.command:demo",
    "schema": "cassq.cli.schema:schema",
    "queue": "cassq.cli.queues:queues",
    "push": "cassq.cli.push:push",
    "pop": "cassq.cli.pop:pop",
    "peek": "cassq.cli.pop:peek",
    "status": "cassq.cli.message:status",
    "history": "cassq.cli.message:history",
    "cancel": "cassq.cli.message:cancel",
    "reschedule": "cassq.cli.message:reschedule",
    "reprioritise": "cassq.cli.message:reprioritise",
    "schedule": "cassq.cli.schedules:schedules",
    "topic": "cassq.cli.topics:topics",
    "dead": "cassq.cli.dead:dead",
    "application": "cassq.cli.applications:applications",
    "serve": "cassq.cli.serve:serve",
    "reap": "cassq.cli.reap:reap",
    "worker": "cassq.cli.worker.command:worker",
    "exporter": "cassq.cli.exporter:exporter",
    "doctor": "cassq.cli.doctor.command:doctor",
    "bench": "cassq.cli.bench.command:bench",
    "pipeline": "cassq.cli.pipeline:pipeline",
}


class _Commands(click.Group):
    """Imports a command when it is named: what the others need takes longer than most commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        return cast(click.Command, getattr(importlib.import_module(module), name))


@click.group(
    cls=_Commands,
    epilog="\b\nExit codes:\n" + exit_codes.describe(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(cassq.__version__, prog_name="cassq")
@common_options
def cassq_command() -> None:
    """A durable message queue on Apache Cassandra, and on a plain file where there is none.

    The store is named by --url or CASSQ_URL, for example sqlite:///orders.db or
    cassandra://HOST,HOST/KEYSPACE?zookeeper=HOST,HOST. Data goes to stdout, words to stderr.
    """


def main(mask: Collection[int] | None = None) -> None:
    """Run the command line and exit.

    Args:
        mask: the signals to block from when they mean something on; None leaves those as they are.
    """
    replace_closed_streams()
    sys.exit(run(sys.argv[1:], mask))


def run(arguments: Sequence[str], mask: Collection[int] | None = None) -> int:
    """Run one command; return its exit code."""
    session = Session(url=os.environ.get("CASSQ_URL") or None)
    # Logs would say once more what the one line at the end says.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        session.ending.install(mask)
        return _settle(lambda: _call(arguments, session), session)
    except Stopped as stopped:  # a second signal, while the first was being told
        return stopped.exit_code


def _call(arguments: Sequence[str], session: Session) -> int:
    # Not click's own `main`: that ends with 1 when the reader closed the pipe.
    try:
        with cassq_command.make_context("cassq", list(arguments), obj=session) as context:
            cassq_command.invoke(context)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    finally:
        sys.stdout.flush()
    return exit_codes.DONE


def _settle(call: Callable[[], int], session: Session) -> int:  # noqa: PLR0911 - one for each ending
    """Turn whatever a command ends with into words and an exit code."""
    try:
        return call()
    except Stopped as stopped:
        return stopped.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        say(error.ctx.get_help() if error.ctx else error.format_message())
        return exit_codes.USAGE
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "cassq"
        say(f"cassq: {error.format_message()} (see `{where} --help`)")
        return exit_codes.USAGE
    except click.Abort:
        say("cassq: nothing was done")
        return exit_codes.NOT_DONE
    except BrokenPipeError:
        silence(sys.stdout)
        return exit_codes.BY_SIGNAL + 13
    except cassq.CassqError as error:
        _show_trace(session)
        say(f"cassq: {error}")
        return error.exit_code
    except OSError as error:
        _show_trace(session)
        silence(sys.stdout)
        say(f"cassq: {'' if error.filename else 'standard output: '}{error}")
        return exit_codes.INPUT_OUTPUT
    except Exception as error:
        _show_trace(session)
        say(f"cassq: a fault in cassq: {type(error).__name__}: {error} (--debug shows where)")
        return exit_codes.INTERNAL


def _show_trace(session: Session) -> None:
    if session.is_debug:
        traceback.print_exc()

"""The words that `tools/services` understands.

Owns commands, options and their help. Refuses to act on them.
"""

import argparse
from pathlib import Path

from _services.state import SERVICES

_DIRECTORY = Path(__file__).resolve().parents[2] / ".services"
_EPILOG = """\
Servers listen on this machine's loopback only and go on running after the command has ended.
Ports are chosen at the first start and kept until `remove`.

  eval "$(tools/services start)"     # both servers, and the two variables for this shell
  tools/services restart --only cassandra
  tools/services stop --only cassandra --node 2 --kill     # in a ring: one node crashes
  tools/services remove              # ends them and deletes their data

exit codes: 0 done, 1 a server failed, 3 (status, env) not everything or nothing runs,
64 the request makes no sense here, 69 a program is missing on this machine"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="tools/services",
        description="Start and stop real Cassandra and ZooKeeper servers for tests and demos.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, words in {
        "start": "start what does not run yet, wait until it answers, print its addresses",
        "restart": "stop, then start; data and ports stay",
        "stop": "stop what runs; data and ports stay",
        "freeze": "halt processes where they are (SIGSTOP, docker pause)",
        "thaw": "let frozen processes go on",
        "status": "tell what runs",
        "env": "print the addresses of what runs, for a shell",
        "remove": "stop everything and delete its data",
    }.items():
        command = commands.add_parser(name, help=words, description=words)
        command.add_argument(
            "--dir", type=Path, default=_DIRECTORY, help="where state, data and logs are kept"
        )
        if name not in ("status", "env", "remove"):
            command.add_argument("--only", choices=SERVICES, help="leave the other service alone")
            command.add_argument("--node", type=int, metavar="N", help="of a ring, only node N")
        if name in ("start", "restart", "status", "env"):
            command.add_argument("--json", action="store_true", help="addresses, pids and logs")
        if name in ("stop", "restart"):
            command.add_argument("--kill", action="store_true", help="crash it (SIGKILL)")
        if name == "stop":
            command.add_argument(
                "--wipe",
                action="store_true",
                help="crash one Cassandra node of a ring and delete its data (with java): started again, "
                "it replaces itself and takes its rows from the others",
            )
        if name in ("start", "restart"):
            _add_settings(command)
        if name == "start":
            _add_layout(command)
    return made


def _add_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--paxos", choices=("v1", "v2"), help="Cassandra's paxos_variant, kept (v1 at first)"
    )
    command.add_argument(
        "--commitlog-sync",
        choices=("periodic", "group"),
        help="when writes reach Cassandra's disk (with java), kept (periodic at first)",
    )
    command.add_argument(
        "--auth",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="ask for a password (cassandra / cassandra) and permissions, kept (no at first)",
    )
    command.add_argument(
        "--tls",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="Cassandra takes encrypted connections only (with java), kept (no at first)",
    )
    command.add_argument(
        "--low-power",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="leave the processor to others: nice, quick compiler only; kept",
    )
    command.add_argument(
        "--timeout", type=float, default=600.0, metavar="SECONDS", help="how long to wait for answers"
    )


def _add_layout(command: argparse.ArgumentParser) -> None:
    command.add_argument("--ring", action="store_true", help="three servers each, on 127.0.0.1, .2 and .3")
    command.add_argument(
        "--with",
        dest="backend",
        choices=("auto", "docker", "java"),
        default="auto",
        help="auto: Docker when it answers and testcontainers is installed, else Java",
    )

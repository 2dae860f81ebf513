"""The command line of `tools/services`.

Owns what each command does, its output and exit code; `arguments.py` owns what it may be told. Data go to
stdout, words to stderr.
"""

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from _services import cassandra, zookeeper
from _services import state as states
from _services.arguments import parser
from _services.choice import backend_named, choose_backend
from _services.control import Control
from _services.errors import MisuseError, ServicesError
from _services.state import CASSANDRA, ZOOKEEPER, Node, State

_VARIABLES = {CASSANDRA: "CASSQ_TEST_CASSANDRA", ZOOKEEPER: "CASSQ_TEST_ZOOKEEPER"}
# The PEM file to trust, where Cassandra speaks TLS.
_AUTHORITY_VARIABLE = "CASSQ_TEST_CASSANDRA_CA"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = parser().parse_args(arguments)
    directory: Path = options.dir.expanduser().resolve()
    try:
        if options.command in _READS:
            return _READS[options.command](_open(directory), options)
        with states.locked(directory):
            return _CHANGES[options.command](directory, options)
    except ServicesError as error:
        print(f"services: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("services: interrupted", file=sys.stderr)
        return 130
    finally:
        # The directory was made to be locked; nothing else is in it after a failed first start.
        if directory.is_dir() and not any(directory.iterdir()):
            directory.rmdir()


def _open(directory: Path) -> Control | None:
    state = states.load(directory)
    if state is None:
        return None
    return Control(directory, state, backend_named(state.backend, directory))


def _opened(directory: Path) -> Control:
    control = _open(directory)
    if control is None:
        raise MisuseError(f"nothing was started in {directory}")
    return control


def _start(directory: Path, options: argparse.Namespace) -> int:
    control = _open(directory) or _create(directory, options)
    if options.ring and not control.state.ring:
        raise MisuseError("this directory holds single servers: use another --dir, or remove them")
    if options.backend not in ("auto", control.state.backend):
        raise MisuseError(
            f"these servers run with {control.state.backend}: use another --dir, or remove them"
        )
    _keep_settings(control, options, restarted=[])
    return _start_in(control, options)


def _create(directory: Path, options: argparse.Namespace) -> Control:
    kind, backend = choose_backend(options.backend, directory, ring=options.ring, tls=bool(options.tls))
    addresses = ["127.0.0.1", "127.0.0.2", "127.0.0.3"][: 3 if options.ring else 1]
    ports = states.choose_ports([*cassandra.PORTS, *zookeeper.PORTS], addresses)
    return Control(directory, State(kind, options.ring, ports), backend)


def _restart(directory: Path, options: argparse.Namespace) -> int:
    control = _opened(directory)
    nodes = control.select(options.only, options.node)
    _keep_settings(control, options, restarted=nodes)
    control.stop(nodes, kill=options.kill)
    return _start_in(control, options)


def _keep_settings(control: Control, options: argparse.Namespace, restarted: list[Node]) -> None:
    """Take over settings that were given, if no server goes on without having heard of them."""
    state = control.state
    if options.low_power is not None:
        state.low_power = options.low_power
    paxos = options.paxos or state.paxos
    auth = state.auth if options.auth is None else options.auth
    tls = state.tls if options.tls is None else options.tls
    sync = options.commitlog_sync or state.commitlog_sync
    if (paxos, auth, tls, sync) == (state.paxos, state.auth, state.tls, state.commitlog_sync):
        return
    if state.backend == "docker" and (tls or sync != state.commitlog_sync):
        raise MisuseError(
            "TLS and --commitlog-sync need --with java: use another --dir, or remove these servers"
        )
    if state.backend == "docker" and state.handles:
        raise MisuseError("a container keeps the settings it was made with: remove, then start")
    deaf = [node for node in state.peers(CASSANDRA) if node not in restarted]
    names = [node.name for node in deaf if control.is_alive(node)]
    if names:
        raise MisuseError(f"{', '.join(names)} runs with other settings: restart all of Cassandra")
    state.paxos, state.auth, state.tls, state.commitlog_sync = paxos, auth, tls, sync


def _start_in(control: Control, options: argparse.Namespace) -> int:
    nodes = control.select(options.only, options.node)
    control.backend.check()
    line = _ProgressLine()
    begin = time.monotonic()
    try:
        started = control.start(nodes, seconds=options.timeout, progress=line.show)
    finally:
        line.clear()
    names = ", ".join(node.name for node in started)
    seconds = time.monotonic() - begin
    _say(f"{names} up in {seconds:.1f} s" if started else "everything asked for runs already")
    return _env(control, options)


def _stop(directory: Path, options: argparse.Namespace) -> int:
    control = _opened(directory)
    nodes = control.select(options.only, options.node)
    if options.wipe:
        control.wipe(nodes)
        _say(f"wiped {', '.join(node.name for node in nodes)}")
        return 0
    stopped = control.stop(nodes, kill=options.kill)
    verb = "killed" if options.kill else "stopped"
    _say(f"{verb} {', '.join(node.name for node in stopped) or 'nothing: nothing ran'}")
    return 0


def _freeze(directory: Path, options: argparse.Namespace) -> int:
    control = _opened(directory)
    control.freeze(control.select(options.only, options.node))
    return 0


def _thaw(directory: Path, options: argparse.Namespace) -> int:
    control = _opened(directory)
    control.thaw(control.select(options.only, options.node))
    return 0


def _remove(directory: Path, options: argparse.Namespace) -> int:
    del options
    control = _open(directory)
    if control is None:
        _say("nothing to remove")
        return 0
    control.remove()
    _say("removed")
    return 0


def _env(control: Control | None, options: argparse.Namespace) -> int:
    found = {name: control.addresses(name) if control else "" for name in (CASSANDRA, ZOOKEEPER)}
    variables = {_VARIABLES[name]: value for name, value in found.items() if value}
    authority = control.authority() if control and found[CASSANDRA] else None
    if authority is not None:
        variables[_AUTHORITY_VARIABLE] = str(authority)
    if options.json:
        servers = [_described(control, node) for node in control.state.nodes] if control else []
        print(json.dumps({**variables, "servers": servers}, indent=2))
    else:
        for name, value in variables.items():
            print(f"export {name}={shlex.quote(value)}")
    if not variables:
        _say("nothing runs: tools/services start")
    return 0 if variables else 3


def _status(control: Control | None, options: argparse.Namespace) -> int:
    servers = [_described(control, node) for node in control.state.nodes] if control else []
    if options.json:
        print(json.dumps({"servers": servers}, indent=2))
    else:
        for server in servers:
            print("{name:<12} {status:<8} {address:<16} {log}".format(**server).replace("None", "-"))
    if not servers:
        _say("nothing was started")
    whole = bool(servers) and all(server["status"] == "running" for server in servers)
    return 0 if whole else 3


def _described(control: Control, node: Node) -> dict[str, object]:
    alive = control.is_alive(node)
    status = "frozen" if control.is_frozen(node) else "running" if alive else "down"
    directory = control.backend.directory(node)
    handle = control.state.handles.get(node.name)
    process = handle.id if handle and alive else None
    return {
        "name": node.name,
        "service": node.service,
        "node": node.number,
        "status": status,
        "address": node.contact,
        "pid": int(process) if process and control.state.backend == "java" else None,
        "container": process if control.state.backend == "docker" else None,
        "dir": str(directory) if directory else None,
        "log": control.backend.log(node, handle) if handle else None,
    }


class _ProgressLine:
    """One line that is written over, on a terminal; nothing elsewhere."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def show(self, text: str) -> None:
        if self._shown:
            width = os.get_terminal_size(sys.stderr.fileno()).columns - 1
            print(f"\r\033[K{text[:width]}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _say(text: str) -> None:
    print(f"services: {text}", file=sys.stderr)


_READS: dict[str, Callable[[Control | None, argparse.Namespace], int]] = {
    "status": _status,
    "env": _env,
}
_CHANGES: dict[str, Callable[[Path, argparse.Namespace], int]] = {
    "start": _start,
    "restart": _restart,
    "stop": _stop,
    "freeze": _freeze,
    "thaw": _thaw,
    "remove": _remove,
}

"""A RabbitMQ node of one's own, and the Erlang that it runs on.

Owns finding both, installed or unpacked from Debian's packages, and starting and ending the node with its
name service. What must not break: node and name service listen on the loopback address only.
"""

from collections.abc import Callable
from pathlib import Path

from _services.state import choose_ports

from _bench.rivals import debian
from _bench.rivals.program import LOOPBACK, Program, choose_port

# The scripts beside the server; those in usr/sbin insist on a user of their own.
_SCRIPTS = "usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin"


class RabbitNode:
    """One node, alone in its cluster."""

    def __init__(self) -> None:
        self._programs: list[Program] = []
        self.port = 0

    def start(self, folder: Path, answers: Callable[[], object], management_port: int | None = None) -> None:
        """Start it, empty, and wait until `answers` succeeds.

        Args:
            management_port: where the management API is to be; None has none.
        """
        found = debian.find("rabbitmq-server", "rabbitmq-server", place=_SCRIPTS, kin="erlang-")
        erlang = _erlang_of(found.root)
        self.port = choose_port()
        ports = choose_ports(["names", "nodes"], [LOOPBACK])
        (folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = {LOOPBACK}:{self.port}\n"
            # Its own guesses stop every push when a small machine's disk or memory is nearly full.
            "disk_free_limit.absolute = 200MB\n"
        )
        if management_port is not None:
            with (folder / "rabbitmq.conf").open("a") as settings:
                settings.write(f"management.tcp.ip = {LOOPBACK}\nmanagement.tcp.port = {management_port}\n")
        plugins = "" if management_port is None else "rabbitmq_management"
        (folder / "enabled_plugins").write_text(f"[{plugins}].\n")
        (folder / "rabbitmq-env.conf").write_text("")
        environment = {
            **found.environment,
            "PATH": f"{erlang}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            # The cookie is kept there.
            "HOME": str(folder),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "ERL_EPMD_PORT": str(ports["names"]),
            "RABBITMQ_DIST_PORT": str(ports["nodes"]),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "rabbitmq.pid"),
        }
        # A node without a name service starts one that stays when the node ends.
        names = Program("epmd", [erlang / "epmd"], folder, environment=environment)
        self._programs.append(names)
        node = Program("rabbitmq", [found.path], folder, environment=environment)
        self._programs.append(node)
        node.wait_until(answers)

    def stop(self) -> None:
        """End the node, then its name service."""
        while self._programs:
            self._programs.pop().stop()


def _erlang_of(root: Path) -> Path:
    """Return a folder with Erlang's programs.

    Erlang's own script has the place where it was installed written into it; one that was unpacked elsewhere
    gets a script of ours.
    """
    home = root / "usr/lib/erlang"
    if root == Path("/"):
        return home / "bin"
    folder = root / "erlang"
    folder.mkdir(exist_ok=True)
    machine = max(home.glob("erts-*")) / "bin"
    script = folder / "erl"
    script.write_text(
        "#!/bin/sh\n"
        f'ROOTDIR="{home}" BINDIR="{machine}" EMU=beam PROGNAME=erl\n'
        "export ROOTDIR BINDIR EMU PROGNAME\n"
        'exec "$BINDIR/erlexec" ${1+"$@"}\n'
    )
    script.chmod(0o755)
    for name in ("epmd", "escript"):
        link = folder / name
        if not link.is_symlink():
            link.symlink_to(machine / name)
    return folder

"""The servers as plain Java processes of this machine.

Owns the directory and log of each server. Keeps the contract of `backend.py`.
"""

import shutil
import signal
from collections import deque
from pathlib import Path

from _services import cassandra, certificates, java, processes, zookeeper
from _services.errors import ServicesError
from _services.state import CASSANDRA, Handle, Node, State, is_free

_PORTS = {"cassandra": cassandra.PORTS, "zookeeper": zookeeper.PORTS}
_LOGBACK = Path(__file__).with_name("logback.xml")


class JavaBackend:
    """Runs each server in a JVM of its own, in a session of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._java: Path | None = None
        self._class_path = ""

    def check(self) -> None:
        """Find Java, and have Maven fetch the jars if nobody has yet."""
        self._found()

    def _found(self) -> Path:
        if self._java is None:
            found = java.find_java()
            self._class_path = java.class_path(self._directory / "maven.log")
            self._java = found
        return self._java

    def start(self, state: State, node: Node, previous: Handle | None) -> Handle:
        """Write the configuration and start the JVM."""
        del previous  # a process leaves nothing that the next one needs
        found = self._found()
        for name in _PORTS[node.service]:
            if (state.ring or not name.startswith("zookeeper_")) and not is_free(
                node.address, state.ports[name]
            ):
                raise ServicesError(
                    f"{node.name}: port {state.ports[name]} was taken by another program meanwhile; "
                    "end that one, or `remove` these services to have new ports chosen"
                )
        directory = self.directory(node)
        directory.mkdir(parents=True, exist_ok=True)
        if node.service == CASSANDRA:
            if state.tls:
                certificates.make(found, self._directory)
            cassandra.configure(state, node, directory)
            arguments = cassandra.command(state, node, directory, self._class_path)
        else:
            zookeeper.configure(state, node, directory)
            arguments = zookeeper.command(state, directory)
        command = [str(found), f"-Dlogback.configurationFile={_LOGBACK.as_uri()}", *arguments]
        if state.low_power:
            command = ["nice", "-n", "10", *command]
        # A hundred jars are for the environment: `ps` stays readable.
        environment = {"CLASSPATH": self._class_path}
        return processes.spawn(command, self._log(node), directory, environment)

    def is_alive(self, handle: Handle) -> bool:
        """Return whether the process that was started still runs, or is frozen."""
        return processes.is_alive(handle)

    def is_frozen(self, handle: Handle) -> bool:
        """Return whether SIGSTOP holds it."""
        return processes.is_frozen(handle)

    def end(self, handle: Handle, *, kill: bool) -> None:
        """Send SIGTERM or SIGKILL and wait."""
        processes.end(handle, kill=kill)

    def freeze(self, handle: Handle) -> None:
        """Send SIGSTOP."""
        processes.send(handle, signal.SIGSTOP)

    def thaw(self, handle: Handle) -> None:
        """Send SIGCONT."""
        processes.send(handle, signal.SIGCONT)

    def remove(self, node: Node, handle: Handle | None) -> None:
        """Delete its directory and log."""
        del handle  # a process that has ended leaves nothing but these
        shutil.rmtree(self.directory(node), ignore_errors=True)
        self._log(node).unlink(missing_ok=True)
        (self._directory / "maven.log").unlink(missing_ok=True)
        certificates.remove(self._directory)

    def directory(self, node: Node) -> Path:
        """Return where configuration and data are."""
        return self._directory / node.name

    def log(self, node: Node, handle: Handle) -> str:
        """Return the file that its output goes to."""
        del handle
        return str(self._log(node))

    def _log(self, node: Node) -> Path:
        return self._directory / f"{node.name}.log"

    def last_words(self, node: Node, handle: Handle) -> str:
        """Return the last lines of the log."""
        del handle
        try:
            with self._log(node).open(errors="replace") as lines:
                # Cassandra logs its class path and all its settings, each as one line.
                return "\n".join(line.rstrip()[:200] for line in deque(lines, maxlen=15))
        except FileNotFoundError:
            return ""

# The Docker client ships no type hints, and need not be installed where only Java is used.
# mypy: disable-error-code="import-untyped,import-not-found"
"""The servers as containers, through testcontainers.

Owns the images, their environment, and the mapping of Docker's errors. Keeps the contract of
`backend.py`. Only a Docker daemon of this machine will do: the ports are published on its loopback.

What must not break: a container outlives the program that started it. testcontainers' own cleaner,
Ryuk, would remove it; `remove` does so instead.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _services.errors import MissingError, ServicesError
from _services.state import CASSANDRA, Handle, Node, State

if TYPE_CHECKING:
    import docker
    from docker.models.containers import Container

os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"  # read when testcontainers is imported

try:
    import docker.errors
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.docker_client import DockerClient

    _IS_INSTALLED = True
except ImportError:
    _IS_INSTALLED = False

_INSIDE = {"cassandra": "9042/tcp", "zookeeper": "2181/tcp"}


class DockerBackend:
    """Runs each server in a container of its own."""

    def __init__(self) -> None:
        if not _IS_INSTALLED:
            raise MissingError("the Python package is not there: pip install testcontainers")
        self._connected: docker.DockerClient | None = None

    def check(self) -> None:
        """Connect to the Docker daemon."""
        try:
            self._client.ping()
        except (docker.errors.DockerException, OSError) as error:
            raise MissingError("no Docker daemon answers: is it installed and started?") from error

    @property
    def _client(self) -> "docker.DockerClient":
        if self._connected is None:
            self._connected = DockerClient().client
        return self._connected

    def start(self, state: State, node: Node, previous: Handle | None) -> Handle:
        """Start the container of the last run again, or make one."""
        with _errors(node.name):
            found = self._find(previous) if previous else None
            if found is not None:
                found.start()
                return Handle(found.id)
            container = DockerContainer(_image(node), env=_environment(state, node))
            # with_bind_ports knows no address, and would publish on all of them.
            ports: dict[str, Any] = container.ports
            ports[_INSIDE[node.service]] = (node.address, node.port)
            return Handle(container.start().get_wrapped_container().id)

    def _find(self, handle: Handle) -> "Container | None":
        """Return the container, or None when somebody removed it."""
        try:
            return self._client.containers.get(handle.id)
        except docker.errors.NotFound:
            return None

    def _status(self, handle: Handle) -> str:
        with _errors(handle.id[:12]):
            found = self._find(handle)
            return str(found.status) if found is not None else "removed"

    def is_alive(self, handle: Handle) -> bool:
        """Return whether the container runs or is paused."""
        return self._status(handle) in ("running", "paused")

    def is_frozen(self, handle: Handle) -> bool:
        """Return whether the container is paused."""
        return self._status(handle) == "paused"

    def end(self, handle: Handle, *, kill: bool) -> None:
        """Stop or kill the container; it keeps its data."""
        with _errors(handle.id[:12]):
            found = self._find(handle)
            if found is None or found.status not in ("running", "paused"):
                return
            if found.status == "paused":
                found.unpause()  # Docker refuses to stop it as it is
            if kill:
                found.kill()
                found.wait(timeout=60)
            else:
                found.stop(timeout=60)

    def freeze(self, handle: Handle) -> None:
        """Pause the container."""
        with _errors(handle.id[:12]):
            found = self._find(handle)
            if found is not None and found.status == "running":
                found.pause()

    def thaw(self, handle: Handle) -> None:
        """Unpause the container."""
        with _errors(handle.id[:12]):
            found = self._find(handle)
            if found is not None and found.status == "paused":
                found.unpause()

    def remove(self, node: Node, handle: Handle | None) -> None:
        """Remove the container with its volumes."""
        with _errors(node.name):
            found = self._find(handle) if handle else None
            if found is not None:
                found.remove(v=True, force=True)

    def directory(self, node: Node) -> Path | None:
        """Return None: the data are in a volume."""
        del node
        return None

    def log(self, node: Node, handle: Handle) -> str:
        """Return the command that shows the log."""
        del node
        return f"docker logs {handle.id[:12]}"

    def last_words(self, node: Node, handle: Handle) -> str:
        """Return the last lines of the log."""
        with _errors(node.name):
            found = self._find(handle)
            return str(found.logs(tail=15).decode(errors="replace")) if found is not None else ""


def _image(node: Node) -> str:
    if node.service == CASSANDRA:
        return os.environ.get("CASSQ_CASSANDRA_IMAGE", "cassandra:5.0")
    return os.environ.get("CASSQ_ZOOKEEPER_IMAGE", "zookeeper:3.9")


def _environment(state: State, node: Node) -> dict[str, str]:
    """Return what the official images are told: the same as `cassandra.py` and `zookeeper.py` say."""
    quick = " -XX:TieredStopAtLevel=1" if state.low_power else ""
    if node.service != CASSANDRA:
        return {
            "ZOO_TICK_TIME": "1000",
            "ZOO_MAX_CLIENT_CNXNS": "0",
            "ZOO_ADMINSERVER_ENABLED": "false",
            "ZOO_4LW_COMMANDS_WHITELIST": "*",
            "JVMFLAGS": f"-Xmx256m{quick}",
        }
    # The image's own variables do not reach these settings; properties do, once they are allowed.
    settings = {"paxos_variant": state.paxos, "auto_snapshot": "false"}
    if state.auth:
        settings |= {"authenticator": "PasswordAuthenticator", "authorizer": "CassandraAuthorizer"}
    properties = {
        "cassandra.config.allow_system_properties": "true",
        "cassandra.skip_wait_for_gossip_to_settle": "0",
        "cassandra.superuser_setup_delay_ms": "0",
        **{f"cassandra.settings.{name}": value for name, value in settings.items()},
    }
    options = " ".join(f"-D{name}={value}" for name, value in properties.items())
    return {
        "CASSANDRA_NUM_TOKENS": "1",
        "MAX_HEAP_SIZE": "1G",
        "HEAP_NEWSIZE": "256M",
        "JVM_EXTRA_OPTS": f"{options}{quick}",
    }


@contextlib.contextmanager
def _errors(name: str) -> Iterator[None]:
    try:
        yield
    except docker.errors.DockerException as error:
        raise ServicesError(f"{name}: {error}") from error

"""The verbs: start, stop, freeze, thaw and remove, over whichever backend runs the servers.

Owns the order of things and the waiting until a server really answers. Refuses to print.

What must not break: the state is written right after each server was started, so that no process is
ever left that nobody can end by this tool.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from _services import certificates
from _services import state as states
from _services.backend import Backend
from _services.errors import MisuseError, ServicesError
from _services.probes import cassandra_answers, zookeeper_answers
from _services.state import CASSANDRA, Node, State

Progress = Callable[[str], None]

_PAUSE_SECONDS = 0.1


class Control:
    """One directory of services, its state, and the backend that runs them."""

    def __init__(self, directory: Path, state: State, backend: Backend) -> None:
        self.directory = directory
        self.state = state
        self.backend = backend

    def is_alive(self, node: Node) -> bool:
        """Return whether the server runs, or is frozen."""
        handle = self.state.handles.get(node.name)
        return handle is not None and self.backend.is_alive(handle)

    def is_frozen(self, node: Node) -> bool:
        """Return whether the server is frozen."""
        handle = self.state.handles.get(node.name)
        return handle is not None and self.backend.is_frozen(handle)

    def start(self, nodes: Sequence[Node], *, seconds: float, progress: Progress) -> list[Node]:
        """Start those that do not run, wait until all answer, and return those that were started.

        When it fails or is interrupted, what it started is ended again: the state is as before.
        """
        for node in nodes:
            if self.is_frozen(node):
                raise MisuseError(f"{node.name} is frozen: thaw it first")
        started: list[Node] = []
        try:
            for node in nodes:
                if not self.is_alive(node):
                    previous = self.state.handles.get(node.name)
                    self.state.handles[node.name] = self.backend.start(self.state, node, previous)
                    started.append(node)
                    states.save(self.directory, self.state)
            self._wait(nodes, seconds, progress)
            self.state.wiped = [name for name in self.state.wiped if name not in {n.name for n in started}]
            states.save(self.directory, self.state)
        except BaseException:
            for node in started:
                self.backend.end(self.state.handles[node.name], kill=True)
            raise
        return started

    def _wait(self, nodes: Sequence[Node], seconds: float, progress: Progress) -> None:
        begin = time.monotonic()
        waiting = list(nodes)
        while waiting:
            passed = time.monotonic() - begin
            progress(f"waiting for {', '.join(node.name for node in waiting)}: {passed:.0f} s")
            for node in waiting:
                if not self.is_alive(node):
                    raise self._failure(node, "ended while it was starting")
                if passed > seconds:
                    raise self._failure(node, f"does not answer after {seconds:.0f} s")
            waiting = [node for node in waiting if not self._answers(node)]
            if waiting:
                time.sleep(_PAUSE_SECONDS)

    def _answers(self, node: Node) -> bool:
        if node.service == CASSANDRA:
            # While another node is down on purpose, nobody can be asked to see all three.
            whole = self.state.ring and all(map(self._serves, self.state.peers(CASSANDRA)))
            return cassandra_answers(
                node.address, node.port, everyone=whole, auth=self.state.auth, authority=self.authority()
            )
        return zookeeper_answers(node.address, node.port, ring=self.state.ring)

    def _serves(self, node: Node) -> bool:
        return self.is_alive(node) and not self.is_frozen(node)

    def _failure(self, node: Node, what: str) -> ServicesError:
        handle = self.state.handles[node.name]
        words = self.backend.last_words(node, handle)
        return ServicesError(f"{words}\n{node.name} {what}; its log: {self.backend.log(node, handle)}")

    def stop(self, nodes: Sequence[Node], *, kill: bool) -> list[Node]:
        """End those that run, all at once, and return them."""
        running = [node for node in nodes if self.is_alive(node)]
        with ThreadPoolExecutor() as pool:
            handles = [self.state.handles[node.name] for node in running]
            list(pool.map(lambda handle: self.backend.end(handle, kill=kill), handles))
        return running

    def wipe(self, nodes: Sequence[Node]) -> None:
        """Crash one Cassandra node of a ring and delete its data.

        Raises:
            MisuseError: it is not one, or nobody else has its data.
        """
        wiped = {*self.state.wiped, *(node.name for node in nodes)}
        if not self.state.ring or len(wiped) > 1 or nodes[0].service != CASSANDRA:
            raise MisuseError("one Cassandra node of a ring can be wiped at a time: the others have its data")
        folder = self.backend.directory(nodes[0])
        if folder is None:
            raise MisuseError("--wipe needs --with java: use another --dir, or remove these servers")
        self.state.wiped = sorted(wiped)
        states.save(self.directory, self.state)
        self.stop(nodes, kill=True)
        shutil.rmtree(folder, ignore_errors=True)

    def freeze(self, nodes: Sequence[Node]) -> None:
        """Halt those that run."""
        for node in nodes:
            if self.is_alive(node):
                self.backend.freeze(self.state.handles[node.name])

    def thaw(self, nodes: Sequence[Node]) -> None:
        """Let those go on that are frozen."""
        for node in nodes:
            if self.is_alive(node):
                self.backend.thaw(self.state.handles[node.name])

    def remove(self) -> None:
        """End everything and delete its data, its logs and the state."""
        nodes = self.state.nodes
        self.stop(nodes, kill=True)
        for node in nodes:
            self.backend.remove(node, self.state.handles.get(node.name))
        states.forget(self.directory)

    def select(self, only: str | None, number: int | None) -> list[Node]:
        """Return the servers that `--only` and `--node` name.

        Raises:
            MisuseError: there is no such server here.
        """
        nodes = [
            node
            for node in self.state.nodes
            if only in (None, node.service) and number in (None, node.number)
        ]
        if not nodes:
            raise MisuseError(f"there is no node {number}; a ring has 1, 2 and 3")
        return nodes

    def authority(self) -> Path | None:
        """Return the PEM file by which clients of Cassandra know its servers; None without TLS."""
        return certificates.authority(self.directory) if self.state.tls else None

    def addresses(self, service: str) -> str:
        """Return the contact points of a service of which a server runs, else an empty text."""
        peers = self.state.peers(service)
        if not any(map(self.is_alive, peers)):
            return ""
        # A client is given those that are down as well: they may come back while it runs.
        return ",".join(node.contact for node in peers)

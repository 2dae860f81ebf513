"""One session with ZooKeeper, whose state is known without asking.

Owns the kazoo client, one thread, and the answer to "may this session still be trusted?". Refuses to know
what claims and hungry poppers are. The rule that must not break: trust is counted from before a request
was sent, never from when its reply came, so that this side gives up first.

    this process                          ZooKeeper
    | beat sent (trust counts from here) -->| expiry counts from here, so never earlier
    |<-------------------------------- reply|
    | (frozen)                              | session expires, its nodes go
    | thawed: the last beat is too old, may_take is False before kazoo has read a single byte

Kazoo calls back on its own threads, where nobody may block: every step that runs somebody else's code is
handed to this session's own thread.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from kazoo.exceptions import KazooException, NoAuthError, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState

from cassq.coordination.zookeeper.client import Timeouts, open_client
from cassq.errors import AccessDeniedError, ClosedError, CoordinationUnavailableError
from cassq.runtime.clock import Clock

_LOG = logging.getLogger("cassq.coordination")


class SessionListener(Protocol):
    """Who is told what becomes of the session."""

    def on_lost(self) -> None:
        """Forget what the session had; called on kazoo's thread: must not block."""
        ...

    def on_alive(self, *, is_back: bool) -> None:
        """Look after what is unsettled; called after each beat on the session's own thread.

        Args:
            is_back: the first beat of this connection: every watch is gone and has to be set again.
        """
        ...


class ZooKeeperSession:
    """A kazoo client that connects in the background and for ever, and one thread beside it."""

    def __init__(
        self,
        hosts: str,
        auth: tuple[str, str] | None,
        timeouts: Timeouts,
        clock: Clock,
        listener: SessionListener,
    ) -> None:
        self.hosts = hosts
        self.timeouts = timeouts
        self.client = open_client(hosts, auth, timeouts)
        self._clock = clock
        self._listener = listener
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._todo: deque[Callable[[], None]] = deque()
        self._is_closed = False
        self._is_connected = False
        self._is_dead = False
        self._has_been_alive = False
        self._connection = 0
        self._epoch = 0
        self._trusted_at: float | None = None
        self._alive_at = float("-inf")
        self._started_at = clock.now()
        self._beat_due = self._started_at + timeouts.beat
        self._is_beating = False
        self._parents: set[str] = set()
        self.client.add_listener(self._on_state)
        self._worker = threading.Thread(target=self._work, name="cassq-zookeeper", daemon=True)

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self.client.start_async()
        self._worker.start()

    @property
    def epoch(self) -> int:
        """How many sessions were lost so far: what was created in another epoch is gone."""
        return self._epoch

    @property
    def is_trusted(self) -> bool:
        """Whether requests make sense now; never touches the network."""
        self.check_process()
        trusted_at = self._trusted_at
        if self._is_closed or trusted_at is None:
            return False
        return self._clock.now() - trusted_at < self.timeouts.trust

    @property
    def is_connected(self) -> bool:
        """Whether requests reach the service; when they do not, `on_alive` follows once they do."""
        return self._is_connected

    @property
    def may_stand(self) -> bool:
        """Whether the service may still keep the session, also while the connection is interrupted."""
        return not self._is_closed and self._clock.now() - self._alive_at < self.timeouts.session

    def check_process(self) -> None:
        """Refuse to serve a forked child: it would read its parent's replies.

        Raises:
            ClosedError: this is not the process that opened the session.
        """
        if os.getpid() != self._pid:
            raise ClosedError(
                "the connection to ZooKeeper was opened before a fork: connect again in the child"
            )

    def require(self) -> int:
        """Return the epoch of a session that can be used now.

        Raises:
            ClosedError: closed, or in a forked child.
            CoordinationUnavailableError: not connected.
        """
        self.check_process()
        if self._is_closed:
            raise ClosedError("the connection to ZooKeeper was closed")
        if not self._has_been_alive:
            self.wait_connected(self._started_at + self.timeouts.answer - self._clock.now())
        epoch = self._epoch
        if not self.is_trusted:
            raise CoordinationUnavailableError(
                f"no connection to ZooKeeper at {self.hosts}: pops stop until it is back"
            )
        return epoch

    def wait_connected(self, seconds: float) -> bool:
        """Wait until the session can be used, at most `seconds`; tell whether it can."""
        end = self._clock.now() + seconds
        with self._changed:
            while not self.is_trusted and not self._is_closed:
                rest = end - self._clock.now()
                if rest <= 0:
                    break
                self._clock.wait(self._changed, rest)
        return self.is_trusted

    def answer(self, reply: Any) -> Any:  # noqa: ANN401 (kazoo has no types)
        """Wait for the reply to a request and return its value.

        Raises:
            NodeExistsError: an answer like any other.
            NoNodeError: the same.
            AccessDeniedError: the node belongs to another user; nothing was done.
            CoordinationUnavailableError: everything else; the request may have been carried out.
        """
        try:
            return reply.get(timeout=self.timeouts.answer)
        except (NodeExistsError, NoNodeError):
            raise
        except KazooTimeoutError as error:
            raise CoordinationUnavailableError(
                f"ZooKeeper at {self.hosts} did not answer within {self.timeouts.answer:g} s"
            ) from error
        except NoAuthError as error:
            raise AccessDeniedError(
                f"ZooKeeper at {self.hosts} refuses it (NoAuth): the nodes of this keyspace belong to "
                "another user; name the same one in zookeeper_auth everywhere"
            ) from error
        except KazooException as error:
            reason = type(error).__name__
            raise CoordinationUnavailableError(
                f"ZooKeeper at {self.hosts} failed: {reason} {error}".rstrip()
            ) from error

    def ensure(self, parent: str, *, is_again: bool = False) -> None:
        """Create a parent node unless this was done before, or in spite of that `is_again`.

        Raises:
            CoordinationUnavailableError: it could not be created.
        """
        if is_again or parent not in self._parents:
            self.answer(self.client.ensure_path_async(parent))
            self._parents.add(parent)

    def is_mine(self, owner: int) -> bool:
        """Tell whether an ephemeral node with this owner belongs to the present session.

        Raises:
            CoordinationUnavailableError: there is none at the moment.
        """
        client_id = self.client.client_id
        if client_id is None:
            raise CoordinationUnavailableError(f"no connection to ZooKeeper at {self.hosts}")
        return bool(client_id[0] == owner)

    def call_soon(self, step: Callable[[], None]) -> None:
        """Run `step` on the session's own thread."""
        with self._changed:
            self._todo.append(step)
            self._changed.notify_all()

    def close(self) -> None:
        """End the session, so that its nodes go at once; in a forked child, do nothing.

        While the service does not answer this takes as long as kazoo needs to give up on it.
        """
        if os.getpid() != self._pid:
            return
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._trusted_at = None
            self._changed.notify_all()
        if threading.current_thread() is not self._worker:
            self._worker.join()
        # Kazoo complains when its thread does not end in time; it ends with the process then.
        with suppress(Exception):
            self.client.stop()
        with suppress(Exception):
            self.client.close()

    def _on_state(self, state: str) -> None:
        # On kazoo's connection thread: note it, and be gone.
        is_lost = state == KazooState.LOST
        with self._changed:
            self._connection += 1
            self._is_connected = state == KazooState.CONNECTED
            self._trusted_at = None
            self._is_beating = False
            if is_lost:
                self._epoch += 1
                # After an expired session kazoo connects again; after anything else it has given up.
                self._is_dead = self.client.client_state != KeeperState.EXPIRED_SESSION
            if self._is_connected:
                self._beat_due = self._clock.now()
            self._changed.notify_all()
        if is_lost:
            self._listener.on_lost()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._todo and not self._is_closed:
                    rest = self._beat_due - self._clock.now()
                    if rest <= 0:
                        break
                    self._clock.wait(self._changed, rest)
                if self._is_closed:
                    return
                steps, self._todo = self._todo, deque()
            if self._clock.now() >= self._beat_due:
                steps.appendleft(self._beat)
            for step in steps:
                try:
                    step()
                except (CoordinationUnavailableError, AccessDeniedError):
                    _LOG.debug("ZooKeeper went away meanwhile", exc_info=True)
                except Exception:
                    _LOG.exception("a callback failed")

    def _beat(self) -> None:
        with self._changed:
            self._beat_due = self._clock.now() + self.timeouts.beat
            is_dead, self._is_dead = self._is_dead, False
            is_due = self._is_connected and not self._is_beating
            # One at a time: requests count as signs of life for kazoo, so that more of them without a
            # reply would keep it from ever noticing a silent server.
            self._is_beating = self._is_beating or is_due
            connection = self._connection
        if is_dead:
            self.client.start_async()
        elif is_due:
            sent_at = self._clock.now()
            self.client.exists_async("/").rawlink(partial(self._on_beat, connection, sent_at))

    def _on_beat(self, connection: int, sent_at: float, reply: Any) -> None:  # noqa: ANN401
        with self._changed:
            if connection != self._connection:
                return
            self._is_beating = False
            if reply.exception is not None:
                return
            is_back = self._trusted_at is None
            self._trusted_at = self._alive_at = sent_at
            self._has_been_alive = True
            self._todo.append(partial(self._listener.on_alive, is_back=is_back))
            self._changed.notify_all()

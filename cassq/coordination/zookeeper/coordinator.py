"""Claims and hungry poppers in ZooKeeper, for the processes of many machines.

Owns the nodes below `/cassq/<namespace>` (schema/zookeeper.md names them). Refuses to decide who should
have a pipe, and to wait for one: a claim is a bare ephemeral node, created or not. The rule that must not
break: a node that this session created and nobody here knows of is removed, or it would keep its pipe
from everybody for as long as this process lives.

    this process                            ZooKeeper
    | create claims/q/P  -------------------->| created
    |      (reply lost; the session lives)    |
    | claim again: exists, owner = my session,
    |   holder = mine  -> held                |
    | or nobody claims it again: once connected, delete ->|
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from kazoo.exceptions import NodeExistsError, NoNodeError

from cassq.coordination.zookeeper.client import DEFAULT_TIMEOUTS, Timeouts
from cassq.coordination.zookeeper.hungry_line import HungryLine
from cassq.coordination.zookeeper.session import ZooKeeperSession
from cassq.errors import AccessDeniedError, CoordinationUnavailableError
from cassq.model.ids import check_name
from cassq.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class _Claim:
    """A node of ours; one of an earlier epoch is gone."""

    holder: str
    epoch: int


@dataclass(frozen=True, slots=True, eq=False)
class _Doubt:
    """One reason why a node may be ours though nobody claims it: only who settles this one may forget it."""

    epoch: int


class ZooKeeperCoordinator:
    """A seat at ZooKeeper: one session per process, which it connects in the background.

    Args:
        hosts: `HOST[:PORT],…`, optionally with `/CHROOT` behind it.
        namespace: keeps the queues of several keyspaces apart.
        clock: reads elapsed time.
        timeouts: how long things may take.
        auth: user name and password (digest); then only they may read and change the nodes.
    """

    def __init__(
        self,
        hosts: str,
        namespace: str,
        *,
        clock: Clock,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        auth: tuple[str, str] | None = None,
    ) -> None:
        self._root = f"/cassq/{check_name(namespace, 'namespace')}"
        self._lock = threading.RLock()
        self._claims: dict[str, _Claim] = {}
        self._claiming: set[str] = set()
        self._doubtful: dict[str, _Doubt] = {}
        self._hosts = hosts
        self._session = ZooKeeperSession(hosts, auth, timeouts, clock, self)
        self._line = HungryLine(self._session, f"{self._root}/hungry", clock)
        self._session.start()

    def wait_connected(self, seconds: float) -> bool:
        """Wait until ZooKeeper can be used, at most `seconds`; tell whether it can."""
        return self._session.wait_connected(seconds)

    def __str__(self) -> str:
        return f"ZooKeeper at {self._hosts}"

    def may_take(self) -> bool:
        """Tell whether the session is connected and was answered lately."""
        return self._session.is_trusted

    def claim(self, queue: str, pipe: UUID, holder: str) -> bool:
        """Create the pipe's node, or find that it is there; see the port."""
        epoch = self._session.require()
        path = self._claim_path(queue, pipe)
        with self._lock:
            known = self._claims.get(path)
            if known is not None and known.epoch == epoch:
                return known.holder == holder
            if path in self._claiming:
                return False
            self._claiming.add(path)
        try:
            return self._create_claim(queue, path, _Claim(holder, epoch))
        finally:
            with self._lock:
                self._claiming.discard(path)

    def release(self, queue: str, pipe: UUID, holder: str) -> None:
        """Delete the pipe's node; one that could not be deleted now is deleted after the reconnection."""
        self._session.check_process()
        path = self._claim_path(queue, pipe)
        epoch = self._session.epoch
        with self._lock:
            if self._claims.get(path) != _Claim(holder, epoch):
                return
            del self._claims[path]
            doubt = self._doubtful[path] = _Doubt(epoch)
            if not self._session.is_trusted:
                return
            reply = self._send_delete(path)
        self._watch_delete(path, doubt, reply)
        with suppress(NoNodeError, CoordinationUnavailableError, AccessDeniedError):
            self._session.answer(reply)

    def is_held(self, queue: str, pipe: UUID, holder: str) -> bool:
        """Tell whether the claim's session may still stand; never touches the network."""
        self._session.check_process()
        known = self._claims.get(self._claim_path(queue, pipe))
        return known == _Claim(holder, self._session.epoch) and self._session.may_stand

    def holders(self, queue: str) -> Mapping[UUID, str]:
        """Read the claims of a queue; asks for all of them at once."""
        self._session.require()
        client = self._session.client
        try:
            names = self._session.answer(client.get_children_async(f"{self._root}/claims/{queue}"))
        except NoNodeError:
            return {}
        replies = [(UUID(name), client.get_async(f"{self._root}/claims/{queue}/{name}")) for name in names]
        found = {}
        for pipe, reply in replies:
            with suppress(NoNodeError):
                found[pipe] = self._session.answer(reply)[0].decode()
        return found

    def announce_hunger(
        self,
        queue: str,
        popper: str,
        wake: Callable[[], None],
        *,
        on_crowded: Callable[[], None] | None = None,
    ) -> int:
        """Join the line of hungry poppers; the callbacks run on the session's own thread."""
        self._session.check_process()
        return self._line.announce(queue, popper, wake, on_crowded)

    def withdraw_hunger(self, queue: str, popper: str) -> None:
        """Leave the line, without waiting for it."""
        self._session.check_process()
        self._line.withdraw(queue, popper)

    def hungry(self, queue: str, besides: str = "", *, types: int = 0) -> int:
        """Answer from what the children watch last told; the first call only sets it up."""
        self._session.check_process()
        return self._line.count(queue, besides, types)

    def wake(self, queue: str, count: int, besides: str = "", *, types: int = 0) -> int:
        """Delete the oldest nodes in the line."""
        self._session.check_process()
        return self._line.wake(queue, count, besides, types) if self._session.is_trusted else 0

    def close(self) -> None:
        """End the session: its nodes go at once."""
        self._session.close()

    def on_lost(self) -> None:
        """Forget what the lost session had."""
        with self._lock:
            self._claims.clear()
            self._doubtful.clear()
        self._line.on_lost()

    def on_alive(self, *, is_back: bool) -> None:
        """Delete nodes that this session made and nobody holds; then look after the line."""
        for path in list(self._doubtful):
            self._delete_doubtful(path)
        self._line.on_alive(is_back=is_back)

    def _create_claim(self, queue: str, path: str, claim: _Claim) -> bool:
        for is_again in (False, True):
            self._session.ensure(f"{self._root}/claims/{queue}", is_again=is_again)
            created = self._session.client.create_async(path, claim.holder.encode(), ephemeral=True)
            try:
                self._session.answer(created)
            except NodeExistsError:
                if not self._is_own(path, claim):
                    return False
            except NoNodeError:
                continue
            except AccessDeniedError:
                raise  # certainly not created
            except BaseException:
                self._doubt(path, created)
                raise
            self._note(path, claim)
            return True
        raise CoordinationUnavailableError(f"the parent of {path} vanishes from ZooKeeper again and again")

    def _note(self, path: str, claim: _Claim) -> None:
        with self._lock:
            if claim.epoch != self._session.epoch:
                self._doubtful[path] = _Doubt(self._session.epoch)  # whichever of the two it belongs to
                raise CoordinationUnavailableError("the ZooKeeper session ended while a pipe was claimed")
            self._doubtful.pop(path, None)
            self._claims[path] = claim

    def _is_own(self, path: str, claim: _Claim) -> bool:
        doubt = self._doubtful.get(path)
        if doubt is None:
            return False  # whatever this session created and has not noted is doubtful
        try:
            holder, stat = self._session.answer(self._session.client.get_async(path))
        except NoNodeError:
            return False  # given up a moment ago: the next round finds it free
        if not self._session.is_mine(stat.ephemeralOwner):
            self._settle(path, doubt)
            return False
        if holder == claim.holder.encode():
            return True
        # Another popper of this process created it and never learned of it.
        with self._lock:
            doubt = self._doubtful[path] = _Doubt(claim.epoch)
            reply = self._send_delete(path)
        self._watch_delete(path, doubt, reply)
        return False

    def _doubt(self, path: str, created: Any) -> None:  # noqa: ANN401
        with self._lock:
            self._doubtful[path] = _Doubt(self._session.epoch)
        created.rawlink(partial(self._on_late_claim, path))

    def _on_late_claim(self, path: str, created: Any) -> None:  # noqa: ANN401
        # The reply that nobody waited for any longer; after a lost connection on_alive settles it.
        if created.exception is None:
            self._delete_doubtful(path)

    def _settle(self, path: str, doubt: _Doubt) -> None:
        with self._lock:
            if self._doubtful.get(path) is doubt:
                del self._doubtful[path]

    def _delete_doubtful(self, path: str) -> None:
        with self._lock:
            doubt = self._doubtful.get(path)
            if doubt is None or path in self._claiming or path in self._claims:
                return
            if doubt.epoch != self._session.epoch:
                del self._doubtful[path]
                return
            if not self._session.is_trusted:
                return
            reply = self._send_delete(path)
        self._watch_delete(path, doubt, reply)

    def _send_delete(self, path: str) -> Any:  # noqa: ANN401
        # Sent under the lock: a claim that comes after it is created after it.
        return self._session.client.delete_async(path)

    def _watch_delete(self, path: str, doubt: _Doubt, reply: Any) -> None:  # noqa: ANN401
        # Outside the lock: kazoo calls back at once, holding a lock of its own, when it is closing.
        reply.rawlink(partial(self._on_deleted, path, doubt))

    def _on_deleted(self, path: str, doubt: _Doubt, reply: Any) -> None:  # noqa: ANN401
        if reply.exception is None or isinstance(reply.exception, NoNodeError):
            self._settle(path, doubt)

    def _claim_path(self, queue: str, pipe: UUID) -> str:
        return f"{self._root}/claims/{queue}/{pipe}"

"""Lets requests in, or says why not.

Owns what this process knows of the applications, and how old that may be. What must not break: a key that was
revoked `KNOWN_S` ago, or whose application was deleted by then, is not let in by what was known before.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from cassq.errors import AccessDeniedError, DecodeError, KeyRefusedError
from cassq.gate.addresses import Origin, is_inside
from cassq.gate.applications import Application, Applications, Right, StoredKey
from cassq.gate.keys import NOBODY, Key
from cassq.gate.rates import Rates
from cassq.runtime.clock import Clock

_log = logging.getLogger("cassq.gate")

#: How old what is known may be, counted from before it was read.
KNOWN_S = 2.0

#: How often it is read anew, while requests come.
LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for.

    Attributes:
        key: as it was sent; None where none was.
        right: what it needs.
    """

    key: str | None
    right: Right
    origin: Origin


@dataclass(frozen=True, slots=True)
class Admitted:
    """Who was let in.

    Attributes:
        key_id: of the key.
    """

    application: Application
    key_id: str


class Gate:
    """The gate of one process.

    Args:
        today: tells the time of day, for keys that expire.
        may_be_open: keys may come over connections that others can read.
    """

    def __init__(
        self,
        applications: Applications,
        clock: Clock,
        *,
        may_be_open: bool = False,
        today: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._applications = applications
        self._clock = clock
        self._rates = Rates(clock)
        self._may_be_open = may_be_open
        self._today = today
        self._guard = threading.Lock()
        self._known: dict[str, tuple[Application, StoredKey]] = {}
        self._known_at = float("-inf")
        self._told: set[str] = set()

    @property
    def age_s(self) -> float:
        """How old is what is known."""
        return self._clock.latest() - self._known_at

    def look(self) -> None:
        """Read the applications.

        Raises: StorageUnavailableError: nobody can; what was known stays, and gets older.
        """
        asked_at = self._clock.latest()
        found = self._applications.all(self._note_damage)
        known = {key.id: (each, key) for each in found for key in each.keys.values()}
        with self._guard:
            if asked_at >= self._known_at:  # or a later look was faster
                self._known, self._known_at = known, asked_at
        self._rates.keep(set(known))

    def admit(self, asked: Asked, *, is_counted: bool = True) -> Admitted:
        """Return who asks, by what is known.

        Args:
            is_counted: it is a request of its own, and no look at one that goes on.

        Raises:
            KeyRefusedError: there is no key, or it is unknown, revoked or expired; nobody is told which.
            AccessDeniedError: the key is good, and the address, the connection or the right is not.
            RateExceededError: the key is used too often.
        """
        key = Key.parse(asked.key or "")
        found = self._known.get(key.id) if key else None
        is_good = (key or Key("", "")).is_of(found[1].digest if found else NOBODY)
        if found is None or not is_good or self._has_expired(found[1]):
            raise KeyRefusedError(
                "there is no valid key: send `Authorization: Bearer KEY`, with one that "
                "`cassq application key add` printed"
            )
        application, stored = found
        if not (asked.origin.is_private or self._may_be_open):
            raise AccessDeniedError("keys come by TLS alone: this one was readable on its way, so replace it")
        for networks in (application.allow, stored.allow):
            if networks and not is_inside(asked.origin.address, networks):
                raise AccessDeniedError(f"this key may not be used from {asked.origin.address}")
        if asked.right not in application.rights:
            raise AccessDeniedError(
                f"application {application.name!r} has no right {asked.right.value!r}: "
                "`cassq application alter` gives it"
            )
        if application.rate is not None and is_counted:
            self._rates.take(stored.id, application.rate)
        return Admitted(application, stored.id)

    def _has_expired(self, key: StoredKey) -> bool:
        return key.expires_at is not None and key.expires_at <= self._today()

    def _note_damage(self, error: DecodeError) -> None:
        if str(error) not in self._told:
            self._told.add(str(error))
            _log.error("nobody is let in: %s", error)

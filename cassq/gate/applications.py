"""Applications: who may come through a door, as documents of kind `application`.

Owns the form of these documents and how people change them. What must not break: a document that cannot be
read lets nobody in.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Self

from cassq.catalog.documents import Documents
from cassq.errors import ApplicationNotFoundError, ConflictError, DecodeError, InvalidOptionError
from cassq.gate.addresses import Network, to_networks
from cassq.gate.keys import Key
from cassq.gate.names import check_application
from cassq.model.ids import shorten
from cassq.storage.document_port import DocumentStorage

KIND = "application"

#: A key may be used so often at most; who may use it more often has no bound.
RATE_MAX = 1_000_000.0


class Right(Enum):
    """What an application may do."""

    PUSH = "push"  # push and publish
    POP = "pop"  # receive: lease and settle, read and follow
    LOOK = "look"  # see figures, settings and what waits
    STEER = "steer"  # create, delete, pause, purge
    OPERATOR = "operator"  # name the queues and topics of all


@dataclass(frozen=True, slots=True)
class StoredKey:
    """What is kept of a key.

    Attributes:
        digest: see `cassq.gate.keys`.
        allow: the networks that it may come from; empty for all.
    """

    id: str
    digest: str
    created_at: datetime
    expires_at: datetime | None = None
    allow: tuple[Network, ...] = ()


@dataclass(frozen=True, slots=True)
class Application:
    """One application.

    Attributes:
        allow: the networks that its keys may come from; empty for all.
        rate: how often each key may be used in a second, by process; None for no bound.
        keys: by their ids.
    """

    name: str
    rights: frozenset[Right]
    allow: tuple[Network, ...] = ()
    rate: float | None = None
    keys: Mapping[str, StoredKey] = field(default_factory=dict)

    @property
    def prefix(self) -> str | None:
        """Whose queues it names: its own, or with None all of them."""
        return None if Right.OPERATOR in self.rights else self.name

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values, as it is stored."""
        return {
            "rights": sorted(right.value for right in self.rights),
            "allow": list(map(str, self.allow)),
            "rate": self.rate,
            "keys": {
                key.id: {
                    "digest": key.digest,
                    "created_at": key.created_at.isoformat(),
                    "expires_at": key.expires_at and key.expires_at.isoformat(),
                    "allow": list(map(str, key.allow)),
                }
                for key in self.keys.values()
            },
        }

    @classmethod
    def from_text(cls, name: str, text: str) -> Self:
        """Read a document.

        Raises: DecodeError: it is not an application's.
        """
        try:
            told = json.loads(text)
            keys = {
                each: StoredKey(
                    each,
                    str(key["digest"]),
                    datetime.fromisoformat(key["created_at"]),
                    _to_time(key["expires_at"]),
                    to_networks(key["allow"]),
                )
                for each, key in told["keys"].items()
            }
            rights = frozenset(map(Right, told["rights"]))
            rate = None if told["rate"] is None else float(told["rate"])
            return cls(name, rights, to_networks(told["allow"]), rate, keys)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, InvalidOptionError) as error:
            raise DecodeError(f"the document of application {name!r} is not one: {error!r}") from error


def _to_time(text: str | None) -> datetime | None:
    if text is None:
        return None
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return time


def check_rate(rate: float | None) -> float | None:
    """Return how often a key may be used in a second.

    Raises: InvalidOptionError: it is out of range.
    """
    if rate is not None and not 0 < rate <= RATE_MAX:
        raise InvalidOptionError(f"rate={shorten(rate)} must be above 0, and {RATE_MAX:g} at most")
    return rate


class Applications:
    """The applications of one store."""

    def __init__(self, storage: DocumentStorage) -> None:
        self._documents = Documents(storage, KIND)

    def all(self, note_damage: Callable[[DecodeError], None]) -> list[Application]:
        """Return all that can be read, by name; tell of those that cannot."""
        found = []
        for each in self._documents.all():
            try:
                found.append(Application.from_text(each.name, each.body))
            except DecodeError as error:
                note_damage(error)
        return found

    def create(self, application: Application) -> None:
        """Create an application.

        Raises:
            InvalidNameError, InvalidOptionError: a value breaks a rule.
            ConflictError: there is one of this name.
        """
        check_application(application.name)
        check_rate(application.rate)

        def edit(text: str | None) -> str:
            if text is not None:
                raise ConflictError(
                    f"application {application.name!r} exists: `cassq application alter` changes it"
                )
            return json.dumps(application.to_json())

        self._documents.change(application.name, edit)

    def alter(self, name: str, edit: Callable[[Application], Application]) -> Application:
        """Change an application; `edit` may be called several times.

        Raises: ApplicationNotFoundError: there is none of this name.
        """

        def edit_text(text: str | None) -> str:
            if text is None:
                raise _missing(name)
            return json.dumps(edit(Application.from_text(name, text)).to_json())

        return Application.from_text(name, self._documents.change(name, edit_text) or "")

    def delete(self, name: str) -> None:
        """Delete an application with its keys; its queues stay.

        Raises: ApplicationNotFoundError: there is none of this name.
        """

        def edit(text: str | None) -> None:
            if text is None:
                raise _missing(name)

        self._documents.change(name, edit)

    def add_key(self, name: str, expires_at: datetime | None = None, allow: Iterable[str] = ()) -> Key:
        """Return a fresh key of an application; nobody can read it again.

        Raises:
            ApplicationNotFoundError: there is none of this name.
            InvalidOptionError: a network is none, or the application has as many keys as it can have.
        """
        key = Key.new()
        stored = StoredKey(key.id, key.digest, datetime.now(UTC), expires_at, to_networks(allow))
        self.alter(name, lambda seen: replace(seen, keys={**seen.keys, key.id: stored}))
        return key

    def revoke_key(self, name: str, key_id: str) -> None:
        """Revoke a key: within two seconds no process lets it in.

        Raises: ApplicationNotFoundError: there is no such application, or it has no such key.
        """

        def edit(seen: Application) -> Application:
            if key_id not in seen.keys:
                has = ", ".join(seen.keys) or "none"
                raise ApplicationNotFoundError(f"application {name!r} has no key {key_id!r}; it has {has}")
            return replace(seen, keys={each: key for each, key in seen.keys.items() if each != key_id})

        self.alter(name, edit)


def _missing(name: str) -> ApplicationNotFoundError:
    return ApplicationNotFoundError(
        f"there is no application {name!r}: `cassq application create {name}` makes it"
    )

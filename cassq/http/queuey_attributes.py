"""What Queuey keeps of a queue besides its topic: documents of kind `queuey`, one for each queue.

Owns their form. What must not break: what a document says holds for the topic alone that it was written for,
and no later one of its name; a queue without one is its application's alone.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Self

from cassq import aio
from cassq.aio.twins import call_in_thread
from cassq.catalog.documents import Documents
from cassq.errors import DecodeError
from cassq.http.service import Service

KIND = "queuey"

PUBLIC = "public"
TYPES = ("user", PUBLIC)
CONSISTENCIES = ("weak", "strong", "very_strong")


@dataclass(frozen=True, slots=True)
class Attributes:
    """What is kept of a queue.

    Attributes:
        incarnation: of the topic that it is about.
        consistency: is kept and told; a topic is always strong.
        principles: who sees its messages, with commas between them; "" for its application.
        created: seconds since 1970, by the service's clock; None where it was not made here.
    """

    incarnation: str
    type: str = "user"
    consistency: str = "strong"
    principles: str = ""
    created: float | None = None

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read a document.

        Raises: DecodeError: it is not one.
        """
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError, RecursionError) as error:
            raise DecodeError(f"a document of kind {KIND!r} is not one: {error!r}") from error

    @property
    def is_public(self) -> bool:
        """Whether everybody may read it."""
        return self.type == PUBLIC

    @property
    def names(self) -> list[str]:
        """The principles."""
        return [each.strip() for each in self.principles.split(",") if each.strip()]

    def told(self) -> dict[str, Any]:
        """Return what clients are told."""
        told = asdict(self)
        del told["incarnation"]
        return told


def _documents(service: Service) -> Documents:
    return Documents(service.store.sync.storage, KIND)


def _of(text: str | None, topic: aio.Topic) -> Attributes:
    incarnation = str(topic.incarnation)
    found = Attributes.from_text(text) if text else None
    return found if found and found.incarnation == incarnation else Attributes(incarnation)


async def may_be_public(service: Service, name: str) -> bool:
    """Tell whether some topic of this name was public, without a look at any topic."""
    text = await call_in_thread(_documents(service).find, name)
    return text is not None and Attributes.from_text(text).is_public


async def attributes_of(service: Service, name: str, topic: aio.Topic) -> Attributes:
    """Return what is kept of a queue."""
    return _of(await call_in_thread(_documents(service).find, name), topic)


async def keep(
    service: Service, name: str, topic: aio.Topic, edit: Callable[[Attributes], Attributes]
) -> Attributes:
    """Change what is kept of a queue; return it.

    Args:
        edit: may be called several times.
    """

    def edit_text(text: str | None) -> str:
        return json.dumps(asdict(edit(_of(text, topic))))

    return _of(await call_in_thread(_documents(service).change, name, edit_text), topic)


async def forget(service: Service, name: str, incarnation: str) -> None:
    """Delete what is kept of a topic that was deleted; not of one that was made since."""

    def edit_text(text: str | None) -> str | None:
        return text if text and Attributes.from_text(text).incarnation != incarnation else None

    await call_in_thread(_documents(service).change, name, edit_text)

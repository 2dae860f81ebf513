"""Documents: small texts of JSON that are kept beside queues, each changed by compare-and-set.

Owns their form; what is in one belongs to whoever owns its kind. What must not break: one that was deleted
stays as a row without a text, so that a change that lands late is refused by its op.
"""

import json
from dataclasses import dataclass
from uuid import UUID

from cassq.errors import InvalidOptionError
from cassq.limits import KIB

#: The text of a document may have so many bytes in UTF-8.
DOCUMENT_BYTES_MAX = 64 * KIB


@dataclass(frozen=True, slots=True)
class Document:
    """One document, as stored.

    Attributes:
        op: changes with every write; what the next one is conditional on.
        body: JSON; "" where it was deleted.
    """

    name: str
    op: UUID
    body: str

    @property
    def is_deleted(self) -> bool:
        """Whether it was deleted."""
        return not self.body


def check_document(name: str, body: str) -> str:
    """Return the text of a document.

    Raises: InvalidOptionError: it is too large, or no JSON.
    """
    size = len(body.encode())
    if size > DOCUMENT_BYTES_MAX:
        raise InvalidOptionError(
            f"document {name!r} would have {size} bytes, and {DOCUMENT_BYTES_MAX} are the most: "
            "take something out"
        )
    try:
        json.loads(body)
    except ValueError as error:
        raise InvalidOptionError(f"document {name!r} is not JSON: {error}") from None
    return body

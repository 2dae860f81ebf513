"""The documents of one kind: read, and changed by compare-and-set.

Owns the attempts of a change, and what an unknown outcome means. Refuses to know what is in a document. What
must not break: a change that raises did not happen, or says that nobody knows.
"""

from collections.abc import Callable, Sequence
from uuid import UUID

from cassq.errors import CassqError, OutcomeUnknownError
from cassq.model.document import Document, check_document
from cassq.model.ids import new_token
from cassq.storage.document_port import DocumentStorage

#: How often a change is tried again when others change the document at the same time.
CHANGE_ATTEMPTS = 20


class Documents:
    """The documents of one kind in one store."""

    def __init__(self, storage: DocumentStorage, kind: str) -> None:
        self._storage = storage
        self._kind = kind

    def all(self) -> Sequence[Document]:
        """Return those that are there, ordered by name."""
        return [each for each in self._storage.read_documents(self._kind) if not each.is_deleted]

    def find(self, name: str) -> str | None:
        """Return the text of a document; None where there is none of this name."""
        seen = next(iter(self._storage.read_documents(self._kind, name)), None)
        return seen.body or None if seen else None

    def change(self, name: str, edit: Callable[[str | None], str | None]) -> str | None:
        """Change, create or delete a document; return what stands then.

        Args:
            edit: returns the new text from the present one; None for one that is not there, or is to go. May
                be called several times.

        Raises:
            InvalidOptionError: the text is too large, or no JSON; nothing was changed.
            UnavailableError: nothing was changed.
            OutcomeUnknownError: it may have been changed, or others kept changing it.
        """
        sent: set[UUID] = set()
        is_in_doubt = False
        try:
            for _ in range(CHANGE_ATTEMPTS):
                seen = next(iter(self._storage.read_documents(self._kind, name)), None)
                if seen and seen.op in sent:
                    return seen.body or None
                body = edit(seen.body or None if seen else None)
                wanted = Document(name, new_token(), "" if body is None else check_document(name, body))
                sent.add(wanted.op)
                try:
                    if self._storage.change_document(self._kind, seen, wanted):
                        return body
                except OutcomeUnknownError:
                    is_in_doubt = True  # applied so far? The next look tells, and the next attempt settles it
        except CassqError as error:
            if not is_in_doubt or isinstance(error, OutcomeUnknownError):
                raise
            told = f"{self._kind} {name!r} may have been changed: {error}"
            raise OutcomeUnknownError(told) from error
        raise OutcomeUnknownError(f"{self._kind} {name!r}: others kept changing it; try again")

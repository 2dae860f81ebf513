"""The contract for documents: a part of `cassq.storage.port`, whose rules hold here."""

from collections.abc import Sequence
from typing import Protocol

from cassq.model.document import Document


class DocumentStorage(Protocol):
    """Small texts by kind and name, each changed by compare-and-set; no row is ever deleted."""

    def read_documents(self, kind: str, name: str | None = None) -> Sequence[Document]:
        """Return one document of a kind (or nothing), or all of them ordered by name; deleted ones, too.

        Guarantees: every `change_document` that had returned True before the call is seen; for one name also
        every one that was applied.
        """
        ...

    def change_document(self, kind: str, seen: Document | None, wanted: Document) -> bool:
        """Write `wanted` if the document still has `seen.op`, or was never there where `seen` is None.

        Args:
            wanted: of the name of `seen`, with a fresh op; one without a text says that it is deleted.

        Returns: whether it was applied.
        Guarantees: compare-and-set; exactly one of two racing calls with the same `seen` applies.
        Idempotent: no. After a time-out (`OutcomeUnknownError`): read it; `wanted.op` tells whether it was
        applied so far; it may still be applied later, until another change on what was read was.
        """
        ...

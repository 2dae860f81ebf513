"""Documents in a table of a file.

Owns their rows. What must not break: none is ever deleted; one without a text says that its document was.
"""

from collections.abc import Sequence
from uuid import UUID

from cassq.model.document import Document
from cassq.storage.sqlite.file import SqliteFile
from cassq.storage.sqlite.rows import Row
from cassq.storage.sqlite.values import blob, decoding, text

_READ = "SELECT name, op, body FROM documents WHERE kind = ?"


class SqliteDocuments:
    """The part of the port that is about documents."""

    _file: SqliteFile

    def read_documents(self, kind: str, name: str | None = None) -> Sequence[Document]:
        """See `DocumentStorage.read_documents`."""
        with self._file.reading() as db:
            if name is None:
                found = db.execute(f"{_READ} ORDER BY name", (kind,)).fetchall()
            else:
                found = db.execute(f"{_READ} AND name = ?", (kind, name)).fetchall()
        return list(map(_to_document, found))

    def change_document(self, kind: str, seen: Document | None, wanted: Document) -> bool:
        """See `DocumentStorage.change_document`."""
        values = wanted.op.bytes, wanted.body, kind, wanted.name
        with self._file.writing() as db:
            if seen is None:
                insert = "INSERT OR IGNORE INTO documents (op, body, kind, name) VALUES (?,?,?,?)"
                return db.execute(insert, values).rowcount == 1
            change = "UPDATE documents SET op = ?, body = ? WHERE kind = ? AND name = ? AND op = ?"
            return db.execute(change, (*values, seen.op.bytes)).rowcount == 1


def _to_document(row: Row) -> Document:
    with decoding("documents"):
        name, op, body = row
        return Document(text(name), UUID(bytes=blob(op)), text(body))

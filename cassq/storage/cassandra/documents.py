"""Documents in a table of Cassandra's.

Owns their statements and rows. What must not break: transactions alone change a row, and none is deleted.
"""

from collections.abc import Sequence

from cassq.model.document import Document
from cassq.storage.cassandra.session import CassandraSession
from cassq.storage.cassandra.statement import Call, Statement
from cassq.storage.cassandra.values import Row, decoding, to_text, to_uuid

_SELECT = "SELECT name, op, body FROM {ks}.documents WHERE kind = ?"
READ_DOCUMENTS = Statement(Call.READ, _SELECT, page_rows=64)
READ_DOCUMENT = Statement(Call.SERIAL_READ, f"{_SELECT} AND name = ?")
INSERT_DOCUMENT = Statement(
    Call.TRANSACTION,
    "INSERT INTO {ks}.documents (op, body, kind, name) VALUES (?, ?, ?, ?) IF NOT EXISTS",
    is_idempotent=False,
)
CHANGE_DOCUMENT = Statement(
    Call.TRANSACTION,
    "UPDATE {ks}.documents SET op = ?, body = ? WHERE kind = ? AND name = ? IF op = ?",
    is_idempotent=False,
)


class CassandraDocuments:
    """The part of the port that is about documents."""

    _session: CassandraSession

    def read_documents(self, kind: str, name: str | None = None) -> Sequence[Document]:
        """See `DocumentStorage.read_documents`."""
        if name is None:
            found = self._session.execute(READ_DOCUMENTS, (kind,))
        else:
            found = self._session.execute(READ_DOCUMENT, (kind, name))
        return list(map(_to_document, found))

    def change_document(self, kind: str, seen: Document | None, wanted: Document) -> bool:
        """See `DocumentStorage.change_document`."""
        values = wanted.op, wanted.body, kind, wanted.name
        if seen is None:
            return bool(self._session.execute(INSERT_DOCUMENT, values)[0][0])
        return bool(self._session.execute(CHANGE_DOCUMENT, (*values, seen.op))[0][0])


def _to_document(row: Row) -> Document:
    with decoding("a document", row):
        name, op, body = row
        return Document(to_text(name), to_uuid(op), to_text(body))
